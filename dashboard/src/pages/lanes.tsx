/** Lanes: what waits and is under way by destination, what each destination lets through, and which of them fail. */
import { useEffect, useRef } from "preact/hooks";
import { useCell } from "../core/cell";
import { useNow } from "../core/clock";
import { count, latency } from "../core/format";
import { laneState, laneWords, type LaneState } from "../core/lanes";
import { live } from "../core/live";
import { address, addressWith, setQuery, useLocation } from "../core/router";
import { laneKey, laneOf } from "../core/scopes";
import { useGranted } from "../core/session";
import { useTenant } from "../core/tenant";
import type { Lane } from "../core/types";
import { Badge, type Tone } from "../parts/badge";
import { askCancel } from "../parts/cancelling";
import { FilterBar } from "../parts/filters";
import { Copy, Facts, PageHead, Panel } from "../parts/panel";
import { askPause, askResume } from "../parts/pausing";
import { Waiting } from "../parts/states";
import { Table, type Column } from "../parts/table";
import { Age } from "../parts/time";

const tones: Record<LaneState, Tone> = { parked: "bad", closed: "bad", paused: "warn", silent: "warn", late: "warn", working: "active", due: "calm", waiting: "calm" };
const gravity: readonly LaneState[] = ["parked", "closed", "silent", "late", "paused", "working", "due", "waiting"];

/** How many lanes with nothing claimed the status has at most. */
const listedMax = 1000;

export function Lanes() {
  const { status } = useCell(live);
  const { query } = useLocation();
  const tenant = useTenant();
  const now = useNow();
  const all = status?.lanes ?? [];
  const text = (query.get("text") ?? "").toLowerCase();
  const lanes = all.filter(
    (lane) =>
      (!tenant.picked || lane.tenant === tenant.name) &&
      (!query.has("channel") || lane.channel === query.get("channel")) &&
      (text === "" || `${lane.channel} ${lane.destination} ${lane.tenant} ${lane.priority}`.toLowerCase().includes(text)) &&
      (!query.has("closed") || laneState(lane, now) === "closed") &&
      (!query.has("paused") || lane.paused),
  );
  const open = query.get("lane");
  const opened = all.find((lane) => laneKey(lane) === open) ?? null;
  const channels = [...new Set(all.map(({ channel }) => channel))].sort();
  return (
    <>
      <PageHead title="Lanes" note={tenant.picked ? `of the tenant ${tenant.name}` : "of all tenants"} />
      <FilterBar
        filters={[
          { name: "text", label: "Destination, channel or tenant", kind: "search", placeholder: "example.com" },
          { name: "channel", label: "Channel", kind: "select", options: channels.map((value) => ({ value, label: value })) },
          { name: "closed", label: "Closed only", kind: "check" },
          { name: "paused", label: "Paused only", kind: "check" },
        ]}
      />
      {open !== null && (opened === null ? <Gone /> : <LanePanel key={open} lane={opened} />)}
      {status === null ? (
        <Waiting />
      ) : (
        <>
          <Table
            caption="Lanes"
            columns={columns(now)}
            rows={lanes}
            rowKey={laneKey}
            order={query.get("order") ?? "state"}
            onOrder={(order) => setQuery({ order })}
            current={open}
            empty={all.length === 0 ? "Nothing waits and nothing is under way." : "No lane matches these filters."}
          />
          {all.length >= listedMax && <p class="mute">Lanes with something under way are all listed, of the others the first {count(listedMax)} by due time.</p>}
        </>
      )}
    </>
  );
}

function columns(now: number): Column<Lane>[] {
  return [
    {
      key: "state",
      head: "State",
      sort: (lane) => gravity.indexOf(laneState(lane, now)),
      cell: (lane) => <Badge tone={tones[laneState(lane, now)]}>{laneState(lane, now)}</Badge>,
    },
    { key: "channel", head: "Channel", sort: (lane) => lane.channel, cell: (lane) => lane.channel },
    {
      key: "destination",
      head: "Destination",
      sort: (lane) => lane.destination,
      cell: (lane) => (
        <a class="mono" href={addressWith({ lane: laneKey(lane) })} aria-label={`Open the lane ${lane.channel} to ${lane.destination}, ${lane.priority}, ${lane.tenant}`}>
          {lane.destination === "" ? "(one destination)" : lane.destination}
        </a>
      ),
    },
    { key: "priority", head: "Priority", sort: (lane) => lane.priority, cell: (lane) => lane.priority },
    { key: "tenant", head: "Tenant", sort: (lane) => lane.tenant, cell: (lane) => lane.tenant },
    { key: "claimed", head: "Under way", number: true, sort: (lane) => lane.claimed, cell: (lane) => count(lane.claimed), explain: "Claimed by a process: on the wire, or about to be" },
    { key: "limit", head: "Limit", number: true, sort: (lane) => lane.limit, cell: (lane) => (lane.limit === null ? "–" : count(lane.limit)), explain: "Attempts at the destination at a time, of all tenants together, as learned or configured" },
    { key: "latency", head: "Latency", number: true, sort: (lane) => lane.latency_ms, cell: (lane) => latency(lane.latency_ms), explain: "How long answers took on the wire lately, on the mean" },
    { key: "rate", head: "Learned rate", number: true, sort: (lane) => lane.rate_per_minute, cell: (lane) => (lane.rate_per_minute === null ? "–" : `${count(lane.rate_per_minute)}/min`), explain: "Learned from answers that were 429" },
    { key: "answered", head: "Last answer", sort: (lane) => lane.answered_at, cell: (lane) => <Age at={lane.answered_at} /> },
    { key: "closed", head: "Closed until", sort: (lane) => lane.closed_until, cell: (lane) => <Age at={lane.closed_until} />, explain: "While every attempt fails, the next one is not made before" },
    { key: "due", head: "Next due", sort: (lane) => lane.next_due_at, cell: (lane) => <Age at={lane.next_due_at} /> },
  ];
}

function Gone() {
  return (
    <Panel title="Lane" aside={<Close />}>
      <p>Nothing waits or is under way in this lane any more.</p>
    </Panel>
  );
}

function Close() {
  return (
    <button type="button" class="plain" onClick={() => setQuery({ lane: null })}>
      Close
    </button>
  );
}

/** What a lane's state means and what helps. It takes the focus when it is opened, and Escape closes it. */
function LanePanel({ lane }: { lane: Lane }) {
  const now = useNow();
  const mayPause = useGranted("cancel");
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => element.current?.focus(), []);
  return (
    <div
      ref={element}
      tabIndex={-1}
      class="detail"
      onKeyDown={(event) => {
        if (event.key === "Escape") setQuery({ lane: null });
      }}
    >
      <Panel title={`${lane.channel} to ${lane.destination === "" ? "its one destination" : lane.destination}`} aside={<Close />}>
        <div class="columns">
          <div class="words">
            <p>
              <Badge tone={tones[laneState(lane, now)]}>{laneState(lane, now)}</Badge>
            </p>
            {laneWords(lane, now).map((sentence, index) => (
              <p key={index}>{sentence}</p>
            ))}
            <div class="actions">
              {mayPause &&
                (lane.paused ? (
                  <button type="button" onClick={() => askResume(lane.tenant, laneOf(lane))}>
                    Resume this lane
                  </button>
                ) : (
                  <button type="button" onClick={() => askPause(lane.tenant, laneOf(lane))}>
                    Pause this lane
                  </button>
                ))}
              {mayPause && (
                <button type="button" class="danger" onClick={() => askCancel(lane.tenant, laneOf(lane))}>
                  Cancel what waits
                </button>
              )}
              <a href={address("/notifications", { tenant: lane.tenant, channel: lane.channel, state: "pending" })}>Its channel’s pending notifications</a>
            </div>
          </div>
          <Facts
            of={[
              [
                "Destination",
                <>
                  <span class="mono">{lane.destination}</span> <Copy text={lane.destination} label="the destination" />
                </>,
              ],
              ["Priority", lane.priority],
              ["Tenant", lane.tenant],
              ["Under way", `${count(lane.claimed)}${lane.limit === null ? "" : `; at most ${count(lane.limit)} attempts at a time`}`],
              ["Latency", latency(lane.latency_ms)],
              ["Learned rate", lane.rate_per_minute === null ? "none was needed" : `${count(lane.rate_per_minute)} a minute, from answers that were 429`],
              ["Last answer", <Age at={lane.answered_at} none="none since the start" />],
              ["Closed until", <Age at={lane.closed_until} none="not closed" />],
              ["Next due", <Age at={lane.next_due_at} none="nothing" />],
            ]}
          />
        </div>
      </Panel>
    </div>
  );
}
