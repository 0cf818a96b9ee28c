/** What can be done about one notification, as its state and the key allow: cancel, reschedule, send again, write down the end. */
import { post } from "../core/api";
import { now } from "../core/clock";
import { instant, words } from "../core/format";
import { useGranted, useSession } from "../core/session";
import { useTenant } from "../core/tenant";
import type { CancelCount, Notification, RescheduleCount, Session } from "../core/types";
import { hasContent } from "../core/why";
import { act } from "../parts/act";
import type { Fact } from "../parts/panel";

interface Meant {
  of: Notification;
  tenant: string;
  done: () => void;
}

/** Whether the key is bounded in a way for which the engine lets it requeue nothing: what is sent again may go by any channel. */
export function isNarrow({ channels, priorities, from, endpoints }: Session): boolean {
  return channels !== null || priorities !== null || from !== null || endpoints !== null;
}

export function NotificationActs({ of, done }: { of: Notification; done: () => void }) {
  const session = useSession();
  const mayCancel = useGranted("cancel");
  const maySend = useGranted("send") && !isNarrow(session);
  const meant: Meant = { of, tenant: useTenant().name, done };
  const again = ["dead", "cancelled", "refused", "in_doubt"].includes(of.state);
  const hindered = hindrance(of);
  return (
    <>
      {mayCancel && of.state === "pending" && (
        <>
          <button type="button" onClick={() => askCancel(meant)}>
            Cancel
          </button>
          <button type="button" onClick={() => askReschedule(meant)}>
            Reschedule
          </button>
        </>
      )}
      {mayCancel && of.state === "in_doubt" && (
        <>
          <button type="button" onClick={() => askResolve(meant, "delivered")}>
            Resolve as delivered
          </button>
          <button type="button" onClick={() => askResolve(meant, "dead")}>
            Resolve as dead
          </button>
        </>
      )}
      {maySend && again && hindered === null && (
        <button type="button" onClick={() => askRequeue(meant)}>
          Send again
        </button>
      )}
      {maySend && again && hindered !== null && <span class="mute">{hindered}</span>}
    </>
  );
}

function hindrance(of: Notification): string | null {
  if (of.fallback_id !== null) return "It cannot be sent again: a fallback was sent in its place.";
  if (!hasContent(of)) return "It cannot be sent again: its content is kept no longer.";
  if (of.expires_at !== null && Date.parse(of.expires_at) <= now()) return "It cannot be sent again: it has expired.";
  return null;
}

function facts({ of, tenant }: Meant): Fact[] {
  return [
    ["Tenant", tenant],
    ["Notification", <span class="mono">{of.id}</span>],
    ["Recipient", <span class="mono">{of.to ?? "removed"}</span>],
    ["Channel", of.channel],
    ["State", words(of.state)],
  ];
}

function path({ of }: Meant, call: string): string {
  return `/v1/notifications/${of.id}/${call}`;
}

function askCancel(meant: Meant): void {
  act({
    title: "Cancel this notification?",
    button: "Cancel notification",
    danger: true,
    facts: facts(meant),
    text: "It is not sent, nor tried again. It can be sent again later on, while its content is kept.",
    async run() {
      const { cancelled, under_way } = await post<CancelCount>(path(meant, "cancel"), { tenant: meant.tenant });
      meant.done();
      return cancelled > 0 ? "The notification is cancelled" : under_way > 0 ? "Not cancelled: it is under way" : "Not cancelled: it had ended";
    },
  });
}

function askReschedule(meant: Meant): void {
  act({
    title: "Reschedule this notification?",
    button: "Reschedule notification",
    facts: facts(meant),
    text: "It is due at the new time, earlier or later; a time that has passed means at once. When it waits for another attempt, that one is made then.",
    fields: [{ name: "send_at", label: "Due at", kind: "time", initial: new Date(now()).toISOString(), hint: "In your time zone. At most 366 days ahead, and before it expires." }],
    async run({ send_at }) {
      await post<RescheduleCount>(path(meant, "reschedule"), { tenant: meant.tenant }, { body: { send_at } });
      meant.done();
      return `The notification is due at ${instant(send_at ?? "")}`;
    },
  });
}

function askRequeue(meant: Meant): void {
  const doubt = meant.of.state === "in_doubt";
  act({
    title: "Send this notification again?",
    button: "Send again",
    danger: doubt,
    facts: facts(meant),
    text: (
      <>
        <p>The same notification, with its identifier and content, gets new attempts.</p>
        {meant.of.state === "refused" && <p>If the recipient is on the suppression list, lift it first: it would end as suppressed.</p>}
        {doubt && (
          <p class="warning" role="alert">
            It may have arrived. Sent again, it may arrive twice: to send it again says that twice is better than not at all.
          </p>
        )}
      </>
    ),
    ...(doubt ? { word: "twice" } : {}),
    async run() {
      await post(path(meant, "requeue"), { state: meant.of.state, may_repeat: doubt ? true : null, tenant: meant.tenant });
      meant.done();
      return "The notification waits to be sent again";
    },
  });
}

function askResolve(meant: Meant, as: "delivered" | "dead"): void {
  act({
    title: `Resolve as ${as}?`,
    button: `Resolve as ${as}`,
    facts: facts(meant),
    text:
      as === "delivered"
        ? "Writes down that it arrived, as the provider or the recipient said. Nothing is sent, and it stays so."
        : "Writes down that it did not arrive. Nothing is sent; it can be sent again afterwards, as what is dead can.",
    fields: [{ name: "note", label: "How it was found out", kind: "text", initial: "", hint: "Up to 200 bytes. Leave names and addresses out of it." }],
    async run({ note }) {
      await post(path(meant, "resolve"), { as, note, tenant: meant.tenant });
      meant.done();
      return `Written down: ${as}`;
    },
  });
}
