/** Channels: how each does, what its credentials are good for still, its pause, and a test message. */
import { useCell } from "../core/cell";
import { get } from "../core/api";
import { useNow } from "../core/clock";
import { count, latency, plural } from "../core/format";
import { laneState } from "../core/lanes";
import { live } from "../core/live";
import { useEvery, useLoad } from "../core/load";
import { address, addressWith, setQuery, useLocation } from "../core/router";
import { useGranted } from "../core/session";
import { useTenant } from "../core/tenant";
import type { Channel, Credential, Lane, Listed, Status } from "../core/types";
import { Badge, type Tone } from "../parts/badge";
import { Facts, PageHead, Panel } from "../parts/panel";
import { askPause, askResume } from "../parts/pausing";
import { Failed, Waiting } from "../parts/states";
import { Table, type Column } from "../parts/table";
import { TestMessage } from "../parts/test-message";
import { Age, Instant } from "../parts/time";

export function Channels() {
  const tenant = useTenant();
  const { query } = useLocation();
  const now = useNow();
  const { status } = useCell(live);
  const listed = useLoad((signal) => get<Listed<Channel>>("/v1/channels", { tenant: tenant.name }, signal), [tenant.name]);
  useEvery(10_000, listed.refresh);
  const open = listed.data?.items.find(({ name }) => name === query.get("channel")) ?? null;
  const parked = status?.parked ?? [];
  return (
    <>
      <PageHead title="Channels" note={`pauses are those of the tenant ${tenant.name}`} />
      {listed.problem !== null && <Failed problem={listed.problem} again={listed.again} />}
      {parked.map((one) => (
        <div key={one.channel} class="failed">
          <p>
            <strong>There is no channel {one.channel}.</strong> {one.at_least ? "At least " : ""}
            {plural(one.notifications, "notification")} for it wait, in {plural(one.lanes, "lane")}: put it back under its name and reload, or cancel them.
          </p>
        </div>
      ))}
      {open !== null && <Details key={open.name} channel={open} status={status} again={listed.again} />}
      {listed.data === null ? (
        listed.problem === null && <Waiting />
      ) : (
        <Table caption="Channels" columns={columns(status, now)} rows={listed.data.items} rowKey={({ name }) => name} current={open?.name ?? null} empty="This key is good for no channel that is configured." />
      )}
    </>
  );
}

interface Health {
  tone: Tone;
  word: string;
  why: string;
}

function lanesOf(channel: Channel, status: Status | null): Lane[] {
  return status?.lanes.filter((lane) => lane.channel === channel.name) ?? [];
}

/** How a channel does by its lanes; not known until the first status has come. */
function health(channel: Channel, status: Status | null, now: number): Health {
  if (channel.paused_since !== null) return { tone: "warn", word: "paused", why: "Nothing of it is sent until it is resumed." };
  if (status === null) return { tone: "calm", word: "not known", why: "The engine has not told of its lanes yet." };
  const lanes = lanesOf(channel, status);
  if (lanes.length === 0) return { tone: "calm", word: "idle", why: "Nothing waits and nothing is under way." };
  const states = lanes.map((lane) => laneState(lane, now));
  const closed = states.filter((state) => state === "closed").length;
  const late = states.filter((state) => state === "late" || state === "silent").length;
  if (closed === lanes.length) return { tone: "bad", word: "fails", why: `Every attempt fails in ${lanes.length === 1 ? "its one lane" : `all of its ${lanes.length} lanes`}.` };
  if (closed > 0) return { tone: "warn", word: "fails in part", why: `Every attempt fails in ${closed} of ${plural(lanes.length, "lane")}.` };
  if (late > 0) return { tone: "warn", word: "late", why: `${late} of ${plural(lanes.length, "lane")} get more than they let through.` };
  return { tone: "ok", word: "works", why: `${plural(lanes.length, "lane")}, none of which fails.` };
}

/** The credential that ends first, and how urgent that is. */
function firstEnd(credentials: readonly Credential[] | undefined): Credential | null {
  const ends = (credentials ?? []).filter(({ expires_at }) => expires_at !== null);
  return ends.sort((left, right) => (left.expires_at ?? "").localeCompare(right.expires_at ?? ""))[0] ?? null;
}

function Expiry({ of, now }: { of: Credential; now: number }) {
  if (of.expires_at === null) return <span class="mute">no end</span>;
  const days = (Date.parse(of.expires_at) - now) / 86_400_000;
  const tone: Tone = days < 7 ? "bad" : days < 30 ? "warn" : "ok";
  return (
    <Badge tone={tone}>
      {days <= 0 ? "expired" : ""} <Age at={of.expires_at} />
    </Badge>
  );
}

function columns(status: Status | null, now: number): Column<Channel>[] {
  return [
    {
      key: "name",
      head: "Channel",
      sort: ({ name }) => name,
      cell: ({ name }) => (
        <a href={addressWith({ channel: name })} aria-label={`Open the channel ${name}`}>
          {name}
        </a>
      ),
    },
    { key: "kind", head: "Kind", sort: ({ kind }) => kind, cell: ({ kind }) => kind },
    {
      key: "health",
      head: "Health",
      cell: (channel) => {
        const { tone, word, why } = health(channel, status, now);
        return (
          <Badge tone={tone} title={why}>
            {word}
          </Badge>
        );
      },
    },
    { key: "lanes", head: "Lanes", number: true, cell: (channel) => (status === null ? "–" : count(lanesOf(channel, status).length)) },
    { key: "claimed", head: "Under way", number: true, cell: (channel) => (status === null ? "–" : count(lanesOf(channel, status).reduce((sum, lane) => sum + lane.claimed, 0))) },
    { key: "quota", head: "Quota", number: true, cell: ({ messages_per_minute: quota }) => (quota === null ? "none" : `${count(quota)}/min`), explain: "Attempts in any minute, for each quota of the channel" },
    {
      key: "credentials",
      head: "Credentials end",
      cell: ({ credentials }) => {
        const first = firstEnd(credentials);
        return first === null ? <span class="mute">–</span> : <Expiry of={first} now={now} />;
      },
    },
    { key: "paused", head: "Paused since", cell: ({ paused_since }) => <Age at={paused_since} none="" /> },
  ];
}

function Details({ channel, status, again }: { channel: Channel; status: Status | null; again(): void }) {
  const now = useNow();
  const tenant = useTenant();
  const mayPause = useGranted("cancel");
  const maySend = useGranted("send", "read");
  const covered = { of: "channel", channel: channel.name } as const;
  const { tone, word, why } = health(channel, status, now);
  const lanes = lanesOf(channel, status);
  const answers = lanes.flatMap((lane) => (lane.latency_ms === null ? [] : [lane.latency_ms]));
  return (
    <>
      <Panel
        title={channel.name}
        aside={
          <button type="button" class="plain" onClick={() => setQuery({ channel: null })}>
            Close
          </button>
        }
      >
        <div class="columns">
          <div class="words">
            <p>
              <Badge tone={tone}>{word}</Badge> {why}
            </p>
            <div class="actions">
              {mayPause &&
                (channel.paused_since === null ? (
                  <button type="button" onClick={() => askPause(tenant.name, covered, again)}>
                    Pause this channel
                  </button>
                ) : (
                  <button type="button" class="primary" onClick={() => askResume(tenant.name, covered, again)}>
                    Resume this channel
                  </button>
                ))}
              {status !== null && <a href={address("/lanes", { channel: channel.name })}>Its lanes</a>}
              <a href={address("/notifications", { channel: channel.name })}>Its notifications</a>
            </div>
          </div>
          <Facts
            of={[
              ["Kind", channel.kind],
              ["Quota", channel.messages_per_minute === null ? "none" : `${count(channel.messages_per_minute)} attempts in any minute`],
              ["Paused since", <Instant at={channel.paused_since} none="not paused" />],
              answers.length > 0 && ["Latency", answers.length === 1 ? latency(answers[0] ?? null) : `${latency(Math.min(...answers))} to ${latency(Math.max(...answers))}`],
              ...(channel.credentials ?? []).map(
                (one) =>
                  [
                    one.what,
                    one.expires_at === null ? (
                      "no end"
                    ) : (
                      <>
                        <Expiry of={one} now={now} /> (<Instant at={one.expires_at} />)
                      </>
                    ),
                  ] as const,
              ),
            ]}
          />
        </div>
      </Panel>
      {maySend && <TestMessage channel={channel} />}
    </>
  );
}
