/** Workers and partitions: which processes share the store, which of them live, and what each has. */
import { useCell } from "../core/cell";
import { useNow } from "../core/clock";
import { outboxRows, underWay } from "../core/findings";
import { age, count, duration, plural, rate } from "../core/format";
import { live, ratePerSecond, wentSilently, type Departed, type Live } from "../core/live";
import type { Cluster, Status, Worker } from "../core/types";
import { Badge, type Tone } from "../parts/badge";
import { Facts, PageHead, Panel } from "../parts/panel";
import { Waiting } from "../parts/states";
import { Table, type Column } from "../parts/table";
import { Age } from "../parts/time";

export function Workers() {
  const seen = useCell(live);
  const { status } = seen;
  return (
    <>
      <PageHead title="Workers" note={status?.cluster == null ? undefined : `${plural(status.cluster.workers.length, "process", "processes")} share the store`} />
      {status === null ? <Waiting /> : status.cluster === null ? <Alone seen={seen} status={status} /> : <Shared cluster={status.cluster} departed={seen.departed} heard={seen.at ?? 0} />}
    </>
  );
}

function Alone({ seen, status }: { seen: Live; status: Status }) {
  return (
    <Panel title="One process">
      <p>This engine has its store within itself: one process does all of it, and there are no partitions to divide. With PostgreSQL several processes share the work.</p>
      <Facts
        of={[
          ["Version", status.version],
          ["Started", <Age at={status.started_at} />],
          ["Under way", plural(underWay(status), "notification")],
          ["Delivered a second", rate(ratePerSecond(seen.samples, 10, (totals) => totals.delivered))],
        ]}
      />
    </Panel>
  );
}

function Shared({ cluster, departed, heard }: { cluster: Cluster; departed: readonly Departed[]; heard: number }) {
  const now = useNow();
  const gone = cluster.workers.filter((worker) => lifeOf(worker, heard, now) === "gone");
  const claimed = cluster.workers.reduce((sum, worker) => sum + worker.partitions, 0);
  return (
    <>
      <Panel title="Partitions" className="across">
        <div class="words" aria-live="polite">
          {gone.map(({ id, name }) => (
            <p key={id}>
              <Badge tone="bad">gone</Badge> {name}: its lease is over. The others take its work over within 10 s.
            </p>
          ))}
          {departed.map((one) => (
            <p key={one.worker.id}>
              <Badge tone={wentSilently(one) ? "bad" : "calm"}>gone</Badge> {one.worker.name} {wentSilently(one) ? "went without a word" : "left in order"} {age(one.at, now)}. The others have its work.
            </p>
          ))}
          {cluster.partitions_free > 0 && (
            <p>
              <Badge tone="bad">free</Badge> No process claims from {plural(cluster.partitions_free, "partition")}: what is in them is late until one does.
            </p>
          )}
        </div>
        <Facts
          of={[
            ["Claimed from", `${count(claimed)} of ${count(claimed + cluster.partitions_free)}`],
            ["Free", cluster.partitions_free === 0 ? "none" : count(cluster.partitions_free)],
            ["Settled a second", rate(cluster.workers.reduce((sum, worker) => sum + worker.settled_per_second, 0))],
            ["Waits in the outbox", cluster.outbox_waiting === 0 ? "nothing" : `${outboxRows(cluster.outbox_waiting)}, the first inserted ${duration(cluster.outbox_oldest_seconds)} ago`],
            ["Put aside by the outbox", cluster.outbox_rejected === 0 ? "nothing" : plural(cluster.outbox_rejected, "row")],
          ]}
        />
      </Panel>
      <Table caption="Workers" columns={columns(heard, now)} rows={cluster.workers} rowKey={({ id }) => String(id)} rowTone={(worker) => (lifeOf(worker, heard, now) === "gone" ? "gone" : undefined)} empty="No process is there." />
    </>
  );
}

type Life = "alive" | "standing by" | "gone";

const tones: Record<Life, Tone> = { alive: "ok", "standing by": "warn", gone: "bad" };

/** For how many seconds a worker's lease goes on, counted down since the status was heard. */
function leaseLeft(worker: Worker, heard: number, now: number): number {
  return worker.alive_for_seconds - Math.max(0, now - heard) / 1000;
}

function lifeOf(worker: Worker, heard: number, now: number): Life {
  if (leaseLeft(worker, heard, now) <= 0) return "gone";
  return worker.standing_by ? "standing by" : "alive";
}

function columns(heard: number, now: number): Column<Worker>[] {
  return [
    { key: "name", head: "Worker", sort: ({ name }) => name, cell: ({ name }) => <span class="mono">{name}</span> },
    { key: "state", head: "State", sort: (worker) => lifeOf(worker, heard, now), cell: (worker) => <Badge tone={tones[lifeOf(worker, heard, now)]}>{lifeOf(worker, heard, now)}</Badge> },
    { key: "role", head: "Role", sort: ({ role }) => role, cell: ({ role }) => role },
    { key: "version", head: "Version", sort: ({ version }) => version, cell: ({ version }) => version },
    { key: "listen", head: "Listens at", sort: ({ listen }) => listen, cell: ({ listen }) => <span class="mono">{listen ?? "–"}</span> },
    { key: "lease", head: "Lease", number: true, sort: (worker) => leaseLeft(worker, heard, now), cell: (worker) => (lifeOf(worker, heard, now) === "gone" ? "over" : duration(leaseLeft(worker, heard, now))), explain: "For how long its work is its own if it says nothing more" },
    { key: "partitions", head: "Partitions", number: true, sort: ({ partitions }) => partitions, cell: ({ partitions }) => count(partitions) },
    { key: "claimed", head: "Claimed", number: true, sort: ({ claimed }) => claimed, cell: ({ claimed }) => count(claimed) },
    { key: "settled", head: "Settled", number: true, sort: ({ settled }) => settled, cell: ({ settled }) => count(settled), explain: "Attempts whose result it has written down since its start" },
    { key: "rate", head: "Settled/s", number: true, sort: (worker) => worker.settled_per_second, cell: (worker) => rate(worker.settled_per_second) },
    { key: "started", head: "Started", sort: (worker) => worker.started_at, cell: (worker) => <Age at={worker.started_at} /> },
  ];
}
