/** Trouble: what was given up, is in doubt, was refused or has expired, by cause; and sending again all that match. */
import { useMemo, useRef, useState } from "preact/hooks";
import { get } from "../core/api";
import { addCauses, answerWords, commonPart, endedAt, type Cause } from "../core/causes";
import { useCell } from "../core/cell";
import { count, plural, words } from "../core/format";
import { live } from "../core/live";
import { useLoad } from "../core/load";
import { newestOf, useNewest, type Newest } from "../core/newest";
import { address } from "../core/router";
import { useGranted, useSession } from "../core/session";
import { useTenant } from "../core/tenant";
import type { Account, State } from "../core/types";
import { StateBadge } from "../parts/badge";
import { Facts, PageHead, Panel, type Fact } from "../parts/panel";
import { Failed } from "../parts/states";
import { Table, type Column } from "../parts/table";
import { Age } from "../parts/time";
import { isNarrow } from "./notification-acts";
import { AllThatMatch, emptyMatch, type Match } from "./trouble-all";

type Troubled = "dead" | "in_doubt" | "refused" | "expired";
const troubled: readonly Troubled[] = ["dead", "in_doubt", "refused", "expired"];

const meanings: Record<Troubled, string> = {
  dead: "Given up: the attempts were used up, or the process ended each time it was sent. Send them again once the cause is gone.",
  in_doubt: "Sent at most once, and it is not known whether they arrived. Write down what became of them, or send them again where twice is better than not at all.",
  refused: "The provider said that it will not take them. Some are mended by a setting; what says that a recipient is gone is not.",
  expired: "Their time was over before they were delivered. They are not sent any more.",
};

export function Trouble() {
  const tenant = useTenant();
  const { of: all, again } = useNewest(troubled, tenant.name);
  const account = useLoad((signal) => get<Account>("/v1/account", { tenant: tenant.name }, signal), [tenant.name]);
  const session = useSession();
  const maySend = useGranted("send") && !isNarrow(session);
  const mayResolve = useGranted("cancel");
  const [match, setMatch] = useState<Match>({ ...emptyMatch, state: maySend ? "dead" : "in_doubt" });
  const form = useRef<HTMLDivElement>(null);
  const prepare = (wanted: Match) => {
    setMatch(wanted);
    form.current?.scrollIntoView({ block: "start" });
    form.current?.querySelector<HTMLElement>("select")?.focus();
  };
  const refresh = () => {
    again();
    account.again();
  };
  const mayDo = (state: State) => (maySend && state !== "expired") || (mayResolve && state === "in_doubt");
  return (
    <>
      <PageHead title="Trouble" note={`of the tenant ${tenant.name}: what did not arrive, by cause`}>
        <button type="button" onClick={refresh}>
          Read again
        </button>
      </PageHead>
      {troubled.map((state) => (
        <Causes key={state} state={state} newest={newestOf(all, state)} total={account.data?.[state] ?? null} prepare={mayDo(state) ? prepare : null} />
      ))}
      <NotTaken />
      {(maySend || mayResolve) && (
        <div ref={form}>
          <AllThatMatch match={match} set={setMatch} maySend={maySend} mayResolve={mayResolve} done={refresh} />
        </div>
      )}
    </>
  );
}

function Causes({ state, newest, total, prepare }: { state: Troubled; newest: Newest; total: number | null; prepare: ((match: Match) => void) | null }) {
  const causes = useMemo(() => {
    const found = new Map<string, Cause>();
    addCauses(found, newest.items);
    return [...found.values()].sort((left, right) => right.count - left.count);
  }, [newest.items]);
  const read = newest.items.length;
  const aside = newest.reading
    ? `reading… ${count(read)} so far`
    : newest.whole
      ? plural(read, "notification")
      : `of the newest ${count(read)} by acceptance${total === null ? "" : `, of ${count(total)} in all`}`;
  return (
    <Panel title={titles[state]} aside={aside}>
      {newest.problem !== null && <Failed problem={newest.problem} />}
      {read === 0 ? (
        <p class="mute">{newest.reading ? "Reading…" : total !== null && total > 0 ? `None is kept any more of the ${count(total)} that there were.` : "None."}</p>
      ) : (
        <>
          <p class="mute meaning">{meanings[state]}</p>
          <Table caption={`${titles[state]} by cause`} columns={columns(prepare)} rows={causes} rowKey={({ key }) => key} />
        </>
      )}
    </Panel>
  );
}

const titles: Record<Troubled, string> = { dead: "Dead", in_doubt: "In doubt", refused: "Refused", expired: "Expired" };

function columns(prepare: ((match: Match) => void) | null): Column<Cause>[] {
  return [
    {
      key: "cause",
      head: "Cause",
      sort: ({ status, words: said }) => answerWords(status, said),
      cell: (cause) => (
        <span class="wide">
          <StateBadge state={cause.state} /> <strong>{cause.status > 0 && cause.status}</strong> {cause.words || (cause.state === "expired" ? "no attempt was in time" : cause.status === 0 && <span class="mute">without words</span>)}
        </span>
      ),
    },
    { key: "channel", head: "Channel", sort: ({ channel }) => channel, cell: ({ channel }) => channel },
    { key: "destination", head: "Destination", cell: ({ destinations }) => <Destinations of={destinations} /> },
    {
      key: "count",
      head: "How many",
      number: true,
      sort: (cause) => cause.count,
      cell: (cause) => (
        <a href={linkTo(cause)} aria-label={`${count(cause.count)} ${words(cause.state)}, ${cause.channel}: ${answerWords(cause.status, cause.words)}; show in Notifications`}>
          {count(cause.count)}
        </a>
      ),
    },
    { key: "newest", head: "Newest", sort: ({ newest }) => endedAt(newest), cell: ({ newest }) => <Age at={endedAt(newest)} /> },
    { key: "oldest", head: "Oldest", sort: ({ oldest }) => endedAt(oldest), cell: ({ oldest }) => <Age at={endedAt(oldest)} /> },
    {
      key: "example",
      head: "Example",
      cell: ({ newest }) => (
        <a class="mono clipped short" href={address(`/notifications/${newest.id}`)} aria-label={`Example: the notification to ${newest.to ?? "(removed)"}`} title={newest.to ?? undefined}>
          {newest.to ?? "(removed)"}
        </a>
      ),
    },
    ...(prepare === null
      ? []
      : [
          {
            key: "act",
            head: "All of it",
            cell: (cause: Cause) => (
              <button type="button" class="plain" onClick={() => prepare(matchOf(cause))}>
                {cause.state === "in_doubt" ? "Resolve or send again…" : "Send again…"}
                <span class="hidden">
                  {" "}
                  all that are {words(cause.state)}: {answerWords(cause.status, cause.words)}
                </span>
              </button>
            ),
          },
        ]),
  ];
}

/** What finds the cause again. States other than dead take a time: that of the oldest that was read. */
function matchOf(cause: Cause): Match {
  const reason = commonPart(cause.words);
  const since = cause.state === "dead" ? "" : endedAt(cause.oldest);
  return { ...emptyMatch, state: cause.state, channel: cause.channel, reason, since };
}

function linkTo(cause: Cause): string {
  return address("/notifications", { state: cause.state, channel: cause.channel, reason: commonPart(cause.words) });
}

/** The one that has most, and how many others there are: one destination is its fault, all of them are ours. */
function Destinations({ of }: { of: Map<string, number> }) {
  const [first] = [...of].sort(([, left], [, right]) => right - left);
  if (first === undefined) return null;
  const title = [...of].slice(0, 20).map(([name, number]) => `${name}: ${count(number)}`);
  return (
    <span title={title.join("\n")}>
      <span class="plain-mono">{first[0]}</span>
      {of.size > 1 && <span class="mute"> and {plural(of.size - 1, "other")}</span>}
    </span>
  );
}

/** What was handed in by a source or an outbox and put aside. It is no notification, so no list has it. */
function NotTaken() {
  const { status } = useCell(live);
  const sources = status?.sources ?? [];
  const rejected = status?.cluster?.outbox_rejected ?? null;
  if (status === null || (sources.length === 0 && rejected === null)) return null;
  const facts: Fact[] = sources.map(({ name, dead_lettered }) => [`Source ${name}`, `${plural(dead_lettered, "message")} put among its dead letters since this process started`]);
  if (rejected !== null) facts.unshift(["Outbox", rejected === 0 ? "no row was put aside" : `${plural(rejected, "row")} put aside, in the table belfry.outbox_rejected, which has the reason of each`]);
  return (
    <Panel title="Handed in and not taken">
      <Facts of={facts} />
    </Panel>
  );
}
