/** What can be done to a broadcast besides pausing and cancelling it: another time, and sending what was missed. */
import { post, type Query } from "../core/api";
import { now } from "../core/clock";
import { count, instant, plural } from "../core/format";
import type { Account, RescheduleCount } from "../core/types";
import { act, type Counted, type Field, type Values } from "./act";
import type { Fact } from "./panel";
import { countRequeue, requeueAll } from "./requeue";

/** A broadcast, and whose it is. */
export interface Meant {
  id: string;
  tenant: string;
}

function about(meant: Meant): Fact[] {
  return [
    ["Tenant", meant.tenant],
    ["Broadcast", meant.id],
  ];
}

export function askReschedule(meant: Meant, done: () => void): void {
  act({
    title: `Another time for the broadcast ${meant.id}`,
    button: "Reschedule",
    facts: about(meant),
    text: "What waits of it is sent at this time, earlier or later than before; a time that has passed means at once. What is under way or has ended stays as it is, and so does the time at which it expires.",
    fields: [{ name: "send_at", label: "Send at (your time zone)", kind: "time", initial: new Date(now() + 3_600_000).toISOString() }],
    async run(values) {
      const answer = await post<RescheduleCount>(`/v1/broadcasts/${encodeURIComponent(meant.id)}/reschedule`, { tenant: meant.tenant }, { body: { send_at: values["send_at"] } });
      done();
      return `${plural(answer.rescheduled, "notification")} of ${meant.id} rescheduled to ${instant(values["send_at"] ?? "")}; ${count(answer.under_way)} were under way, ${count(answer.ended)} had ended`;
    },
  });
}

const states = ["dead", "cancelled", "in_doubt"] as const;

function missedQuery(meant: Meant, values: Values): Query {
  const chosen = states.filter((state) => values[state] === "true");
  return { broadcast: meant.id, tenant: meant.tenant, state: chosen.join(","), may_repeat: values["in_doubt"] === "true" ? true : null };
}

export function askMissed(meant: Meant, account: Account, done: () => void): void {
  act({
    title: `Send again what was missed of ${meant.id}`,
    button: "Send again",
    facts: about(meant),
    text: "They are sent as further attempts of the same notifications. What has expired is not.",
    fields: missedFields(account),
    countOf: "would be sent again",
    word: "send",
    async count(values, signal): Promise<Counted> {
      if (missedQuery(meant, values)["state"] === "") return { total: 0, atLeast: false };
      return countRequeue(missedQuery(meant, values), signal);
    },
    async run(values, progress) {
      const words = await requeueAll(missedQuery(meant, values), expected(account, values), progress);
      done();
      return `${words} (${meant.id})`;
    },
  });
}

/** Ticks for those of the states that any is in. */
function missedFields(account: Account): Field[] {
  const fields: Field[] = [
    { name: "dead", label: `What is dead (${count(account.dead)})`, kind: "check", initial: account.dead > 0 ? "true" : "" },
    { name: "cancelled", label: `What was cancelled (${count(account.cancelled)})`, kind: "check", initial: "" },
    {
      name: "in_doubt",
      label: `What is in doubt (${count(account.in_doubt)})`,
      kind: "check",
      initial: "",
      warning: "These may have arrived. Sent again, some recipients get them twice. Do this only where twice is better than not at all; where the provider’s records tell what arrived, resolve them instead.",
    },
  ];
  return fields.filter(({ name }) => account[name as (typeof states)[number]] > 0);
}

function expected(account: Account, values: Values): number {
  return states.reduce((sum, state) => sum + (values[state] === "true" ? account[state] : 0), 0);
}
