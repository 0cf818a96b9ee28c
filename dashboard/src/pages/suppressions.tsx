/** Suppressions: the recipients that are not tried, why and since when; who may be tried again, and what changed. */
import { useState } from "preact/hooks";
import { del, post } from "../core/api";
import { useChannels } from "../core/channels";
import { plural } from "../core/format";
import { useLoad } from "../core/load";
import type { Suppression } from "../core/records";
import { address, setQuery, useLocation } from "../core/router";
import { findSuppression } from "../core/suppressed";
import { act } from "../parts/act";
import { FilterBar } from "../parts/filters";
import { AreaInput, TextInput } from "../parts/inputs";
import { PageHead, Panel } from "../parts/panel";
import { Pager, usePage } from "../parts/pager";
import { Failed, Waiting } from "../parts/states";
import { Table, type Column } from "../parts/table";
import { Instant } from "../parts/time";
import { Changes } from "./suppression-changes";
import { LiftAll } from "./suppression-lift";

export function Suppressions() {
  const { query } = useLocation();
  const asked = query.get("channel");
  const { names, ...channels } = useChannels(asked);
  // A rehearsal has no recipients that are gone: it is not what is looked for first.
  const channel = asked ?? channels.data?.items.find(({ kind }) => kind !== "dry-run")?.name ?? names[0] ?? null;
  const to = query.get("to");
  return (
    <>
      <PageHead title="Suppressions" note="of all tenants: recipients that are not tried, channel by channel" />
      <FilterBar
        filters={[
          { name: "to", label: "Recipient", kind: "search", placeholder: "the whole address or token" },
          { name: "channel", label: "Channel", kind: "select", any: asked === null && channel !== null ? channel : "the first", options: names.map((value) => ({ value, label: value })) },
        ]}
      />
      {channels.problem !== null && <Failed problem={channels.problem} again={channels.again} />}
      {channel === null ? channels.data !== null ? <p class="empty">There is no channel.</p> : channels.problem === null && <Waiting /> : to !== null && to !== "" ? <One key={`${channel} ${to}`} channel={channel} to={to} /> : <All key={channel} channel={channel} />}
      {channel !== null && (
        <div class="columns">
          <Add channel={channel} />
          <LiftAll key={channel} channel={channel} />
        </div>
      )}
      <Changes />
    </>
  );
}

function All({ channel }: { channel: string }) {
  const page = usePage<Suppression>("/v1/suppressions", { channel });
  if (page.data === null) return page.problem === null ? <Waiting /> : <Failed problem={page.problem} again={page.again} />;
  return (
    <>
      {page.problem !== null && <Failed problem={page.problem} again={page.again} />}
      <Table caption={`Suppressed recipients of ${channel}`} columns={columns(page.again)} rows={page.data.items} rowKey={({ to }) => to} empty={`Every recipient of ${channel} is tried: none is on the list.`} />
      {(page.data.items.length > 0 || page.data.next !== null) && <Pager page={page.data} forward="Further" back="Back" first="From the start" />}
    </>
  );
}

/** The row of one recipient, or that there is none. */
function One({ channel, to }: { channel: string; to: string }) {
  const found = useLoad((signal) => findSuppression(channel, to, signal), [channel, to]);
  if (found.problem !== null) return <Failed problem={found.problem} again={found.again} />;
  if (found.loading && found.data === null) return <Waiting>Looking for this recipient…</Waiting>;
  return (
    <>
      {found.data === null ? (
        <div class="nothing" role="status">
          <p>
            <span class="mono">{to}</span> is not on the list of {channel}: it is tried.
          </p>
          <p class="actions">
            <button type="button" onClick={() => setQuery({ to: null })}>
              Show the whole list
            </button>
            <a href={address("/notifications", { to })}>What was sent to it</a>
          </p>
        </div>
      ) : (
        <Table caption={`Suppressed recipients of ${channel}`} columns={columns(found.again)} rows={[found.data]} rowKey={(row) => row.to} />
      )}
    </>
  );
}

function columns(done: () => void): Column<Suppression>[] {
  return [
    { key: "to", head: "Recipient", cell: ({ to }) => <span class="mono clipped" title={to}>{to}</span> },
    { key: "reason", head: "Why", cell: ({ reason }) => reason },
    { key: "by", head: "By", cell: ({ status }) => (status === 0 ? "an operator" : `the provider, ${status}`) },
    { key: "since", head: "Since", cell: ({ since }) => <Instant at={since} /> },
    {
      key: "do",
      head: "Act",
      cell: (row) => (
        <span class="together">
          <button type="button" class="plain" aria-label={`Lift ${row.to}`} onClick={() => askLift(row, done)}>
            Lift
          </button>
          <a href={address("/notifications", { to: row.to })} aria-label={`Notifications to ${row.to}`}>
            Notifications
          </a>
        </span>
      ),
    },
  ];
}

function askLift(row: Suppression, done: () => void): void {
  act({
    title: "Lift this suppression?",
    button: "Lift suppression",
    facts: [
      ["Channel", row.channel],
      ["Recipient", <span class="mono">{row.to}</span>],
      ["Why", row.reason],
      ["By", row.status === 0 ? "an operator" : `the provider, ${row.status}`],
    ],
    text: (
      <>
        <p>What is sent to it from now on, of any tenant, is tried again. What ended meanwhile stays as it is.</p>
        {row.status === 0 && (
          <p class="warning" role="alert">
            An operator has put it there, perhaps because the person asked to be left alone.
          </p>
        )}
      </>
    ),
    async run() {
      await del("/v1/suppressions", { channel: row.channel, to: row.to });
      done();
      return `${row.to} is tried again`;
    },
  });
}

/** Putting recipients on the list by hand. */
function Add({ channel }: { channel: string }) {
  const [text, setText] = useState("");
  const [reason, setReason] = useState("");
  const to = [...new Set(text.split("\n").map((line) => line.trim()))].filter((line) => line !== "");
  const ask = () =>
    act({
      title: "Suppress these recipients?",
      button: `Suppress ${plural(to.length, "recipient")}`,
      danger: true,
      facts: [
        ["Channel", channel],
        ["Recipients", plural(to.length, "recipient")],
        ["First", <span class="mono">{to[0]}</span>],
        ["Why", reason.trim() === "" ? "by an operator" : reason],
      ],
      text: "Nothing is sent to them by this channel any more, of any tenant, until they are lifted: their notifications end as suppressed.",
      async run() {
        const body = { channel, to, reason: reason.trim() === "" ? null : reason.trim() };
        const { suppressed } = await post<{ suppressed: number }>("/v1/suppressions", {}, { body });
        setText("");
        setQuery({ channel, to: to.length === 1 ? (to[0] ?? null) : null, after: null });
        return `${plural(suppressed, "recipient")} on the list of ${channel}`;
      },
    });
  return (
    <Panel title="Suppress recipients" aside={`of ${channel}`}>
      <form
        class="stack"
        aria-label="Suppress recipients"
        onSubmit={(event) => {
          event.preventDefault();
          if (to.length > 0) ask();
        }}
      >
        <AreaInput label="Recipients, one a line, at most 10,000" value={text} set={setText} low />
        <TextInput label="Why" value={reason} set={setReason} placeholder="asked to be left alone" />
        <p class="actions">
          <button type="submit" disabled={to.length === 0}>
            Suppress…
          </button>
        </p>
      </form>
    </Panel>
  );
}
