/** Sending again all that match a query: how many that would be, and doing it page by page. */
import type { Query } from "../core/api";
import { count, plural } from "../core/format";
import { add, countingMax, throughAll } from "../core/many";
import type { RequeueCount } from "../core/types";
import type { Counted, Progress } from "./act";
import type { Fact } from "./panel";

function left(sum: Record<string, number>): Fact[] {
  const facts: [string, string][] = [
    ["expired", "Expired, not sent again"],
    ["content_removed", "Content was removed"],
    ["replaced", "A fallback was sent instead"],
    ["not_yet", "Not released yet, ask again"],
  ];
  return facts.filter(([name]) => (sum[name] ?? 0) > 0).map(([name, words]) => [words, count(sum[name] ?? 0)] as const);
}

/** A dry run, for at most some seconds. */
export async function countRequeue(query: Query, signal: AbortSignal): Promise<Counted> {
  const sum: Record<string, number> = {};
  const whole = await throughAll<RequeueCount>("/v1/requeue", { ...query, dry_run: true }, (answer) => add(sum, answer), { signal, patience: countingMax });
  return { total: sum["requeued"] ?? 0, atLeast: !whole, facts: left(sum) };
}

/** Requeues all that match, in pages, and says how far it is; it can be stopped between two pages. */
export async function requeueAll(query: Query, whole: number, progress: Progress): Promise<string> {
  const sum: Record<string, number> = {};
  const complete = await throughAll<RequeueCount>("/v1/requeue", query, (answer) => {
    add(sum, answer);
    progress.told(`${count(sum["requeued"] ?? 0)} sent again so far`, sum["matched"] ?? 0, whole);
  }, progress);
  const rest = left(sum).map(([words, number]) => `${words.toLowerCase()}: ${String(number)}`);
  return [`${complete ? "" : "Stopped: "}${plural(sum["requeued"] ?? 0, "notification")} sent again`, ...rest].join("; ");
}
