/** The first page: what is wrong now and what helps, and below it how much comes in, goes out and waits. */
import { get, problemOf, request } from "../core/api";
import { useCell } from "../core/cell";
import { useNow } from "../core/clock";
import { findings, underWay } from "../core/findings";
import { bytes, count, duration, latency, plural, rate } from "../core/format";
import { laneState } from "../core/lanes";
import { live, ratePerSecond, type Sample } from "../core/live";
import { useEvery, useLoad } from "../core/load";
import { address } from "../core/router";
import { laneKey } from "../core/scopes";
import { useTenant, type Tenant } from "../core/tenant";
import type { Account, Channel, Listed, Space, Status, TenantAccount } from "../core/types";
import { Badge } from "../parts/badge";
import { Chart } from "../parts/chart";
import { Findings } from "../parts/findings";
import { Facts, PageHead, Panel } from "../parts/panel";
import { AccountBar } from "../parts/progress";
import { Failed, Waiting } from "../parts/states";
import { Table } from "../parts/table";
import { Age } from "../parts/time";

/** Since when nothing was wrong, as far as this page has looked; it outlasts a visit of another page. */
let fineSince: number | null = null;

export function Overview() {
  const seen = useCell(live);
  const now = useNow();
  const tenant = useTenant();
  const ready = useLoad(readiness, []);
  const channels = useLoad((signal) => get<Listed<Channel>>("/v1/channels", { tenant: tenant.name }, signal), [tenant.name]);
  const tenants = useLoad((signal) => get<Listed<TenantAccount>>("/v1/tenants", { limit: tenantsMax }, signal), []);
  const account = useLoad(async (signal) => (tenant.picked ? await get<TenantAccount>("/v1/account", { tenant: tenant.name }, signal) : null), [tenant.picked, tenant.name]);
  useEvery(5000, () => {
    ready.refresh();
    if (tenant.picked) account.refresh();
  });
  useEvery(30_000, () => {
    channels.refresh();
    tenants.refresh();
  });

  const found = findings({ live: seen, notReady: ready.data ?? null, channels: channels.data?.items ?? [], now });
  const known = seen.at !== null && (ready.data !== null || !ready.loading);
  if (found.length > 0) fineSince = null;
  else if (known) fineSince ??= now;

  const totals = tenant.picked ? account.data : (seen.samples.at(-1)?.totals ?? null);
  const listed = tenants.data?.items ?? [];
  // Numbers of several tenants lead nowhere: a list is of one.
  const linked = tenant.picked || listed.length < 2 ? (tenant.picked ? tenant.name : (listed[0]?.tenant ?? tenant.name)) : undefined;
  return (
    <>
      <PageHead title="Overview" note={seen.status === null ? undefined : <Version status={seen.status} narrowed={tenant.picked} />} />
      <Findings found={found} fineSince={fineSince} known={known} />
      {seen.status !== null && <Readings status={seen.status} samples={seen.samples} now={now} />}
      <Panel title="Rate" aside="a second, all tenants">
        <Rates samples={seen.samples} />
      </Panel>
      <div class="columns wide">
        <Panel title="Account" aside={tenant.picked ? `of the tenant ${tenant.name}` : "all tenants, since ever"}>
          {account.problem !== null && <Failed problem={account.problem} again={account.again} />}
          {totals === null ? <Waiting /> : <Totals totals={totals} tenant={linked} />}
        </Panel>
        {seen.status !== null && <TopLanes status={seen.status} now={now} tenant={tenant} />}
      </div>
      {tenants.data !== null && tenants.data.items.length > 1 && <Tenants listed={tenants.data} />}
      {seen.status?.space != null && <SpacePanel space={seen.status.space} />}
    </>
  );
}

/** Asks whether the process takes work: null where it does, else its words. */
async function readiness(signal: AbortSignal): Promise<string | null> {
  const response = await request("GET", "/readyz", { signal });
  if (response.ok) return null;
  const problem = await problemOf(response);
  return problem.status === 503 ? problem.detail : null;
}

/** `narrowed` is whether one tenant is picked, by which only a part of the page goes. */
function Version({ status, narrowed }: { status: Status; narrowed: boolean }) {
  return (
    <>
      version {status.version}
      {status.started_at !== null && (
        <>
          , started <Age at={status.started_at} />
          {narrowed && "; what is wrong, the readings and the rate are of all tenants"}
    </>
      )}
    </>
  );
}

function endedOtherwise(totals: Account): number {
  return totals.refused + totals.expired + totals.cancelled + totals.suppressed + totals.in_doubt + totals.dead;
}

function Readings({ status, samples, now }: { status: Status; samples: readonly Sample[]; now: number }) {
  const closed = status.lanes.filter((lane) => laneState(lane, now) === "closed").length;
  const late = status.lag_seconds > 60;
  const readings: [string, string, string?][] = [
    ["Accepted a second", rate(ratePerSecond(samples, 10, (totals) => totals.accepted))],
    ["Delivered a second", rate(ratePerSecond(samples, 10, (totals) => totals.delivered))],
    ["Waiting", count(status.totals.pending)],
    ["Under way", count(underWay(status))],
    ["Oldest due", status.lag_seconds < 1 ? "on time" : `${duration(status.lag_seconds)} late`, late ? "bad" : undefined],
    ["Lanes closed", count(closed), closed > 0 ? "bad" : undefined],
  ] as [string, string, string?][];
  return (
    <dl class="readings">
      {readings.map(([name, value, tone]) => (
        <div key={name} class={tone}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** So many seconds are put together to a point of the chart, so that it is calm. */
const smoothing = 3;

function Rates({ samples }: { samples: readonly Sample[] }) {
  const points = samples.map((sample, index) => ({ sample, before: samples[index - smoothing] })).filter((point): point is { sample: Sample; before: Sample } => point.before !== undefined);
  if (points.length < 2) return <Waiting>The line begins with the next seconds…</Waiting>;
  const rates = (of: (totals: Account) => number) => points.map(({ sample, before }) => Math.max(0, ((of(sample.totals) - of(before.totals)) * 1000) / Math.max(1, sample.at - before.at)));
  return (
    <Chart
      label="Notifications a second"
      times={points.map(({ sample }) => sample.at)}
      series={[
        { name: "accepted", colour: "--accent", dash: [6, 4], values: rates((totals) => totals.accepted) },
        { name: "delivered", colour: "--ok", values: rates((totals) => totals.delivered) },
        { name: "ended otherwise", colour: "--bad", dash: [2, 3], values: rates(endedOtherwise) },
      ]}
    />
  );
}

function Totals({ totals, tenant }: { totals: Account; tenant: string | undefined }) {
  return (
    <>
      <p class="headline">
        <strong>{count(totals.accepted)}</strong> <span class="mute">accepted</span>
      </p>
      <AccountBar account={totals} label="The account" link={tenant === undefined ? undefined : (state) => address("/notifications", { tenant, state })} />
      {tenant === undefined && <p class="mute">Several tenants have notifications: pick one to list its own.</p>}
    </>
  );
}

function TopLanes({ status, now, tenant }: { status: Status; now: number; tenant: Tenant }) {
  const own = tenant.picked ? status.lanes.filter((lane) => lane.tenant === tenant.name) : status.lanes;
  const busiest = [...own].sort((left, right) => right.claimed - left.claimed || (left.next_due_at ?? "z").localeCompare(right.next_due_at ?? "z")).slice(0, 8);
  return (
    <Panel title="Busiest lanes" aside={<a href={address("/lanes")}>All {plural(own.length, "lane")}</a>}>
      <Table
        caption="Busiest lanes"
        rows={busiest}
        rowKey={laneKey}
        empty="Nothing waits and nothing is under way."
        columns={[
          { key: "lane", head: "Lane", cell: (lane) => <a href={address("/lanes", { lane: laneKey(lane) })}>{lane.channel} · {lane.destination}</a> },
          { key: "state", head: "State", cell: (lane) => laneState(lane, now) },
          { key: "claimed", head: "Under way", number: true, cell: (lane) => count(lane.claimed) },
          { key: "latency", head: "Latency", number: true, cell: (lane) => latency(lane.latency_ms) },
          { key: "due", head: "Next due", cell: (lane) => <Age at={lane.next_due_at} /> },
        ]}
      />
    </Panel>
  );
}

const tenantsMax = 20;

function Tenants({ listed }: { listed: Listed<TenantAccount> }) {
  return (
    <Panel title="Tenants" aside={listed.next === null ? undefined : `the first ${tenantsMax} by name`}>
      <Table
        caption="Tenants"
        rows={listed.items}
        rowKey={(one) => one.tenant}
        columns={[
          { key: "tenant", head: "Tenant", sort: (one) => one.tenant, cell: (one) => <a href={address("/", { tenant: one.tenant })}>{one.tenant}</a> },
          { key: "accepted", head: "Accepted", number: true, sort: (one) => one.accepted, cell: (one) => count(one.accepted) },
          { key: "pending", head: "Pending", number: true, sort: (one) => one.pending, cell: (one) => count(one.pending) },
          { key: "dead", head: "Dead", number: true, sort: (one) => one.dead, cell: (one) => (one.dead > 0 ? <Badge tone="bad">{count(one.dead)}</Badge> : "0") },
          { key: "doubt", head: "In doubt", number: true, sort: (one) => one.in_doubt, cell: (one) => (one.in_doubt > 0 ? <Badge tone="bad">{count(one.in_doubt)}</Badge> : "0") },
        ]}
      />
    </Panel>
  );
}

function SpacePanel({ space }: { space: Space }) {
  return (
    <Panel title="Space" className="across">
      <Facts
        of={[
          ["Used", bytes(space.used_bytes)],
          ["Left", space.left_bytes === null ? "only the database’s server knows" : bytes(space.left_bytes)],
          ["Grows by", space.grows_per_day === null ? "known after an hour" : `${bytes(space.grows_per_day)} a day`],
          ["Full", space.full_in_days === null ? "not foreseen" : `in ${duration(space.full_in_days * 86_400)}`],
        ]}
      />
    </Panel>
  );
}
