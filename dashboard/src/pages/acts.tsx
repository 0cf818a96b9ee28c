/** Acts: who has changed what, when, and what came of it. Where operators look after an accident. */
import { count, instant, words } from "../core/format";
import type { Done } from "../core/records";
import { useLocation } from "../core/router";
import { useTenant } from "../core/tenant";
import { Badge } from "../parts/badge";
import { FilterBar } from "../parts/filters";
import { PageHead } from "../parts/panel";
import { Pager, usePage } from "../parts/pager";
import { Failed, Waiting } from "../parts/states";
import { Table, type Column } from "../parts/table";
import { Instant } from "../parts/time";

export function Acts() {
  const { query } = useLocation();
  const tenant = useTenant();
  const page = usePage<Done>("/v1/acts", { key: query.get("key"), since: query.get("since"), until: query.get("until"), tenant: tenant.picked ? tenant.name : null });
  return (
    <>
      <PageHead title="Acts" note={`${tenant.picked ? `that concern the tenant ${tenant.name}` : "of all tenants"}, newest first: who has changed what`}>
        <button type="button" onClick={page.again} disabled={page.loading}>
          Read again
        </button>
      </PageHead>
      <FilterBar
        filters={[
          { name: "key", label: "Name of the key", kind: "search", placeholder: "support" },
          { name: "since", label: "Since", kind: "time" },
          { name: "until", label: "Before", kind: "time" },
        ]}
      />
      {page.problem !== null && <Failed problem={page.problem} again={page.again} />}
      {page.data === null ? (
        page.problem === null && <Waiting />
      ) : (
        <>
          <Table caption="Acts" columns={columns} rows={page.data.items} rowKey={({ id }) => String(id)} empty="Nothing was changed by a call, as far as is kept and matches." />
          {page.data.items.length > 0 && <Pager page={page.data} />}
          <p class="mute">Parameters that could tell of a person are kept as [hidden].</p>
        </>
      )}
    </>
  );
}

const columns: Column<Done>[] = [
  { key: "at", head: "When", cell: ({ at }) => <Instant at={at} /> },
  { key: "key", head: "Key", cell: ({ key, caller, tenant }) => (
      <>
        {key ?? "no key"} {caller !== tenant && <small>of {caller}</small>}
      </>
    ) },
  { key: "tenant", head: "Tenant", cell: ({ tenant }) => tenant },
  { key: "call", head: "Call", cell: ({ call }) => <span class="plain-mono">{call}</span> },
  { key: "asked", head: "Asked", cell: ({ asked, request }) => <span class="mono wide" title={`Request ${request}`}>{asked}</span> },
  { key: "status", head: "Status", cell: (done) => <StatusOf done={done} /> },
  { key: "answer", head: "What came of it", cell: (done) => (done.answer === null ? <span class="mute">–</span> : <span class="wide">{answerOf(done)}</span>) },
];

function StatusOf({ done: { status, ended_at } }: { done: Done }) {
  if (status === null || ended_at === null) {
    return (
      <Badge tone="warn" title="Under way, or its end was never written down: the caller or the process was gone before">
        not known
      </Badge>
    );
  }
  return <Badge tone={status < 400 ? "ok" : "bad"}>{status}</Badge>;
}

/** What every answer of an act has, and tells nothing of it. */
const silent: readonly string[] = ["next", "tenant", "kept_in", "made_at", "name"];

/** The parts of an answer that say something, as `cancelled 1,200 · under way 3`; counts of none are left out where there are others. */
function answerOf({ answer, asked }: Done): string {
  const parts = Object.entries(answer ?? {}).filter(([name, value]) => value !== null && !silent.includes(name));
  const some = parts.filter(([, value]) => value !== 0);
  const text = (some.length > 0 ? some : parts).map(([name, value]) => `${words(name)} ${valueOf(value)}`).join(" · ");
  return asked.includes("dry_run=true") ? `counted only: ${text}` : text;
}

function valueOf(value: unknown): string {
  if (typeof value === "number") return count(value);
  if (typeof value === "string") return /^\d{4}-\d\d-\d\dT/.test(value) ? instant(value) : value;
  return Array.isArray(value) ? value.join(", ") : JSON.stringify(value);
}
