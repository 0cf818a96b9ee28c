/**
 * What the page knows as it happens, by one stream for all of it: `GET /v1/status` as server-sent events, for keys with the scope `read`.
 * While the page is hidden there is none. What came is kept as samples, of which rates are made.
 */
import { asProblem, isAborted, Problem, problemOf, request, type ProblemFields } from "./api";
import { cell } from "./cell";
import { now } from "./clock";
import { identity, login, sessionOver } from "./session";
import type { Account, Session, Status, Worker } from "./types";

/** One state of the counts. */
export interface Sample {
  at: number;
  totals: Account;
}

/** A worker that is not among those of the store any more: its lease was over, or it has left in order. */
export interface Departed {
  worker: Worker;
  at: number;
}

export interface Live {
  /** The last status that came; null before the first. */
  status: Status | null;
  samples: readonly Sample[];
  /** Workers that went while the page was looking, the last one first: the store keeps none that is gone. */
  departed: readonly Departed[];
  connected: boolean;
  /** As of when the status is known: the engine tells of changes, so it holds until the next one. Null before the first. */
  at: number | null;
  /** Since when there is no connection, while there is none. */
  lostSince: number | null;
  problem: Problem | null;
}

/** Ten minutes at one a second. */
const samplesMax = 600;
/** Workers that went are told for ten minutes, and these at most. */
const departedMax = 20;
const empty: Live = { status: null, samples: [], departed: [], connected: false, at: null, lostSince: null, problem: null };

export const live = cell<Live>(empty);

/** Forgets all, as for another key: what one may see is not another's. */
function forget(): void {
  live.set(empty);
}

function took(status: Status): void {
  const before = live.get();
  const samples = [...before.samples, { at: now(), totals: status.totals }].slice(-samplesMax);
  live.set({ status, samples, departed: departedNow(before, status), connected: true, at: now(), lostSince: null, problem: null });
}

function departedNow(before: Live, status: Status): readonly Departed[] {
  const there = new Set(status.cluster?.workers.map(({ id }) => id));
  const went = (before.status?.cluster?.workers ?? []).filter(({ id }) => !there.has(id)).map((worker) => ({ worker, at: now() }));
  const last = before.departed.filter(({ at }) => now() - at < samplesMax * 1000);
  return went.length === 0 && last.length === before.departed.length ? before.departed : [...went, ...last].slice(0, departedMax);
}

/** Whether it went without a word: one that is being stopped stands by first. */
export function wentSilently({ worker }: Departed): boolean {
  return !worker.standing_by;
}

function lost(problem: Problem | null): void {
  const before = live.get();
  live.set({ ...before, connected: false, lostSince: before.lostSince ?? now(), problem });
}

/**
 * How long a stream may be silent until it counts as lost: the engine sends a comment every 15 seconds. A connection that breaks
 * without a word ends by this alone.
 */
const silenceMax = 35_000;
let heardAt = 0;

/** Takes a second in which nothing has changed: the engine tells of nothing then. Ends a stream that is silent for too long. */
function tookNothing(stream: AbortController): void {
  if (now() - heardAt > silenceMax) {
    stream.abort();
    return;
  }
  const { connected, status, at, problem } = live.get();
  if (connected && status !== null && problem === null && at !== null && now() - at >= 1500) took(status);
}

/** Reads server-sent events (WHATWG HTML, 9.2.6): of the status, and of why there is none, because the store is away. */
async function readEvents(body: ReadableStream<Uint8Array>): Promise<void> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    heardAt = now();
    const events = (rest + value.replaceAll("\r", "")).split("\n\n");
    rest = events.pop() ?? "";
    for (const event of events) {
      const lines = event.split("\n");
      const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim());
      if (lines.includes("event: status")) {
        took(JSON.parse(data.join("\n")) as Status);
      } else if (lines.includes("event: unavailable")) {
        const problem = new Problem(503, JSON.parse(data.join("\n")) as ProblemFields);
        live.set({ ...live.get(), connected: true, problem });
      }
    }
  }
}

async function follow(signal: AbortSignal): Promise<void> {
  const stream = new AbortController();
  signal.addEventListener("abort", () => stream.abort());
  heardAt = now();
  const response = await request("GET", "/v1/status", { headers: { accept: "text/event-stream" }, signal: stream.signal });
  if (!response.ok || response.body === null) {
    const problem = await problemOf(response);
    if (problem.status === 401) sessionOver();
    throw problem;
  }
  const quiet = setInterval(() => tookNothing(stream), 1000);
  try {
    await readEvents(response.body);
  } finally {
    clearInterval(quiet);
  }
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** Connects, and anew after a loss: at once at first, then after 1, 2, 4, 8 and at last every 15 s, each by up to a half more. */
async function run(signal: AbortSignal): Promise<void> {
  let failures = 0;
  while (!signal.aborted) {
    const began = now();
    try {
      await follow(signal);
      lost(null);
    } catch (error) {
      if (signal.aborted) return;
      // A stream that this page has given up for its silence has no words of its own.
      lost(isAborted(error) ? null : asProblem(error));
    }
    failures = now() - began > 10_000 ? 0 : failures + 1;
    await pause(Math.min(15_000, failures === 0 ? 0 : 500 * 2 ** failures) * (1 + Math.random() / 2), signal);
  }
}

let running: { session: Session; stop: AbortController } | null = null;
let seenBy: string | null = null;

function adjust(): void {
  const state = login.get();
  const seer = state.is === "out" ? null : state.is === "in" ? identity(state.session) : seenBy;
  if (seer !== seenBy) forget();
  seenBy = seer;
  const wanted = state.is === "in" && !document.hidden && state.session.scopes.includes("read") ? state.session : null;
  if (wanted === (running?.session ?? null)) return;
  running?.stop.abort();
  running = null;
  if (wanted === null) return;
  running = { session: wanted, stop: new AbortController() };
  void run(running.stop.signal);
}

/** Keeps the stream open while there is a session and the page is seen. */
export function startLive(): void {
  login.subscribe(adjust);
  document.addEventListener("visibilitychange", adjust);
  adjust();
}

/** Changes per second between two samples that are about `seconds` apart, the later one the last; null while there are too few. */
export function ratePerSecond(samples: readonly Sample[], seconds: number, count: (totals: Account) => number): number | null {
  const last = samples.at(-1);
  if (last === undefined) return null;
  const first = samples.find((sample) => sample.at >= last.at - seconds * 1000);
  if (first === undefined || last.at - first.at < 900) return null;
  return Math.max(0, ((count(last.totals) - count(first.totals)) * 1000) / (last.at - first.at));
}
