/** Keys of callers: what each is good for and until when; making, rotating and revoking those that the store keeps. */
import { useState } from "preact/hooks";
import { useNow } from "../core/clock";
import { age, count } from "../core/format";
import type { Key, KeyMade } from "../core/records";
import { useSession } from "../core/session";
import { Badge } from "../parts/badge";
import { Dialog } from "../parts/dialog";
import { Copy, Facts, PageHead } from "../parts/panel";
import { Pager, usePage } from "../parts/pager";
import { Failed, Waiting } from "../parts/states";
import { Table, type Column } from "../parts/table";
import { Instant } from "../parts/time";
import { AddKey } from "./key-add";
import { askRevoke, askRotate } from "./key-acts";

/** A key that ends within so many days is marked. */
const nearDays = 14;

export function Keys() {
  const session = useSession();
  const page = usePage<Key>("/v1/keys", {});
  const [adding, setAdding] = useState(false);
  const [made, setMade] = useState<KeyMade | null>(null);
  const now = useNow();
  const shown = (key: KeyMade) => {
    setAdding(false);
    setMade(key);
    page.again();
  };
  return (
    <>
      <PageHead title="Keys" note="of callers, of all tenants; the keys themselves are kept nowhere">
        {!session.open && (
          <button type="button" class="primary" aria-expanded={adding} onClick={() => setAdding(!adding)}>
            Add a key
          </button>
        )}
      </PageHead>
      {session.open && <p class="empty">No key is configured: every program on this machine may do everything, and none can be made here. The first one is put into the configuration: belfry api-key NAME --tenant TENANT prints it.</p>}
      {adding && <AddKey made={shown} close={() => setAdding(false)} />}
      {page.problem !== null && <Failed problem={page.problem} again={page.again} />}
      {page.data === null ? (
        page.problem === null && <Waiting />
      ) : (
        <>
          <Table caption="API keys" columns={columns(now, shown, page.again)} rows={page.data.items} rowKey={({ name }) => name} empty="There are no keys." />
          {page.data.items.length > 0 && <Pager page={page.data} forward="Further" back="Back" first="From the start" />}
          <p class="mute">
            A key of the configuration is changed there: in its table <code>[[server.keys]]</code>, followed by a reload. Those of the store are changed here, and hold in every process that shares it.
          </p>
        </>
      )}
      {made !== null && <MadeKey key={made.key} made={made} close={() => setMade(null)} />}
    </>
  );
}

function columns(now: number, shown: (made: KeyMade) => void, again: () => void): Column<Key>[] {
  return [
    { key: "name", head: "Name", sort: ({ name }) => name, cell: ({ name }) => <strong>{name}</strong> },
    { key: "tenant", head: "Tenant", sort: ({ tenant }) => tenant, cell: ({ tenant }) => tenant },
    {
      key: "scopes",
      head: "Scopes",
      cell: ({ scopes }) => (
        <>
          {scopes.includes("operate") && <Badge tone="warn">operator</Badge>} {scopes.join(", ")}
        </>
      ),
    },
    { key: "bounds", head: "Bounds", cell: (key) => bounds(key).join("; ") || <span class="mute">none</span> },
    { key: "until", head: "Good until", sort: ({ not_after }) => not_after, cell: ({ not_after }) => <Until at={not_after} now={now} /> },
    {
      key: "former",
      head: "Former key",
      cell: ({ former_until }) => (former_until === null ? <span class="mute">–</span> : Date.parse(former_until) < now ? <span class="mute">ended {age(former_until, now)}</span> : <Badge tone="active">good until {<Instant at={former_until} />}</Badge>),
      explain: "The key before the last rotation",
    },
    { key: "made", head: "Made", sort: ({ made_at }) => made_at, cell: ({ made_at }) => <Instant at={made_at} /> },
    { key: "kept", head: "Kept in", sort: ({ kept_in }) => kept_in, cell: ({ kept_in }) => kept_in },
    {
      key: "do",
      head: "Act",
      cell: (key) =>
        key.kept_in === "store" ? (
          <span class="together">
            <button type="button" class="plain" aria-label={`Rotate ${key.name}`} onClick={() => askRotate(key, shown)}>
              Rotate
            </button>
            <button type="button" class="plain" aria-label={`Revoke ${key.name}`} onClick={() => askRevoke(key, again)}>
              Revoke
            </button>
          </span>
        ) : (
          <span class="mute">{key.kept_in === "configuration" ? "in the configuration" : ""}</span>
        ),
    },
  ];
}

function bounds({ channels, priorities, from, endpoints, requests_per_minute }: Key): string[] {
  const said: string[] = [];
  if (channels !== null) said.push(`channels ${channels.join(", ")}`);
  if (priorities !== null) said.push(`priorities ${priorities.join(", ")}`);
  if (from !== null) said.push(`mail from ${from.join(", ")}`);
  if (endpoints !== null) said.push(`webhooks to ${endpoints.join(", ")}`);
  if (requests_per_minute !== null) said.push(`${count(requests_per_minute)} requests a minute`);
  return said;
}

function Until({ at, now }: { at: string | null; now: number }) {
  if (at === null) return <span class="mute">for ever</span>;
  const left = Date.parse(at) - now;
  if (left <= 0) return <Badge tone="bad">ended {age(at, now)}</Badge>;
  if (left < nearDays * 86_400_000) return <Badge tone="warn">ends {age(at, now)}</Badge>;
  return <Instant at={at} />;
}

/** The key itself, for this once. Escape does not close it: it is gone then. */
function MadeKey({ made, close }: { made: KeyMade; close: () => void }) {
  return (
    <Dialog title={`The key ${made.name}`}>
      <div class="secret">
        <p class="warning" role="alert">
          This is the only time that it is shown. Hand it to its caller before you close this: it is kept nowhere. If it is lost, rotate the key.
        </p>
        <div class="row">
          <label>
            <span class="hidden">The key</span>
            <input readOnly value={made.key} spellcheck={false} onFocus={(event) => event.currentTarget.select()} />
          </label>
          <Copy text={made.key} label="it" />
        </div>
        <Facts
          of={[
            ["Tenant", made.tenant],
            made.former_until !== null && ["Former key", <>good until {<Instant at={made.former_until} />}</>],
            ["In force", made.everywhere ? "in every process" : "here; a process was not heard of for 12 s. It takes no stored key until it has read them again, so its callers may get a 503 meanwhile"],
          ]}
        />
        <p class="actions">
          <button type="button" class="primary" onClick={close}>
            Close
          </button>
        </p>
      </div>
    </Dialog>
  );
}
