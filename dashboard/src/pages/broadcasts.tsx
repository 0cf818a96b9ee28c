/** Broadcasts, the newest first. */
import { get } from "../core/api";
import { count, words } from "../core/format";
import { useLoad } from "../core/load";
import { address, useLocation } from "../core/router";
import { useTenant } from "../core/tenant";
import type { BroadcastItem, Channel, Listed } from "../core/types";
import { Badge } from "../parts/badge";
import { FilterBar } from "../parts/filters";
import { LabelWords } from "../parts/labels";
import { Pager, usePage } from "../parts/pager";
import { PageHead } from "../parts/panel";
import { Failed, Waiting } from "../parts/states";
import { Table } from "../parts/table";
import { Age, Instant } from "../parts/time";

export function Broadcasts() {
  const tenant = useTenant();
  const { query } = useLocation();
  const channels = useLoad((signal) => get<Listed<Channel>>("/v1/channels", { tenant: tenant.name }, signal), [tenant.name]);
  const names = ["external_id", "tag", "channel", "since", "until"];
  const filters = Object.fromEntries(names.map((name) => [name, query.get(name)]));
  const page = usePage<BroadcastItem>("/v1/broadcasts", { ...filters, tenant: tenant.name, order: "newest" });
  return (
    <>
      <PageHead title="Broadcasts" note={`of the tenant ${tenant.name}`}>
        <button type="button" onClick={page.again}>
          Look again
        </button>
      </PageHead>
      <FilterBar
        filters={[
          { name: "external_id", label: "External id", kind: "search" },
          { name: "tag", label: "Tag", kind: "text" },
          { name: "channel", label: "Channel", kind: "select", options: (channels.data?.items ?? []).map(({ name }) => ({ value: name, label: name })) },
          { name: "since", label: "Accepted from", kind: "time" },
          { name: "until", label: "Accepted before", kind: "time" },
        ]}
      />
      {page.problem !== null && <Failed problem={page.problem} again={page.again} />}
      {page.data === null ? (
        page.problem === null && <Waiting />
      ) : (
        <>
          <Table
            caption="Broadcasts"
            rows={page.data.items}
            rowKey={({ id }) => id}
            empty={page.data.next === null ? "No broadcast matches." : "Nothing on this page matches; more follow."}
            columns={[
              { key: "id", head: "Broadcast", cell: ({ id }) => <a href={address(`/broadcasts/${encodeURIComponent(id)}`)}>{id}</a> },
              { key: "labels", head: "Labels", cell: (item) => <LabelWords of={item} path="/broadcasts" /> },
              { key: "channel", head: "Channel", cell: ({ channel }) => channel },
              { key: "accepted", head: "Notifications", number: true, cell: ({ accepted }) => count(accepted) },
              { key: "priority", head: "Priority", cell: ({ priority }) => priority },
              { key: "guarantee", head: "Guarantee", cell: ({ guarantee }) => words(guarantee) },
              { key: "at", head: "Accepted", cell: ({ accepted_at }) => <Age at={accepted_at} /> },
              { key: "due", head: "Due", cell: ({ due_at }) => <Instant at={due_at} /> },
              { key: "expires", head: "Expires", cell: ({ expires_at }) => <Age at={expires_at} none="never" /> },
              { key: "paused", head: "Paused", cell: ({ paused_since }) => (paused_since === null ? "" : <Badge tone="warn">paused</Badge>) },
            ]}
          />
          <Pager page={page.data} />
        </>
      )}
    </>
  );
}
