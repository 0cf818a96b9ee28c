/** Acts on all that match, which the API does call by call: `next` of one answer is `after` of the next. */
import { post, type Query } from "./api";

/** How long a dry run counts until what it has so far is shown as "at least". */
export const countingMax = 4000;

interface Going {
  signal: AbortSignal;
  /** Milliseconds after which no further call is made. */
  patience?: number;
}

/**
 * Calls until there is no next, or until stopped; each answer goes to `took`. True where all of it is done. A call that has been made is
 * waited for, so that what it did is counted.
 */
export async function throughAll<Answer extends { next: string | null }>(path: string, query: Query, took: (answer: Answer) => void, { signal, patience = Infinity }: Going): Promise<boolean> {
  const until = performance.now() + patience;
  let after = query["after"];
  for (;;) {
    const answer = await post<Answer>(path, { ...query, after });
    took(answer);
    if (answer.next === null) return true;
    if (signal.aborted || performance.now() > until) return false;
    after = answer.next;
  }
}

/** Adds the numbers of an answer to a sum of the same names. */
export function add(sum: Record<string, number>, answer: object): void {
  for (const [name, value] of Object.entries(answer)) {
    if (typeof value === "number") sum[name] = (sum[name] ?? 0) + value;
  }
}
