/**
 * Calls of the API. An answer is JSON; a problem (RFC 9457) is thrown as a `Problem`, and so is an engine that does not answer. Calls
 * go by the cookie of the session, and those that change something name its CSRF token.
 */
import { heardDate } from "./clock";

export type Query = Record<string, string | number | boolean | null | undefined>;

interface Sent {
  query?: Query | undefined;
  body?: unknown;
  headers?: Record<string, string> | undefined;
  signal?: AbortSignal | undefined;
}

export interface ProblemFields {
  title?: string;
  detail?: string;
  code?: string;
  errors?: { pointer: string; message: string; line?: number | null }[];
}

/** Why a call has failed. `status` 0 stands for no answer at all. */
export class Problem extends Error {
  readonly title: string;
  readonly detail: string;
  /** The cause as a word that is never renamed, or `no_answer`, `unknown`. */
  readonly code: string;
  readonly errors: { pointer: string; message: string }[];

  constructor(
    readonly status: number,
    fields: ProblemFields,
    /** Seconds after which to ask again, where the engine says so. */
    readonly retryAfter: number | null = null,
  ) {
    super(fields.detail ?? fields.title ?? "the call failed");
    this.title = fields.title ?? "The call failed";
    this.detail = fields.detail ?? "";
    this.code = fields.code ?? "unknown";
    this.errors = fields.errors ?? [];
  }
}

let csrf = "";
let ended: () => void = () => undefined;
let renew: () => Promise<void> = () => Promise.resolve();

export function setCsrf(token: string): void {
  csrf = token;
}

/** Has `heard` called at each 401 of a call: the session is over. */
export function onSessionEnd(heard: () => void): void {
  ended = heard;
}

/**
 * Has `renewing` called when the CSRF token is not that of the session, as after a log-in in another tab. The call is repeated once that is
 * done. Where it throws, the call ends with that: an act is done with the key that it was asked for with, or not at all.
 */
export function onStaleToken(renewing: () => Promise<void>): void {
  renew = renewing;
}

/** A path with those of the parameters that have a value. */
export function withQuery(path: string, query: Query = {}): string {
  const known = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(known.map(([name, value]): [string, string] => [name, String(value)])).toString();
  return text === "" ? path : `${path}?${text}`;
}

/** Sends a request and answers the response, whatever its status is; throws a `Problem` where there is none. */
export async function request(method: string, path: string, sent: Sent = {}): Promise<Response> {
  const headers: Record<string, string> = { accept: "application/json", ...sent.headers };
  if (method !== "GET") headers["x-belfry-csrf"] = csrf;
  if (sent.body !== undefined) headers["content-type"] = "application/json";
  const init: RequestInit = { method, headers, credentials: "same-origin", cache: "no-store" };
  if (sent.body !== undefined) init.body = JSON.stringify(sent.body);
  if (sent.signal) init.signal = sent.signal;
  let response: Response;
  try {
    response = await fetch(withQuery(path, sent.query), init);
  } catch (error) {
    if (sent.signal?.aborted) throw error;
    throw new Problem(0, { title: "The engine does not answer", detail: "Is it running, and is this machine connected?", code: "no_answer" });
  }
  heardDate(response.headers.get("date"));
  return response;
}

/** The problem that a response tells of; its body may be anything, as a proxy in between may have answered. */
export async function problemOf(response: Response): Promise<Problem> {
  const wait = Number(response.headers.get("retry-after") ?? NaN);
  const text = await response.text().catch(() => "");
  let fields: ProblemFields = { title: `The answer was ${response.status} ${response.statusText}`.trim(), detail: text.slice(0, 500) };
  if (response.headers.get("content-type")?.includes("json")) {
    try {
      fields = JSON.parse(text) as ProblemFields;
    } catch {
      // It stays as the text that came.
    }
  }
  return new Problem(response.status, fields, Number.isNaN(wait) ? null : wait);
}

async function call<Answer>(method: string, path: string, sent: Sent): Promise<Answer> {
  let response = await request(method, path, sent);
  let problem = response.ok ? null : await problemOf(response);
  if (problem?.status === 403 && problem.code === "csrf") {
    // Nothing was done.
    await renew();
    response = await request(method, path, sent);
    problem = response.ok ? null : await problemOf(response);
  }
  if (problem !== null) {
    if (problem.status === 401) ended();
    throw problem;
  }
  if (response.status === 204) return undefined as Answer;
  return (await response.json()) as Answer;
}

export function get<Answer>(path: string, query?: Query, signal?: AbortSignal): Promise<Answer> {
  return call("GET", path, { query, signal });
}

export function post<Answer>(path: string, query?: Query, sent: Omit<Sent, "query"> = {}): Promise<Answer> {
  return call("POST", path, { query, ...sent });
}

export function del<Answer>(path: string, query?: Query, signal?: AbortSignal): Promise<Answer> {
  return call("DELETE", path, { query, signal });
}

/** Whether an error is that of a call that the page itself has given up. */
export function isAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

/** Any error as a problem, to be shown. */
export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  return new Problem(0, { title: "The page failed", detail: error instanceof Error ? error.message : String(error), code: "page" });
}
