/** Pausing and going on, of anything that can be paused. */
import { post } from "../core/api";
import { coveredQuery, coveredWords, type Covered } from "../core/scopes";
import type { Pause } from "../core/types";
import { act } from "./act";

/** Asks, and pauses. `tenant` is the one whose notifications these are; `done` is called after it. */
export function askPause(tenant: string, covered: Covered, done?: () => void): void {
  const words = coveredWords(covered);
  act({
    title: `Pause ${words}?`,
    button: "Pause",
    danger: covered.of === "tenant",
    facts: [
      ["Tenant", tenant],
      ["Covers", words],
    ],
    text: "Nothing of it is sent until it is resumed. What is accepted meanwhile waits; what expires meanwhile is not sent afterwards. Attempts that have begun end as usual.",
    ...(covered.of === "tenant" ? { word: "pause" } : {}),
    async run() {
      const answer = await post<Pause>("/v1/pause", { ...coveredQuery(covered), tenant });
      done?.();
      return answer.everywhere === false
        ? `Paused ${words}, but not yet everywhere: a process did not say within 12 s that it goes by it`
        : `Paused ${words}, in every process`;
    },
  });
}

export function askResume(tenant: string, covered: Covered, done?: () => void): void {
  const words = coveredWords(covered);
  act({
    title: `Resume ${words}?`,
    button: "Resume",
    facts: [
      ["Tenant", tenant],
      ["Covers", words],
    ],
    text: "What waits of it is sent from now on, unless another pause covers it, too. What has expired meanwhile is not.",
    async run() {
      const { resumed } = await post<{ resumed: boolean }>("/v1/resume", { ...coveredQuery(covered), tenant });
      done?.();
      return resumed ? `Resumed ${words}` : `There was no pause of ${words}`;
    },
  });
}
