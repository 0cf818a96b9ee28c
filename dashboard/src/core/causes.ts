/**
 * Causes: what a provider said without what differs from one notification to the next, so that the same fault is counted as one.
 */
import type { Attempted, Notification, State } from "./types";

/** Stands for what was left out. */
const gap = "…";

/**
 * What differs, from the most particular to the least: quoted texts, times, addresses of the web, of mail and of the network, identifiers,
 * and numbers. A number of three digits that stands alone is kept: it is a status more often than anything else.
 */
const variable: readonly RegExp[] = [
  /"[^"]*"|'[^']*'|`[^`]*`|“[^”]*”/g,
  /\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?/g,
  /\bhttps?:\/\/[^\s,;)]*[^\s,;):.]/g,
  /[^\s<>,;:(]+@[^\s<>,;)]+/g,
  /\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b|\[[0-9a-f:]+\](:\d+)?/gi,
  /\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/gi,
  /\b(?=[\w-]*\d)[\w-]{12,}\b/g,
  /(?<![\w.])(?!\d{3}(?![\w.]))\d+(\.\d+)?(?![\w.]*\.\d)/g,
];

export function folded(detail: string): string {
  let text = detail;
  for (const pattern of variable) text = text.replace(pattern, gap);
  return text.replace(/…([\s,:.-]*…)+/g, gap).trim();
}

/** The longest part of a folded text that all who have it share: what the parameter `reason` of lists can go by. */
export function commonPart(text: string): string {
  const parts = text.split(gap).map((part) => part.replace(/^[\s:,.;>)]+|[\s:,.;<(]+$/g, ""));
  return parts.reduce((longest, part) => (part.length > longest.length ? part : longest), "");
}

export interface Cause {
  /** A name that no two causes have. */
  key: string;
  state: State;
  channel: string;
  status: number;
  /** Folded words of the last line of the log. */
  words: string;
  count: number;
  /** Of those that were read, by when they ended. */
  newest: Notification;
  oldest: Notification;
  /** How many have each destination. */
  destinations: Map<string, number>;
}

export function lastOf(notification: Notification): Attempted | null {
  return notification.attempts.at(-1) ?? null;
}

/** When it ended, or was last heard of. */
export function endedAt(notification: Notification): string {
  return lastOf(notification)?.at ?? notification.accepted_at;
}

/** Adds notifications to the causes so far. */
export function addCauses(causes: Map<string, Cause>, items: readonly Notification[]): void {
  for (const item of items) {
    const last = lastOf(item);
    const words = folded(last?.detail ?? "");
    const key = `${item.state} ${item.channel} ${last?.status ?? 0} ${words}`;
    const cause = causes.get(key) ?? { key, state: item.state, channel: item.channel, status: last?.status ?? 0, words, count: 0, newest: item, oldest: item, destinations: new Map<string, number>() };
    cause.count += 1;
    // Instants of the API are of one form, so their texts are in order.
    if (endedAt(item) < endedAt(cause.oldest)) cause.oldest = item;
    if (endedAt(item) > endedAt(cause.newest)) cause.newest = item;
    cause.destinations.set(item.destination, (cause.destinations.get(item.destination) ?? 0) + 1);
    causes.set(key, cause);
  }
}

/** An answer in a line: `410 Unregistered`. */
export function answerWords(status: number, detail: string): string {
  return [status === 0 ? "" : String(status), detail].filter((part) => part !== "").join(" ");
}
