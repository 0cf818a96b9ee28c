/** Lifting all suppressions of a channel that match: the list is read through to count them, and once more to lift them, page by page. */
import { useState } from "preact/hooks";
import { get, post } from "../core/api";
import { count, instant, plural } from "../core/format";
import type { Suppression } from "../core/records";
import type { Listed } from "../core/types";
import type { Progress } from "../parts/act";
import { SelectInput, TextInput, TimeInput } from "../parts/inputs";
import { MatchingDialog, tellDone, type AllMatching, type Tally } from "../parts/matching";
import { Panel, type Fact } from "../parts/panel";

interface Wanted {
  by: "provider" | "operator" | "any";
  reason: string;
  since: string;
  until: string;
}

const by: readonly (readonly [Wanted["by"], string])[] = [
  ["provider", "the provider"],
  ["operator", "an operator"],
  ["any", "anyone"],
];

const provider: Wanted = { by: "provider", reason: "", since: "", until: "" };

function matches({ by, reason, since, until }: Wanted, row: Suppression): boolean {
  const at = Date.parse(row.since);
  return (
    (by === "any" || (by === "operator") === (row.status === 0)) &&
    (reason === "" || `${row.status} ${row.reason}`.includes(reason)) &&
    (since === "" || at >= Date.parse(since)) &&
    (until === "" || at < Date.parse(until))
  );
}

export function LiftAll({ channel }: { channel: string }) {
  const [wanted, setWanted] = useState(provider);
  const [asking, setAsking] = useState<AllMatching | null>(null);
  return (
    <>
      <Panel title="Lift all that match" aside={`of ${channel}`}>
        <form
          class="stack"
          aria-label="Lift all that match"
          onSubmit={(event) => {
            event.preventDefault();
            setAsking(liftAll(channel, wanted));
          }}
        >
          <div class="fields">
            <SelectInput label="Suppressed by" value={wanted.by} options={by} set={(value) => setWanted({ ...wanted, by: value as Wanted["by"] })} />
            <TextInput label="Status or reason contains" value={wanted.reason} placeholder="410 Unregistered" set={(reason) => setWanted({ ...wanted, reason })} />
            <TimeInput label="Suppressed since" value={wanted.since} set={(since) => setWanted({ ...wanted, since })} />
            <TimeInput label="Suppressed before" value={wanted.until} set={(until) => setWanted({ ...wanted, until })} />
          </div>
          <p class="mute">As after an app was put out with a wrong setting, and a provider said of many that they are gone.</p>
          <p class="actions">
            <button type="submit">Count, then lift…</button>
          </p>
        </form>
      </Panel>
      {asking !== null && <MatchingDialog of={asking} onClose={() => setAsking(null)} />}
    </>
  );
}

function liftAll(channel: string, wanted: Wanted): AllMatching {
  const facts: Fact[] = [
    ["Channel", channel],
    ["Suppressed by", wanted.by === "any" ? "anyone" : wanted.by],
  ];
  if (wanted.reason !== "") facts.push(["Status or reason contains", `“${wanted.reason}”`]);
  if (wanted.since !== "") facts.push(["Since", instant(wanted.since)]);
  if (wanted.until !== "") facts.push(["Before", instant(wanted.until)]);
  return {
    title: "Lift all that match?",
    button: "Lift",
    danger: wanted.by !== "provider",
    countOf: "would be lifted",
    doneOf: "lifted",
    facts,
    text: (
      <>
        <p>What is sent to them from now on, of any tenant, is tried again. The provider may say anew that they are gone.</p>
        {wanted.by !== "provider" && (
          <p class="warning" role="alert">
            Operators have put recipients on the list who asked to be left alone. They would be sent to again.
          </p>
        )}
      </>
    ),
    count: (progress) => through(channel, wanted, progress, null),
    run: (progress, total) => through(channel, wanted, progress, total),
  };
}

/** Reads the list through; with a `total`, which the count has found, what matches is lifted on the way. */
async function through(channel: string, wanted: Wanted, progress: Progress, total: number | null): Promise<Tally> {
  let after: string | null = null;
  let looked = 0;
  let done = 0;
  do {
    const page: Listed<Suppression> = await get<Listed<Suppression>>("/v1/suppressions", { channel, after, limit: 1000 });
    looked += page.items.length;
    const to = page.items.filter((row) => matches(wanted, row)).map((row) => row.to);
    if (total === null) done += to.length;
    else if (to.length > 0) done += (await post<{ lifted: number }>("/v1/suppressions/lift", {}, { body: { channel, to } })).lifted;
    if (total === null) progress.told(`${count(done)} match, of ${count(looked)} looked at…`);
    else tellDone(progress, done, total);
    after = page.next;
  } while (after !== null && !progress.signal.aborted);
  return { total: done, whole: after === null, facts: [["Looked at", plural(looked, "recipient")]] };
}
