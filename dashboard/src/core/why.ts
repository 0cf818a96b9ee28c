/**
 * Why a notification stands where it stands, in sentences: what ended it, or what it waits for. They are made of what is at hand; what is
 * not known is left out.
 */
import { answerWords, lastOf } from "./causes";
import { age, duration, instant, plural } from "./format";
import { laneState } from "./lanes";
import type { Suppression } from "./records";
import { coveredWords, readScope, type Covered } from "./scopes";
import type { Lane, Notification, Pause } from "./types";

export interface Known {
  /** Milliseconds, by the engine's clock. */
  now: number;
  /** The lane that it waits in, where the status tells of it. */
  lane: Lane | null;
  /** The pauses of its tenant. */
  pauses: readonly Pause[];
  /** The row of the suppression list for its recipient; null where there is none or it is not known. */
  suppression: Suppression | null;
}

/** Whether nothing more happens to it by itself. */
export function hasEnded(notification: Notification): boolean {
  return !["pending", "claimed", "begun"].includes(notification.state);
}

/** Whether what would have to be sent is still there. */
export function hasContent(notification: Notification): boolean {
  return notification.content !== undefined && notification.to !== null;
}

function covers(covered: Covered | null, of: Notification): boolean {
  switch (covered?.of) {
    case "tenant":
      return true;
    case "channel":
      return covered.channel === of.channel;
    case "broadcast":
      return covered.id === of.broadcast;
    case "lane":
      return covered.channel === of.channel && covered.priority === of.priority && covered.destination === of.destination;
    default:
      return false;
  }
}

/** The attempts that were made: lines with the number 0 are steps without one. */
export function attemptsMade(notification: Notification): number {
  return notification.attempts.reduce((most, { attempt }) => Math.max(most, attempt), 0);
}

export function why(of: Notification, known: Known): string[] {
  const last = lastOf(of);
  const answer = last === null ? "" : answerWords(last.status, last.detail);
  const ended = last === null ? "" : ` ${age(last.at, known.now)}`;
  const said = answer === "" ? "." : `: ${answer}.`;
  switch (of.state) {
    case "delivered":
      return [last?.attempt === 0 ? `Written down as delivered by hand${ended}${said}` : `Delivered${ended}: the provider took it${answer === "" ? "" : ` (${answer})`}. What happened behind the provider is not known here.`];
    case "refused":
      return [`Refused by the provider${ended}${said}`, ...listed(known), ...replaced(of, "A fallback was sent in its place.")];
    case "suppressed":
      return [`Not sent: the recipient was on the suppression list${answer === "" ? "" : ` (${answer})`}.`, ...listed(known), ...replaced(of, "A fallback was sent in its place.")];
    case "expired":
      return [`Expired${ended}: its time was over ${of.expires_at === null ? "" : `at ${instant(of.expires_at)} `}before it was delivered${said}`, ...before(of)];
    case "cancelled":
      return [`Cancelled${ended} before it was sent${said}`, ...before(of)];
    case "in_doubt":
      return [
        `In doubt: it was sent${ended}, and it is not known whether it arrived${said}`,
        "It was to be sent at most once, so it is not sent again by itself. Ask the provider or the recipient, and write down what became of it; or send it again where twice is better than not at all.",
      ];
    case "dead":
      return [last?.attempt === 0 ? `Given up${ended}${said}` : `Given up${ended} after ${plural(attemptsMade(of), "attempt")}: no further one is made. The last answer was${answer === "" ? " nothing." : `: ${answer}.`}`];
    case "claimed":
      return ["A process has claimed it and is about to send it.", ...tried(of)];
    case "begun":
      return ["An attempt is on the wire: its answer is waited for.", ...tried(of)];
    case "pending":
      return [...waits(of, known), ...tried(of)];
  }
}

function listed({ suppression, now }: Known): string[] {
  if (suppression === null) return [];
  const by = suppression.status === 0 ? "by an operator" : `by the provider’s answer ${answerWords(suppression.status, "")}`;
  return [`The recipient is on the suppression list, since ${instant(suppression.since)} (${age(suppression.since, now)}), ${by}: ${suppression.reason}.`];
}

function replaced(of: Notification, words: string): string[] {
  return of.fallback_id === null ? [] : [words];
}

/** The last answer of a provider, of those that ended without one. */
function before(of: Notification): string[] {
  const answered = of.attempts.filter(({ attempt, state }) => attempt > 0 && state === "pending").at(-1);
  return answered === undefined ? ["No attempt was made."] : [`Before, the last answer was: ${answerWords(answered.status, answered.detail)}.`];
}

function tried(of: Notification): string[] {
  const last = lastOf(of);
  if (last === null) return [];
  if (last.attempt === 0) return [`Its last step: ${last.detail}.`];
  return [`${plural(attemptsMade(of), "attempt")} made so far; the last answer was: ${answerWords(last.status, last.detail) || "nothing"}.`];
}

function waits(of: Notification, { lane, pauses, now }: Known): string[] {
  const paused = pauses.map(({ scope, since }) => ({ covered: readScope(scope), since })).find(({ covered }) => covers(covered, of));
  if (paused?.covered) return [`Paused: ${coveredWords(paused.covered)} is paused since ${instant(paused.since)} (${age(paused.since, now)}). It is sent once that is resumed.`, ...ends(of, now)];
  const next = of.next_attempt_at === null ? null : Date.parse(of.next_attempt_at);
  if (next !== null && next > now + 1500) {
    const made = attemptsMade(of);
    return [made > 0 ? `Waits for attempt ${made + 1}, ${age(next, now)}.` : `Waits for its time: it is due at ${instant(next)}, ${age(next, now)}.`, ...laneHolds(lane, now), ...ends(of, now)];
  }
  const due = next === null || now - next < 1500 ? "It is due now" : `It has been due for ${duration((now - next) / 1000)}`;
  const held = laneHolds(lane, now);
  return [held.length > 0 ? `${due}, and its lane holds it up.` : `${due}, and waits for its turn.`, ...held, ...ends(of, now)];
}

function laneHolds(lane: Lane | null, now: number): string[] {
  if (lane === null) return [];
  switch (laneState(lane, now)) {
    case "parked":
      return [`There is no channel ${lane.channel} in the configuration of the process that answers: put it back, or cancel what waits.`];
    case "closed":
      return [`Its lane is closed: every attempt at ${lane.destination} fails. The next one is made ${age(lane.closed_until ?? now, now)}.`];
    case "silent":
      return [`${lane.destination} takes requests and does not answer.`];
    case "late":
      return ["More is due in its lane than goes out: a limit, a rate or a quota."];
    default:
      return [];
  }
}

function ends(of: Notification, now: number): string[] {
  return of.expires_at === null ? [] : [`It expires ${age(of.expires_at, now)}, at ${instant(of.expires_at)}.`];
}
