/** Notifications: newest first, found by what is known of them, page by page without an end. */
import { useEffect } from "preact/hooks";
import type { Query } from "../core/api";
import { answerWords, lastOf } from "../core/causes";
import { useChannels } from "../core/channels";
import { now } from "../core/clock";
import { words } from "../core/format";
import { address, navigate, setQuery, useLocation } from "../core/router";
import { useTenant } from "../core/tenant";
import type { Listed, Notification, State } from "../core/types";
import { StateBadge } from "../parts/badge";
import { FilterBar, type Filter } from "../parts/filters";
import { PageHead } from "../parts/panel";
import { Pager, usePage } from "../parts/pager";
import { Failed, Waiting } from "../parts/states";
import { Table, type Column } from "../parts/table";
import { Age, Instant } from "../parts/time";

const states: readonly State[] = ["pending", "claimed", "begun", "delivered", "refused", "suppressed", "expired", "cancelled", "in_doubt", "dead"];

/** The parameters of the call, and what they are called in words. */
const asked: readonly [name: string, words: string][] = [
  ["to", "recipient"],
  ["state", "state"],
  ["channel", "channel"],
  ["since", "accepted since"],
  ["until", "accepted before"],
  ["external_id", "external id"],
  ["tag", "tag"],
  ["key", "idempotency key"],
  ["broadcast", "broadcast"],
  ["reason", "reason"],
];

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

const more: readonly Filter[] = [
  { name: "id", label: "Identifier", kind: "text", placeholder: "01993c5a-2b7a-8a41-…" },
  { name: "external_id", label: "External id", kind: "text" },
  { name: "tag", label: "Tag", kind: "text" },
  { name: "key", label: "Idempotency key", kind: "text" },
  { name: "broadcast", label: "Broadcast", kind: "text", placeholder: "bc_1" },
  { name: "reason", label: "Reason contains", kind: "text", placeholder: "Unregistered" },
];

export function Notifications() {
  const { query } = useLocation();
  const tenant = useTenant();
  const filters: Query = Object.fromEntries(asked.map(([name]) => [name, query.get(name)]));
  const page = usePage<Notification>("/v1/notifications", { ...filters, order: "newest", tenant: tenant.name });
  const { names } = useChannels(query.get("channel"));
  const id = query.get("id");
  useEffect(() => {
    if (id === null || !uuid.test(id)) return;
    // The step back leads to the list, and not here again.
    setQuery({ id: null });
    navigate(`/notifications/${id.toLowerCase()}`);
  }, [id]);
  return (
    <>
      <PageHead title="Notifications" note={`of the tenant ${tenant.name}, newest first`}>
        <button type="button" onClick={page.again} disabled={page.loading}>
          {page.loading ? "Reading…" : "Read again"}
        </button>
      </PageHead>
      <FilterBar
        filters={[
          { name: "to", label: "Recipient", kind: "search", placeholder: "the whole address or token" },
          { name: "state", label: "State", kind: "select", options: states.map((value) => ({ value, label: words(value) })) },
          { name: "channel", label: "Channel", kind: "select", options: names.map((value) => ({ value, label: value })) },
          { name: "since", label: "Accepted since", kind: "time" },
          { name: "until", label: "Accepted before", kind: "time" },
        ]}
      />
      <QuickTimes />
      <details class="more-filters" open={more.some(({ name }) => query.has(name)) || undefined}>
        <summary>Identifier, labels, broadcast, reason</summary>
        <FilterBar label="More filters" filters={more} />
        {id !== null && <p class="mute">An identifier has the form 01993c5a-2b7a-8a41-8000-000000010000; with it the notification is opened.</p>}
      </details>
      {page.problem !== null && <Failed problem={page.problem} again={page.again} />}
      {page.data === null ? page.problem === null && <Waiting>Looking for notifications…</Waiting> : <Found page={page.data} query={query} />}
    </>
  );
}

function QuickTimes() {
  const from = (milliseconds: number) => setQuery({ since: new Date(milliseconds).toISOString().replace(/\.\d+Z$/, "Z"), until: null, after: null });
  const today = () => from(new Date(new Date(now()).setHours(0, 0, 0, 0)).getTime());
  return (
    <p class="actions" role="group" aria-label="Times to choose from">
      <span class="mute">Accepted in the</span>
      <button type="button" class="link" onClick={() => from(now() - 900_000)}>
        last 15 minutes
      </button>
      <button type="button" class="link" onClick={() => from(now() - 3_600_000)}>
        last hour
      </button>
      <button type="button" class="link" onClick={() => from(now() - 86_400_000)}>
        last 24 hours
      </button>
      <button type="button" class="link" onClick={today}>
        today
      </button>
      <button type="button" class="link" onClick={() => setQuery({ since: null, until: null, after: null })}>
        any time
      </button>
    </p>
  );
}

function Found({ page, query }: { page: Listed<Notification>; query: URLSearchParams }) {
  const set = asked.filter(([name]) => query.has(name));
  if (page.items.length === 0) {
    return (
      <div class="nothing" role="status">
        {page.next === null ? (
          <p>
            {set.length === 0 && !query.has("after") ? "This tenant has no notifications." : query.has("after") ? "Nothing follows." : "Nothing matches."}
            {set.length > 0 && " These filters are set; press one to take it away:"}
          </p>
        ) : (
          <p>
            Nothing was found in the part that could be looked at so far: few match, or the index of recipients and labels does not reach there yet. <strong>Older</strong> looks further.
            {set.length > 0 && " These filters are set; press one to take it away:"}
          </p>
        )}
        {set.length > 0 && (
          <ul class="chips">
            {set.map(([name, label]) => (
              <li key={name}>
                <button type="button" aria-label={`Remove the filter ${label} ${query.get(name) ?? ""}`} onClick={() => setQuery({ [name]: null, after: null })}>
                  <span class="mute">{label}</span> <span class="mono">{query.get(name)}</span> <span aria-hidden="true">×</span>
                </button>
              </li>
            ))}
          </ul>
        )}
        {set.some(([name]) => name === "to") && <p class="mute">A recipient is compared byte for byte with what was handed in. Retention and erasure remove recipients; what was sent to them stays without one.</p>}
        {(page.next !== null || query.has("after")) && <Pager page={page} />}
      </div>
    );
  }
  return (
    <>
      <Table caption="Notifications" columns={columns} rows={page.items} rowKey={({ id }) => id} />
      <Pager page={page} />
    </>
  );
}

const columns: Column<Notification>[] = [
  { key: "state", head: "State", cell: ({ state }) => <StateBadge state={state} /> },
  {
    key: "to",
    head: "Recipient",
    cell: ({ id, to }) => (
      <a class="mono clipped" href={address(`/notifications/${id}`)} aria-label={`Open the notification ${id} to ${to ?? "(removed)"}`} title={to ?? undefined}>
        {to ?? "(removed)"}
      </a>
    ),
  },
  { key: "channel", head: "Channel", cell: ({ channel }) => channel },
  { key: "accepted", head: "Accepted", cell: ({ accepted_at }) => <Instant at={accepted_at} /> },
  { key: "attempts", head: "Lines", number: true, cell: ({ attempts }) => attempts.length, explain: "Lines of its log: attempts, and steps without one" },
  { key: "last", head: "Last word", cell: (one) => <LastWord of={one} /> },
  { key: "next", head: "Next attempt", cell: ({ next_attempt_at }) => <Age at={next_attempt_at} /> },
  { key: "labels", head: "Labels", cell: ({ external_id, tags, broadcast }) => <span class="mute">{[broadcast, external_id, ...(tags ?? [])].filter(Boolean).join(" · ")}</span> },
];

function LastWord({ of }: { of: Notification }) {
  const last = lastOf(of);
  if (last === null) return <span class="mute">–</span>;
  return (
    <>
      {answerWords(last.status, last.detail) || <span class="mute">no words</span>} <small>{<Age at={last.at} />}</small>
    </>
  );
}
