/** Cancelling what waits, of anything that can be named: it is counted first, and done call by call. */
import type { Query } from "../core/api";
import { count, plural } from "../core/format";
import { add, countingMax, throughAll } from "../core/many";
import { coveredQuery, coveredWords, type Covered } from "../core/scopes";
import type { CancelCount } from "../core/types";
import { act, type Counted } from "./act";

/** `tenant` is the one whose notifications these are. */
export function askCancel(tenant: string, covered: Covered, done?: () => void): void {
  const words = coveredWords(covered);
  const query: Query = { ...coveredQuery(covered), tenant };
  act({
    title: `Cancel what waits of ${words}?`,
    button: covered.of === "broadcast" ? "Cancel the broadcast" : "Cancel what waits",
    danger: true,
    facts: [
      ["Tenant", tenant],
      ["Covers", words],
    ],
    text: "What waits of it is not sent. What is under way may arrive; to be sure that nothing more leaves, pause it first. What is cancelled can be sent again later.",
    countOf: "wait and would be cancelled",
    word: "cancel",
    async count(_values, signal): Promise<Counted> {
      const sum: Record<string, number> = {};
      const whole = await throughAll<CancelCount>("/v1/cancel", { ...query, dry_run: true }, (answer) => add(sum, answer), { signal, patience: countingMax });
      return { total: sum["cancelled"] ?? 0, atLeast: !whole, facts: [["Too late for", `${count(sum["under_way"] ?? 0)} under way`]] };
    },
    async run(_values, progress) {
      const sum: Record<string, number> = {};
      const took = (answer: CancelCount) => {
        add(sum, answer);
        progress.told(`${count(sum["cancelled"] ?? 0)} cancelled so far`);
      };
      const whole = await throughAll<CancelCount>("/v1/cancel", query, took, progress);
      done?.();
      const result = `${plural(sum["cancelled"] ?? 0, "notification")} of ${words} cancelled; too late for ${count(sum["under_way"] ?? 0)} under way`;
      return whole ? result : `Stopped: ${result}`;
    },
  });
}
