/** Sending again, or writing down the end of, all that match: what is meant, the dry run that counts it, and the act. */
import { useState } from "preact/hooks";
import type { Query } from "../core/api";
import { useChannels } from "../core/channels";
import { count, instant, words } from "../core/format";
import { add, throughAll } from "../core/many";
import type { ResolveCount } from "../core/records";
import { useTenant, type Tenant } from "../core/tenant";
import type { RequeueCount, State } from "../core/types";
import type { Progress } from "../parts/act";
import { SelectInput, TextInput, TimeInput } from "../parts/inputs";
import { MatchingDialog, tellDone, type AllMatching, type Tally } from "../parts/matching";
import { Panel, type Fact } from "../parts/panel";

export interface Match {
  state: State;
  channel: string;
  destination: string;
  reason: string;
  broadcast: string;
  since: string;
  until: string;
  /** How it was found out what became of them, where they are in doubt. */
  note: string;
}

export const emptyMatch: Match = { state: "dead", channel: "", destination: "", reason: "", broadcast: "", since: "", until: "", note: "" };

interface Props {
  match: Match;
  set: (match: Match) => void;
  maySend: boolean;
  mayResolve: boolean;
  done: () => void;
}

const states: readonly State[] = ["dead", "refused", "cancelled", "in_doubt"];

export function AllThatMatch({ match, set, maySend, mayResolve, done }: Props) {
  const tenant = useTenant();
  const { names } = useChannels(match.channel);
  const [asking, setAsking] = useState<AllMatching | null>(null);
  const doubt = match.state === "in_doubt";
  // The engine asks for one of these, so that nothing that ended long ago for another reason is sent by mistake.
  const bounded = match.state === "dead" || match.since !== "" || match.broadcast !== "";
  const text = (name: "destination" | "reason" | "broadcast" | "note", label: string, placeholder: string) => (
    <TextInput label={label} value={match[name]} placeholder={placeholder} set={(value) => set({ ...match, [name]: value })} />
  );
  return (
    <>
      <Panel title="All that match" aside={`of the tenant ${tenant.name}`}>
        <form
          class="stack"
          aria-label="All that match"
          onSubmit={(event) => {
            event.preventDefault();
            if (maySend && bounded) setAsking(requeue(match, tenant));
          }}
        >
          <div class="fields">
            <SelectInput label="State" value={match.state} options={states.filter((state) => maySend || state === "in_doubt").map((state) => [state, words(state)])} set={(state) => set({ ...match, state: state as State })} />
            <SelectInput label="Channel" value={match.channel} options={[["", "any"], ...names.map((name) => [name, name] as const)]} set={(channel) => set({ ...match, channel })} />
            {text("destination", "Destination", "example.com")}
            {text("reason", "Reason contains", "a part of the last words")}
            {text("broadcast", "Broadcast", "bc_1")}
            <TimeInput label="Ended since" value={match.since} set={(since) => set({ ...match, since })} />
            <TimeInput label="Ended before" value={match.until} set={(until) => set({ ...match, until })} />
            {mayResolve && doubt && text("note", "Note for resolving", "how it was found out")}
          </div>
          {!bounded && <p class="mute">What is {words(match.state)} takes a time since when it ended, or a broadcast: else what ended long ago, for another reason, would be sent, too.</p>}
          <div class="actions">
            {maySend && (
              <button type="submit" class={doubt ? undefined : "primary"} disabled={!bounded}>
                Count, then send again…
              </button>
            )}
            {mayResolve && doubt && (
              <>
                <button type="button" disabled={!bounded} onClick={() => setAsking(resolve(match, tenant, "delivered"))}>
                  Count, then resolve as delivered…
                </button>
                <button type="button" disabled={!bounded} onClick={() => setAsking(resolve(match, tenant, "dead"))}>
                  Count, then resolve as dead…
                </button>
              </>
            )}
            <button type="button" class="plain" onClick={() => set({ ...emptyMatch, state: maySend ? "dead" : "in_doubt" })}>
              Clear
            </button>
          </div>
        </form>
      </Panel>
      {asking !== null && (
        <MatchingDialog
          of={asking}
          onClose={(acted) => {
            setAsking(null);
            if (acted) done();
          }}
        />
      )}
    </>
  );
}

function factsOf(match: Match, tenant: Tenant): Fact[] {
  const facts: Fact[] = [
    ["Tenant", tenant.name],
    ["State", words(match.state)],
    ["Channel", match.channel === "" ? "any" : match.channel],
  ];
  if (match.destination !== "") facts.push(["Destination", <span class="mono">{match.destination}</span>]);
  if (match.reason !== "") facts.push(["Reason contains", `“${match.reason}”`]);
  if (match.broadcast !== "") facts.push(["Broadcast", match.broadcast]);
  if (match.since !== "") facts.push(["Ended since", instant(match.since)]);
  if (match.until !== "") facts.push(["Ended before", instant(match.until)]);
  return facts;
}

function queryOf({ channel, destination, reason, broadcast, since, until }: Match, tenant: Tenant): Query {
  return { channel, destination: destination.trim(), reason, broadcast: broadcast.trim(), since, until, tenant: tenant.name };
}

/** What stays as it is, and why: the counts of a requeue beside the number itself. */
const kept: readonly [name: string, words: string][] = [
  ["expired", "Expired, so not sent"],
  ["content_removed", "Content kept no longer"],
  ["replaced", "A fallback was sent instead"],
  ["not_yet", "Not to be sent again yet; ask again in some seconds"],
];

function tallied(sum: Record<string, number>, name: string, whole: boolean): Tally {
  const facts: Fact[] = [["Matched", count(sum["matched"] ?? 0)]];
  for (const [key, label] of kept) if ((sum[key] ?? 0) > 0) facts.push([label, count(sum[key] ?? 0)]);
  return { total: sum[name] ?? 0, whole, facts };
}

/** Calls to the end and sums up; `total` is null while it is not known. */
async function through(path: string, query: Query, name: string, progress: Progress, total: number | null): Promise<Tally> {
  const sum: Record<string, number> = {};
  const whole = await throughAll<RequeueCount | ResolveCount>(
    path,
    query,
    (answer) => {
      add(sum, answer);
      const done = sum[name] ?? 0;
      if (total === null) progress.told(`${count(done)} so far, of ${count(sum["matched"] ?? 0)} that match…`);
      else tellDone(progress, done, total);
    },
    progress,
  );
  return tallied(sum, name, whole);
}

function requeue(match: Match, tenant: Tenant): AllMatching {
  const doubt = match.state === "in_doubt";
  const query: Query = { ...queryOf(match, tenant), state: match.state, may_repeat: doubt ? true : null };
  return {
    title: "Send again all that match?",
    button: "Send again",
    danger: doubt,
    countOf: "would be sent again",
    doneOf: "wait to be sent again",
    facts: factsOf(match, tenant),
    text: (
      <>
        <p>They get new attempts, as the same notifications with the same content, as fast as their lanes allow.</p>
        {match.state === "refused" && <p>Recipients on the suppression list end as suppressed: lift them first.</p>}
        {doubt && (
          <p class="warning" role="alert">
            They may have arrived. Sent again, they may arrive twice.
          </p>
        )}
      </>
    ),
    count: (progress) => through("/v1/requeue", { ...query, dry_run: true }, "requeued", progress, null),
    run: (progress, total) => through("/v1/requeue", query, "requeued", progress, total),
  };
}

function resolve(match: Match, tenant: Tenant, as: "delivered" | "dead"): AllMatching {
  const query: Query = { ...queryOf(match, tenant), as, note: match.note };
  return {
    title: `Resolve as ${as} all that match?`,
    button: `Resolve as ${as}:`,
    danger: as === "delivered",
    countOf: `would be written down as ${as}`,
    doneOf: `written down as ${as}`,
    facts: factsOf(match, tenant),
    text: as === "delivered" ? "Writes down that they arrived. Nothing is sent, and it stays so." : "Writes down that they did not arrive. Nothing is sent; they can be sent again afterwards.",
    count: (progress) => through("/v1/resolve", { ...query, dry_run: true }, "resolved", progress, null),
    run: (progress, total) => through("/v1/resolve", query, "resolved", progress, total),
  };
}
