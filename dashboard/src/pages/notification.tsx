/** One notification: what became of it and why, its timeline, what was sent, and what can be done about it. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { get } from "../core/api";
import { useCell } from "../core/cell";
import { now, useNow } from "../core/clock";
import { latency, words } from "../core/format";
import { live } from "../core/live";
import { useEvery, useLoad } from "../core/load";
import type { Suppression } from "../core/records";
import { address } from "../core/router";
import { laneKey } from "../core/scopes";
import { useGranted } from "../core/session";
import { findSuppression } from "../core/suppressed";
import { useTenant } from "../core/tenant";
import type { Attempted, Notification, Pause } from "../core/types";
import { attemptsMade, hasContent, hasEnded, why } from "../core/why";
import { Badge, StateBadge, stateTones } from "../parts/badge";
import { Codes } from "../parts/codes";
import { Copy, Facts, PageHead, Panel } from "../parts/panel";
import { Failed, Waiting } from "../parts/states";
import { Age, Instant } from "../parts/time";
import { NotificationActs } from "./notification-acts";

/** After how many milliseconds one is asked for again: not at all once it has ended, and seldom while nothing is to happen soon. */
function pauseOf(of: Notification | null): number | null {
  if (of === null || hasEnded(of)) return null;
  return of.next_attempt_at !== null && Date.parse(of.next_attempt_at) > now() + 60_000 ? 15_000 : 2000;
}

export function OneNotification({ params }: { params: Record<string, string> }) {
  const id = params["id"] ?? "";
  const tenant = useTenant();
  const { data, problem, loading, again, refresh } = useLoad((signal) => get<Notification>(`/v1/notifications/${encodeURIComponent(id)}`, { tenant: tenant.name }, signal), [id, tenant.name]);
  useEvery(pauseOf(data), refresh);
  return (
    <>
      <PageHead
        title="Notification"
        note={
          <>
            <span class="mono">{id}</span> <Copy text={id} label="the identifier" /> of the tenant {tenant.name}
          </>
        }
      >
        <a href={address("/notifications")}>All notifications</a>
        <button type="button" onClick={again} disabled={loading}>
          Read again
        </button>
      </PageHead>
      {problem !== null && <Failed problem={problem} again={again} />}
      {data === null ? problem === null && <Waiting /> : <Shown of={data} again={again} />}
    </>
  );
}

function Shown({ of, again }: { of: Notification; again: () => void }) {
  return (
    <>
      <Why of={of} again={again} />
      <div class="columns">
        <Timeline of={of} />
        <Envelope of={of} />
      </div>
      <Content of={of} />
    </>
  );
}

/** Asks for what explains it, as far as the key may: the pauses while it waits, the suppression once it was not taken. */
function useKnown(of: Notification): { pauses: Pause[]; suppression: Suppression | null } {
  const tenant = useTenant();
  const maySuppress = useGranted("suppress", "operate");
  const waits = of.state === "pending";
  const pauses = useLoad((signal) => (waits ? get<{ items: Pause[] }>("/v1/pauses", {}, signal) : Promise.resolve({ items: [] })), [waits]);
  const looks = maySuppress && of.to !== null && (of.state === "refused" || of.state === "suppressed");
  const listed = useLoad((signal) => (looks && of.to !== null ? findSuppression(of.channel, of.to, signal) : Promise.resolve(null)), [looks, of.channel, of.to]);
  return { pauses: (pauses.data?.items ?? []).filter((pause) => pause.tenant === tenant.name), suppression: listed.data };
}

function Why({ of, again }: { of: Notification; again: () => void }) {
  const at = useNow();
  const tenant = useTenant();
  const maySuppress = useGranted("suppress", "operate");
  const { status } = useCell(live);
  const { pauses, suppression } = useKnown(of);
  const lane = status?.lanes.find((one) => one.tenant === tenant.name && one.channel === of.channel && one.destination === of.destination && one.priority === of.priority) ?? null;
  return (
    <Panel title="What became of it" className="why">
      <p class="verdict">
        <StateBadge state={of.state} />
      </p>
      <div class="words" aria-live="polite">
        {why(of, { now: at, lane, pauses, suppression }).map((sentence) => (
          <p key={sentence}>{sentence}</p>
        ))}
        {hasEnded(of) && !hasContent(of) && <p>{of.to === null ? "Its recipient and content are kept no longer: their lifetime is over, or they were erased." : "Its content is kept no longer."}</p>}
      </div>
      <div class="actions">
        <NotificationActs of={of} done={again} />
        {of.fallback_id !== null && <a href={address(`/notifications/${of.fallback_id}`)}>The fallback that was sent</a>}
        {of.fallback_of !== null && <a href={address(`/notifications/${of.fallback_of}`)}>What this is the fallback of</a>}
        {maySuppress && suppression !== null && <a href={address("/suppressions", { channel: of.channel, to: of.to })}>Its row of the suppression list</a>}
        {lane !== null && !hasEnded(of) && <a href={address("/lanes", { lane: laneKey(lane) })}>Its lane</a>}
        {of.to !== null && <a href={address("/notifications", { to: of.to })}>All to this recipient</a>}
      </div>
    </Panel>
  );
}

/** A step of the life of a notification. */
interface Step {
  at: string;
  what: ComponentChildren;
  detail?: ComponentChildren;
}

function Timeline({ of }: { of: Notification }) {
  const at = useNow();
  const begun = Date.parse(of.accepted_at);
  const steps: Step[] = [{ at: of.accepted_at, what: <Badge tone="calm">accepted</Badge>, detail: "It is on disk from here on." }];
  // A time ahead is that of the next attempt, which stands further down and may be another one by now.
  if (Date.parse(of.due_at) > begun + 1000 && Date.parse(of.due_at) <= at) steps.push({ at: of.due_at, what: <Badge tone="calm">due</Badge>, detail: "The time that it was handed in for." });
  for (const line of of.attempts) steps.push({ at: line.at, what: <Line of={line} />, detail: line.detail || (line.attempt > 0 && line.status === 0 && line.state !== "delivered" ? "without words" : "") });
  const next = of.next_attempt_at;
  if (of.state === "pending" && next !== null) steps.push({ at: next, what: <Badge tone="active">{attemptsMade(of) > 0 ? `attempt ${attemptsMade(of) + 1}` : "first attempt"}</Badge>, detail: Date.parse(next) > at ? "Not made before this instant." : "Due; it waits for its turn." });
  if (of.state === "claimed" || of.state === "begun") steps.push({ at: new Date(at).toISOString(), what: <Badge tone="active">{words(of.state)}</Badge>, detail: of.state === "begun" ? "On the wire." : "In the hands of a process." });
  if (!hasEnded(of) && of.expires_at !== null) steps.push({ at: of.expires_at, what: <Badge tone="warn">expires</Badge>, detail: "Not sent at or after this instant." });
  steps.sort((left, right) => Date.parse(left.at) - Date.parse(right.at));
  return (
    <Panel title="Timeline">
      <ol class="life" aria-label="Timeline">
        {steps.map((step, index) => (
          <li key={index} class={Date.parse(step.at) > at ? "ahead" : undefined}>
            <span class="when">
              <Instant at={step.at} />
              {index > 0 && <small>{since(Date.parse(step.at) - begun)}</small>}
            </span>
            <span>
              {step.what}
              <span class="detail-words">{step.detail}</span>
            </span>
          </li>
        ))}
      </ol>
    </Panel>
  );
}

function since(milliseconds: number): string {
  if (milliseconds < 0) return "before it was accepted";
  return milliseconds < 60_000 ? `after ${latency(milliseconds)}` : "";
}

/** A line of the log. Pending means that another attempt follows; lines without an attempt are steps: requeued, resolved, and so on. */
function Line({ of }: { of: Attempted }) {
  const tone = of.state === "pending" ? (of.attempt === 0 ? "calm" : "warn") : (stateTones[of.state] ?? "calm");
  const state = of.state === "pending" ? (of.attempt === 0 ? "waits again" : "not taken, tried again") : words(of.state);
  return (
    <>
      <Badge tone={tone}>{state}</Badge> <span class="mute">{of.attempt > 0 && `attempt ${of.attempt}`}</span> {of.status > 0 && <strong>{of.status}</strong>}
    </>
  );
}

function Envelope({ of }: { of: Notification }) {
  return (
    <Panel title="Envelope">
      <Facts
        of={[
          [
            "Recipient",
            of.to === null ? (
              <span class="mute">removed</span>
            ) : (
              <>
                <span class="mono">{of.to}</span> <Copy text={of.to} label="the recipient" />
              </>
            ),
          ],
          ["Channel", of.channel],
          ["Destination", <span class="mono">{of.destination}</span>],
          ["Priority", of.priority],
          ["Guarantee", words(of.guarantee)],
          ["Accepted", <Instant at={of.accepted_at} />],
          ["Due", <Instant at={of.due_at} />],
          ["Expires", <Instant at={of.expires_at} none="never" />],
          of.next_attempt_at !== null && ["Next attempt", <Age at={of.next_attempt_at} />],
          of.broadcast !== null && ["Broadcast", <a href={address(`/broadcasts/${of.broadcast}`)}>{of.broadcast}</a>],
          of.external_id ? ["External id", <a href={address("/notifications", { external_id: of.external_id })}>{of.external_id}</a>] : null,
          of.tags !== undefined && of.tags.length > 0
            ? [
                "Tags",
                of.tags.map((tag, index) => (
                  <span key={tag}>
                    {index > 0 && ", "}
                    <a href={address("/notifications", { tag })}>{tag}</a>
                  </span>
                )),
              ]
            : null,
          of.metadata !== undefined && of.metadata !== null ? ["Metadata", <code>{JSON.stringify(of.metadata)}</code>] : null,
        ]}
      />
    </Panel>
  );
}

/** What was sent is shown only when asked for: it is about a person. */
function Content({ of }: { of: Notification }) {
  const [open, setOpen] = useState(false);
  return (
    <Panel title="Content">
      {of.content === undefined ? (
        <p class="mute">It is kept no longer.</p>
      ) : open ? (
        <>
          <div class="previewed">
            <Codes content={of.content} options={of.options} of="of the notification" />
          </div>
          <p class="actions">
            <button type="button" onClick={() => setOpen(false)}>
              Hide the content
            </button>
          </p>
        </>
      ) : (
        <p class="actions">
          <button type="button" onClick={() => setOpen(true)}>
            Show the content
          </button>
          <span class="mute">It may be about a person, so it is not shown unless asked for.</span>
        </p>
      )}
    </Panel>
  );
}
