/** What the state of a lane means, in a word and in sentences. */
import { age, duration, latency, plural } from "./format";
import type { Lane } from "./types";

export type LaneState = "parked" | "closed" | "paused" | "silent" | "late" | "working" | "due" | "waiting";

/** From how many seconds on what is due counts as late. */
export const lateSeconds = 60;

/** The gravest thing that can be said of a lane at an instant, in milliseconds. */
export function laneState(lane: Lane, now: number): LaneState {
  if (lane.parked) return "parked";
  if (lane.paused) return "paused";
  if (lane.closed_until !== null && Date.parse(lane.closed_until) > now) return "closed";
  const dueFor = lane.next_due_at === null ? 0 : (now - Date.parse(lane.next_due_at)) / 1000;
  if (lane.claimed > 0 && lane.latency_ms === null && dueFor > lateSeconds) return "silent";
  if (dueFor > lateSeconds) return "late";
  if (lane.claimed > 0) return "working";
  return dueFor > 0 ? "due" : "waiting";
}

/** Sentences for those who have to decide what to do about a lane. */
export function laneWords(lane: Lane, now: number): string[] {
  const answered = lane.answered_at === null ? "It has not answered since this process started." : `It last answered ${age(lane.answered_at, now)}, whatever the answer was.`;
  const due = lane.next_due_at === null ? "Nothing else waits." : Date.parse(lane.next_due_at) > now ? `The next one is due ${age(lane.next_due_at, now)}.` : `The oldest that waits has been due for ${duration((now - Date.parse(lane.next_due_at)) / 1000)}.`;
  switch (laneState(lane, now)) {
    case "parked":
      return [`There is no channel ${lane.channel} in the configuration of this process.`, "What waits is sent once the channel is put back under its name and the configuration is reloaded; or it can be cancelled.", due];
    case "paused":
      return ["A pause covers all of it: nothing is sent until it is resumed.", due];
    case "closed":
      return [
        `Every attempt fails. The next one is made ${age(lane.closed_until ?? now, now)}.`,
        answered,
        "The destination does not work, or is not reached from here: the words of its answers are with the notifications. Nothing is lost; it goes on by itself once it answers.",
        due,
      ];
    case "silent":
      return [`${plural(lane.claimed, "attempt")} under way, and no answer so far: it takes requests and does not answer.`, "It is probed by a few at a time and holds up none but itself.", due];
    case "late":
      return [lane.claimed > 0 ? "It is sent as fast as its limit, its rate or its quota allow: more comes in than goes out." : "Nothing of it is claimed although it is due: a pause of a part of it, a rate, or a process that is missing.", answered, due];
    case "working":
      return [`${plural(lane.claimed, "notification")} claimed, answers take ${latency(lane.latency_ms)}.`, answered, due];
    case "due":
    case "waiting":
      return ["Nothing of it is under way.", answered, due];
  }
}
