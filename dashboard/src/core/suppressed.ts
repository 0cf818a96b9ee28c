/** Finding one recipient on the suppression list, which is in the order of recipients, byte by byte. */
import { get } from "./api";
import type { Suppression } from "./records";
import type { Listed } from "./types";

/** So many pages are looked at: those between share all but the last character with the one that is looked for. */
const pagesMax = 20;

/**
 * The row of a recipient, or null. The list goes on behind any text, so it is asked for what follows the recipient without its last
 * character: of what begins so, it is the first or stands a little behind.
 */
export async function findSuppression(channel: string, to: string, signal?: AbortSignal): Promise<Suppression | null> {
  const letters = [...to];
  const shorter = letters.slice(0, -1).join("");
  let after: string | null = shorter === "" ? null : shorter;
  for (let page = 0; page < pagesMax; page += 1) {
    const answer: Listed<Suppression> = await get<Listed<Suppression>>("/v1/suppressions", { channel, after, limit: page === 0 ? 50 : 1000 }, signal);
    const found = answer.items.find((item) => item.to === to);
    if (found !== undefined) return found;
    const last = answer.items.at(-1);
    if (last === undefined || answer.next === null || !last.to.startsWith(shorter)) return null;
    after = answer.next;
  }
  return null;
}
