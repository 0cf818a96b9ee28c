/**
 * What is wrong now, in words, gravest first: from the status, its last samples, whether the engine is ready, and what is known of
 * channels. Each finding says what it means and leads to the page, or the act, that helps.
 */
import type { Query } from "./api";
import { age, bytes, duration, plural, sentence } from "./format";
import { lateSeconds, laneState, type LaneState } from "./lanes";
import { wentSilently, type Live, type Sample } from "./live";
import { coveredWords, laneKey, readScope } from "./scopes";
import type { Account, Channel, Feed, Lane, Pause, Status } from "./types";

export interface Finding {
  key: string;
  /** From 0, the gravest. Below 10 something fails; from 10 on it should be looked at; from 20 on it should be known. */
  gravity: number;
  title: string;
  text: string;
  links: { label: string; path: string; query?: Query }[];
  /** A pause that can be ended from here. */
  pause?: Pause;
}

export interface Seen {
  live: Live;
  /** Null where the engine is ready, or where that is not known yet; else what it said. */
  notReady: string | null;
  channels: readonly Channel[];
  now: number;
}

/** So many single lanes are named; further ones are counted. */
const namedMax = 5;
const mebibyte = 1024 * 1024;

export function findings(seen: Seen): Finding[] {
  const { live, now } = seen;
  const status = live.status;
  const found: Finding[] = [];
  if (seen.notReady !== null) found.push({ key: "ready", gravity: 0, title: "The engine is not ready", text: `${sentence(seen.notReady)} Callers get a 503 (507 for the disk) until it is back; what was accepted is not lost, and no restart is needed.`, links: [] });
  if (live.lostSince !== null && now - live.lostSince > 5000) found.push(lostConnection(live, now));
  if (live.connected && live.problem !== null) found.push({ key: "store", gravity: 1, title: sentence(live.problem.title).replace(/\.$/, ""), text: `${sentence(live.problem.detail)} What is shown is ${live.at === null ? "nothing so far" : `from ${age(live.at, now)}`}. Where the store is away, nothing is taken in and nothing is sent until it is back.`, links: [] });
  if (status !== null) {
    found.push(...ofSpace(status), ...ofDelay(status, now), ...ofLanes(status, now), ...ofParked(status), ...ofFeeds(status), ...ofSources(status), ...ofCluster(status), ...ofDeparted(live, now));
  }
  found.push(...ofGrowth(live.samples), ...ofPauses(status?.pauses ?? [], now), ...ofCredentials(seen.channels, now));
  return found.sort((left, right) => left.gravity - right.gravity);
}

function lostConnection(live: Live, now: number): Finding {
  const why = live.problem === null ? "" : `${sentence(live.problem.title)} ${sentence(live.problem.detail)} `;
  const shown = live.at === null ? "Nothing is known yet." : `What is shown is from ${age(live.at, now)}.`;
  return { key: "lost", gravity: 1, title: `Nothing was heard for ${duration((now - (live.lostSince ?? now)) / 1000)}`, text: `${why}${shown} The page connects again by itself.`, links: [] };
}

function ofSpace({ space }: Status): Finding[] {
  if (space === null) return [];
  const { left_bytes: left, full_in_days: days } = space;
  const links: Finding["links"] = [];
  if (left !== null && left < 192 * mebibyte) {
    return [{ key: "space", gravity: 0, title: `The disk is full: ${bytes(Math.max(0, left))} left`, text: "New notifications are refused with a 507 when nothing is left; what was accepted is delivered. Free some space, or give shorter lifetimes.", links }];
  }
  if ((left !== null && left < 1024 * mebibyte) || (days !== null && days < 7)) {
    const when = days === null ? "" : ` At its present growth it is full in ${days < 1 ? duration(days * 86_400) : plural(Math.floor(days), "day")}.`;
    return [{ key: "space", gravity: 5, title: `The disk is nearly full${left === null ? "" : `: ${bytes(left)} left`}`, text: `The store has ${bytes(space.used_bytes)}.${when}`, links }];
  }
  return [];
}

const lateBecause: Partial<Record<LaneState, string>> = {
  parked: "a channel that is not configured",
  closed: "a destination that fails",
  silent: "a destination that does not answer",
  late: "more coming in than going out",
};

function ofDelay(status: Status, now: number): Finding[] {
  if (status.lag_seconds <= lateSeconds) return [];
  const late = status.lanes.filter((lane) => !lane.paused && lane.next_due_at !== null && now - Date.parse(lane.next_due_at) > lateSeconds * 1000);
  const reasons = Object.entries(lateBecause).flatMap(([state, words]) => {
    const number = late.filter((lane) => laneState(lane, now) === state).length;
    return number === 0 ? [] : [`${words} (${plural(number, "lane")})`];
  });
  const free = status.cluster?.partitions_free ?? 0;
  if (free > 0) reasons.push(`no process for ${plural(free, "partition")}`);
  const why = reasons.length === 0 ? "No lane that is listed says why: look at what waits." : `Because of ${reasons.join("; ")}.`;
  return [{ key: "lag", gravity: 4, title: `The oldest notification that is due waits for ${duration(status.lag_seconds)}`, text: why, links: [{ label: "Lanes by due time", path: "/lanes", query: { order: "due" } }] }];
}

function laneLink(lane: Lane): Finding["links"][number] {
  return { label: "The lane", path: "/lanes", query: { lane: laneKey(lane) } };
}

function ofLanes(status: Status, now: number): Finding[] {
  const closed = status.lanes.filter((lane) => laneState(lane, now) === "closed");
  const found = closed.slice(0, namedMax).map((lane): Finding => {
    const since = lane.answered_at === null ? "It has not answered since this process started" : `Its last answer was ${age(lane.answered_at, now)}`;
    return {
      key: `closed ${laneKey(lane)}`,
      gravity: 6,
      title: `${lane.channel} to ${lane.destination}: every attempt fails`,
      text: `${since}; the next attempt is made ${age(lane.closed_until ?? now, now)}. The fault is at the destination or on the way there. Nothing is lost.`,
      links: [laneLink(lane), { label: "What is pending", path: "/notifications", query: { tenant: lane.tenant, channel: lane.channel, state: "pending" } }],
    };
  });
  if (closed.length > namedMax) found.push({ key: "closed", gravity: 6, title: `${plural(closed.length - namedMax, "more lane")}: every attempt fails`, text: "", links: [{ label: "Closed lanes", path: "/lanes", query: { closed: true } }] });
  return found;
}

function ofParked(status: Status): Finding[] {
  return status.parked.map((parked) => ({
    key: `parked ${parked.channel}`,
    gravity: 3,
    title: `There is no channel ${parked.channel}: ${parked.at_least ? "at least " : ""}${plural(parked.notifications, "notification")} for it wait`,
    text: `It was taken out of the configuration or has another name now. Put it back under its name and reload, and they are sent; or cancel them. They are in ${plural(parked.lanes, "lane")}.`,
    links: [{ label: "Its lanes", path: "/lanes", query: { channel: parked.channel } }],
  }));
}

/** How much a count grew in the last five minutes, or since the page looks. */
function growth(samples: readonly Sample[], of: keyof Account): { number: number; seconds: number } {
  const last = samples.at(-1);
  const first = last === undefined ? undefined : samples.find(({ at }) => at >= last.at - 300_000);
  if (last === undefined || first === undefined) return { number: 0, seconds: 0 };
  return { number: last.totals[of] - first.totals[of], seconds: (last.at - first.at) / 1000 };
}

function ofGrowth(samples: readonly Sample[]): Finding[] {
  const found: Finding[] = [];
  const add = (state: "dead" | "in_doubt" | "refused", title: string, text: string, gravity: number, path: string) => {
    const { number, seconds } = growth(samples, state);
    if (number > 0) found.push({ key: state, gravity, title: `${plural(number, "notification")} ${title} in the last ${duration(seconds)}`, text, links: [{ label: `Look at what is ${state === "in_doubt" ? "in doubt" : state}`, path, query: { state } }] });
  };
  add("dead", "became dead", "Their attempts are used up, or the process ended each time they were sent. Once the cause is gone they can be sent again.", 7, "/trouble");
  add("in_doubt", "came in doubt", "They may have arrived, and are never sent again by themselves: ask the provider, and write down what became of them.", 7, "/trouble");
  const refused = growth(samples, "refused").number;
  if (refused > 20 && refused * 10 > growth(samples, "delivered").number) add("refused", "were refused", "More than a tenth of what ended: one reason on all of them is a certificate, a topic, a sender or a content of ours. Pause the channel, correct it, and send them again.", 8, "/trouble");
  return found;
}

function ofPauses(pauses: readonly Pause[], now: number): Finding[] {
  return pauses.map((pause) => {
    const covered = readScope(pause.scope);
    return {
      key: `pause ${pause.tenant} ${pause.scope}`,
      gravity: 15,
      title: `Paused: ${covered === null ? pause.scope : coveredWords(covered)}`,
      text: `Of the tenant ${pause.tenant}, since ${age(pause.since, now).replace(/ ago$/, "")}. Nothing of it is sent until it is resumed.`,
      links: covered?.of === "broadcast" ? [{ label: "The broadcast", path: `/broadcasts/${encodeURIComponent(covered.id)}`, query: { tenant: pause.tenant } }] : [],
      pause,
    };
  });
}

function ofFeeds(status: Status): Finding[] {
  const feeds: Feed[] = status.suppression_feed === null ? status.feeds : [...status.feeds, { ...status.suppression_feed, name: "suppressions" }];
  return feeds
    .filter((feed) => feed.waiting_since !== null && feed.lag_seconds > lateSeconds)
    .map((feed) => ({
      key: `feed ${feed.name ?? ""}`,
      gravity: 11,
      title: `The feed ${feed.name ?? ""} is behind by ${duration(feed.lag_seconds)}`,
      text: "Its application does not take events, or not as fast as they come. Nothing is skipped; the log of the engine has what the endpoint answers.",
      links: [],
    }));
}

function ofSources(status: Status): Finding[] {
  return status.sources
    .filter((source) => source.waiting_since !== null)
    .map((source) => ({
      key: `source ${source.name}`,
      gravity: 9,
      title: `The source ${source.name} waits`,
      text: `${sentence(source.waits_for ?? "")} What other systems put into it is late, and waits there. It goes on by itself.`,
      links: [],
    }));
}

function ofCluster({ cluster }: Status): Finding[] {
  if (cluster === null) return [];
  const found: Finding[] = [];
  const links = [{ label: "Workers", path: "/workers" }];
  for (const worker of cluster.workers.filter(({ alive_for_seconds }) => alive_for_seconds <= 0)) {
    found.push({ key: `gone ${worker.id}`, gravity: 2, title: `The worker ${worker.name} is gone`, text: "It was killed, or does not reach the database. Its work becomes free within 10 s, and the others take it over.", links });
  }
  if (cluster.partitions_free > 0) found.push({ key: "free", gravity: 2, title: `No process claims from ${plural(cluster.partitions_free, "partition")}`, text: "What is in them is late until a process takes them: start what is missing.", links });
  if (cluster.outbox_oldest_seconds > lateSeconds) found.push({ key: "outbox waits", gravity: 3, title: `The outbox is behind by ${duration(cluster.outbox_oldest_seconds)}`, text: `${outboxRows(cluster.outbox_waiting)} that applications committed ${cluster.outbox_waiting === 1 ? "is" : "are"} no notifications yet. A process that serves or produces takes them; its log says what keeps it from that.`, links: [{ label: "Workers", path: "/workers" }] });
  const standing = cluster.workers.filter(({ standing_by }) => standing_by).length;
  if (standing > 0) found.push({ key: "standing", gravity: 16, title: `${plural(standing, "worker")} standing by`, text: "Being stopped, or the broker is away: such a process takes no partitions.", links });
  if (cluster.outbox_rejected > 0) found.push({ key: "outbox", gravity: 10, title: `${plural(cluster.outbox_rejected, "row")} of the outbox ${cluster.outbox_rejected === 1 ? "was" : "were"} put aside`, text: "What an application inserted there was not sent; belfry.outbox_rejected has the reasons.", links: [] });
  return found;
}

/** Rows that wait in the outbox: the engine counts them to 10,000. */
export function outboxRows(waiting: number): string {
  return `${waiting >= 10_000 ? "At least " : ""}${plural(waiting, "row")}`;
}

function ofDeparted({ departed }: Live, now: number): Finding[] {
  return departed.filter(wentSilently).map(({ worker, at }) => ({
    key: `departed ${worker.id}`,
    gravity: 10,
    title: `The worker ${worker.name} went without a word`,
    text: `${sentence(`That was ${age(at, now)}`)} The others have its work. Its log, or the system's, says why; start it anew.`,
    links: [{ label: "Workers", path: "/workers" }],
  }));
}

function ofCredentials(channels: readonly Channel[], now: number): Finding[] {
  return channels.flatMap(({ name, credentials = [] }) =>
    credentials.flatMap(({ what, expires_at }): Finding[] => {
      const days = expires_at === null ? Infinity : (Date.parse(expires_at) - now) / 86_400_000;
      if (days > 30) return [];
      const title = days <= 0 ? `The ${what} of ${name} has expired` : `The ${what} of ${name} expires ${age(expires_at ?? now, now)}`;
      return [{ key: `credential ${name} ${what}`, gravity: days <= 0 ? 3 : days < 7 ? 8 : 14, title, text: "Put a new one in its place and reload; no restart is needed.", links: [{ label: "Channels", path: "/channels" }] }];
    }),
  );
}

/** Notifications that a process has claimed, of all lanes. */
export function underWay(status: Status): number {
  return status.lanes.reduce((sum, lane) => sum + lane.claimed, 0);
}

