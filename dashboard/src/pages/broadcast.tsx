/** One broadcast: how far it is, when it will be done, and what can be done about it. */
import { get } from "../core/api";
import { useNow } from "../core/clock";
import { age, count, duration, instant } from "../core/format";
import { useEvery, useLoad } from "../core/load";
import { address } from "../core/router";
import { useGranted } from "../core/session";
import { useTenant } from "../core/tenant";
import type { Broadcast as One, Estimate } from "../core/types";
import { Badge, type Tone } from "../parts/badge";
import { askMissed, askReschedule, type Meant } from "../parts/broadcast-acts";
import { askCancel } from "../parts/cancelling";
import { LabelWords } from "../parts/labels";
import { Copy, Facts, PageHead, Panel } from "../parts/panel";
import { askPause, askResume } from "../parts/pausing";
import { AccountBar } from "../parts/progress";
import { Failed, Waiting } from "../parts/states";
import { Age, Instant } from "../parts/time";

export function Broadcast({ params }: { params: Record<string, string> }) {
  const id = params["id"] ?? "";
  const tenant = useTenant();
  const one = useLoad((signal) => get<One>(`/v1/broadcasts/${encodeURIComponent(id)}`, { tenant: tenant.name }, signal), [id, tenant.name]);
  const running = one.data !== null && one.data.estimate.state !== "complete";
  useEvery(running ? 1000 : null, one.refresh);
  return (
    <>
      <PageHead title={`Broadcast ${id}`} note={<>of the tenant {tenant.name} · <a href={address("/broadcasts")}>all broadcasts</a></>}>
        {one.data !== null && <Acts one={one.data} meant={{ id, tenant: tenant.name }} again={one.again} />}
      </PageHead>
      {one.problem !== null && <Failed problem={one.problem} again={one.again} />}
      {one.data === null ? one.problem === null && <Waiting /> : <Details one={one.data} tenant={tenant.name} />}
    </>
  );
}

function Details({ one, tenant }: { one: One; tenant: string }) {
  const ended = one.accepted - one.pending;
  return (
    <>
      <Panel title="Progress" aside={one.estimate.state === "complete" ? undefined : "as of now, each second"}>
        <p class="headline">
          <strong>{count(ended)}</strong> <span class="mute">of {count(one.accepted)} have ended</span>
        </p>
        <AccountBar account={one} label="Progress of the broadcast" link={(state) => address("/notifications", { broadcast: one.id, state, tenant })} />
      </Panel>
      <div class="columns">
        <Panel title="When it will be done">
          <EstimateWords of={one.estimate} itself={one.paused_since !== null} />
        </Panel>
        <Panel title="About it">
          <Facts
            of={[
              [
                "Broadcast",
                <>
                  <span class="mono">{one.id}</span> <Copy text={one.id} label="the id" />
                </>,
              ],
              ["Channel", <a href={address("/channels")}>{one.channel}</a>],
              ["Accepted", <Instant at={one.accepted_at} />],
              [
                "Expires",
                one.expires_at === null ? (
                  "never"
                ) : (
                  <>
                    <Instant at={one.expires_at} /> (<Age at={one.expires_at} />)
                  </>
                ),
              ],
              one.paused_since !== null && ["Paused", <Age at={one.paused_since} />],
              (one.external_id != null || (one.tags ?? []).length > 0) && ["Labels", <LabelWords of={one} path="/broadcasts" />],
              one.metadata != null && ["Metadata", <code>{JSON.stringify(one.metadata)}</code>],
            ]}
          />
        </Panel>
      </div>
    </>
  );
}

const tones: Record<Estimate["state"], Tone> = { running: "active", early: "active", stalled: "bad", paused: "warn", scheduled: "calm", complete: "ok" };

/** `itself` is whether a pause of just this broadcast is in force. */
function EstimateWords({ of, itself }: { of: Estimate; itself: boolean }) {
  const now = useNow();
  return (
    <div class="words">
      <p>
        <Badge tone={tones[of.state] ?? "calm"}>{of.state}</Badge>
      </p>
      {sentences(of, now).map((sentence, index) => (
        <p key={index}>{sentence}</p>
      ))}
      {of.state === "paused" && !itself && <p>It is not paused itself: a pause of its channel, of a lane or of all that the tenant has covers it. Overview lists the pauses.</p>}
      {of.state === "stalled" && (
        <p>
          <a href={address("/lanes", { order: "state" })}>What its lanes wait for</a>
        </p>
      )}
    </div>
  );
}

function span(of: Estimate): string {
  const [least, most] = [of.least_seconds, of.most_seconds];
  return least === null || most === null ? "for a time that is not known" : duration(least) === duration(most) ? `about ${duration(most)}` : `${duration(least)} to ${duration(most)}`;
}

function sentences(of: Estimate, now: number): string[] {
  switch (of.state) {
    case "running":
      return [
        of.earliest === null || of.latest === null ? `All of it will have ended in ${span(of)}.` : `All of it will have ended in ${span(of)}: between ${instant(of.earliest)} and ${instant(of.latest)}.`,
        "So it goes in four of five cases, if things go on as they went: retries and the expiry are in it, an outage to come is not.",
      ];
    case "early":
      return ["Nothing, or too little, has ended to tell."];
    case "stalled":
      return [`Nothing has ended since ${of.since === null ? "it began" : age(of.since, now).replace(/ ago$/, "")}, although it was tried or should have been.`];
    case "paused":
      return [`Paused${of.since === null ? "" : ` since ${age(of.since, now).replace(/ ago$/, "")}`}. Once it is resumed it goes on ${of.most_seconds === null ? span(of) : `for ${span(of)}`}.`];
    case "scheduled":
      return [of.earliest === null ? "It has not begun." : `It begins ${age(of.earliest, now)}, at ${instant(of.earliest)}.`];
    case "complete":
      return ["Nothing of it is pending."];
  }
}

function Acts({ one, meant, again }: { one: One; meant: Meant; again(): void }) {
  const mayCancel = useGranted("cancel");
  const maySend = useGranted("send");
  const covered = { of: "broadcast", id: one.id } as const;
  const missed = one.dead + one.cancelled + one.in_doubt;
  return (
    <>
      {mayCancel && one.pending > 0 && (
        <>
          {one.paused_since === null ? (
            <button type="button" onClick={() => askPause(meant.tenant, covered, again)}>
              Pause
            </button>
          ) : (
            <button type="button" class="primary" onClick={() => askResume(meant.tenant, covered, again)}>
              Resume
            </button>
          )}
          <button type="button" onClick={() => askReschedule(meant, again)}>
            Reschedule
          </button>
          <button type="button" class="danger" onClick={() => askCancel(meant.tenant, covered, again)}>
            Cancel
          </button>
        </>
      )}
      {maySend && missed > 0 && (
        <button type="button" onClick={() => askMissed(meant, one, again)}>
          Send what was missed
        </button>
      )}
    </>
  );
}
