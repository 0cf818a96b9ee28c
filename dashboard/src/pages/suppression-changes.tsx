/** What changed on the suppression list, newest first. The feed is read from its start, so it is read when asked for alone. */
import { useEffect, useRef, useState } from "preact/hooks";
import { asProblem, isAborted, problemOf, request, withQuery, type Problem } from "../core/api";
import { count } from "../core/format";
import type { SuppressionEvent } from "../core/records";
import { sessionOver } from "../core/session";
import { Badge } from "../parts/badge";
import { Panel } from "../parts/panel";
import { Failed } from "../parts/states";
import { Table, type Column } from "../parts/table";
import { Instant } from "../parts/time";

/** So many of the newest are kept. */
const keptMax = 100;

interface Read {
  events: readonly SuppressionEvent[];
  read: number;
  position: string;
  reading: boolean;
}

const nothing: Read = { events: [], read: 0, position: "0", reading: false };

export function Changes() {
  const [state, setState] = useState<Read>(nothing);
  const [problem, setProblem] = useState<Problem | null>(null);
  const stop = useRef(new AbortController());
  useEffect(() => () => stop.current.abort(), []);

  const read = async () => {
    stop.current.abort();
    stop.current = new AbortController();
    const { signal } = stop.current;
    setProblem(null);
    try {
      let now = { ...state, reading: true };
      for (;;) {
        setState(now);
        const { events, next } = await readEvents(now.position, signal);
        now = { events: [...events.reverse(), ...now.events].slice(0, keptMax), read: now.read + events.length, position: next, reading: events.length > 0 };
        if (events.length === 0) break;
      }
      setState(now);
    } catch (error) {
      setState((before) => ({ ...before, reading: false }));
      if (!isAborted(error)) setProblem(asProblem(error));
    }
  };

  return (
    <Panel title="Changes of the list" aside={state.read > 0 ? `${count(state.read)} kept in all; the newest ${count(state.events.length)} are shown` : undefined}>
      <p class="actions">
        {state.reading ? (
          <button type="button" onClick={() => stop.current.abort()}>
            Stop
          </button>
        ) : (
          <button type="button" onClick={() => void read()}>
            {state.position === "0" ? "Read the changes" : "Read what is new"}
          </button>
        )}
        <span class="mute" role="status">
          {state.reading ? `Reading from the oldest on: ${count(state.read)} so far…` : state.position !== "0" && state.read === 0 ? "Nothing has changed." : "Of all channels, suppressed and lifted."}
        </span>
      </p>
      {problem !== null && <Failed problem={problem} />}
      {state.events.length > 0 && <Table caption="Changes of the suppression list" columns={columns} rows={state.events} rowKey={({ position }) => position} />}
    </Panel>
  );
}

const columns: Column<SuppressionEvent>[] = [
  { key: "at", head: "When", cell: ({ at }) => <Instant at={at} /> },
  { key: "change", head: "Change", cell: ({ change }) => <Badge tone={change === "lifted" ? "ok" : "warn"}>{change}</Badge> },
  { key: "channel", head: "Channel", cell: ({ channel }) => channel },
  { key: "to", head: "Recipient", cell: ({ to }) => <span class="mono clipped" title={to ?? undefined}>{to ?? "(removed)"}</span> },
  { key: "why", head: "Why", cell: ({ reason, status }) => [status === 0 ? "an operator:" : status, reason].filter(Boolean).join(" ") },
];

/** Some changes behind a position, oldest first, and the position behind them. */
async function readEvents(position: string, signal: AbortSignal): Promise<{ events: SuppressionEvent[]; next: string }> {
  const response = await request("GET", withQuery("/v1/suppressions/events", { position, limit: 10_000 }), { signal, headers: { accept: "application/x-ndjson" } });
  if (response.status === 401) sessionOver();
  if (!response.ok) throw await problemOf(response);
  const lines = (await response.text())
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as SuppressionEvent & { next?: string });
  return { events: lines.filter(({ next }) => next === undefined), next: lines.at(-1)?.next ?? position };
}
