/**
 * The session: who is logged in and what for. The key itself is sent once and kept nowhere in the page; the cookie of the session
 * cannot be read by it.
 */
import { asProblem, del, onSessionEnd, onStaleToken, Problem, problemOf, request, setCsrf } from "./api";
import { cell, useCell } from "./cell";
import { address } from "./router";
import type { NoSession, Scope, Session } from "./types";

/**
 * `loading` until the engine has said; `over` once a session that was there is none any more: its pages stay behind the log-in.
 */
export type Login =
  | { is: "loading" }
  | { is: "failed"; problem: Problem }
  | { is: "out" }
  | { is: "over"; session: Session }
  | { is: "in"; session: Session };

export const login = cell<Login>({ is: "loading" });

/** The engine has said that there is no session any more. */
export function sessionOver(): void {
  const before = login.get();
  if (before.is === "in") login.set({ is: "over", session: before.session });
}

onSessionEnd(sessionOver);
onStaleToken(async () => {
  const response = await request("GET", "/v1/session");
  if (response.ok) {
    const session = (await response.json()) as Session | NoSession;
    if (session.tenant !== null) return begin(session);
  } else {
    const problem = await problemOf(response);
    if (problem.status !== 401) throw problem;
  }
  sessionOver();
  throw new Problem(401, { title: "The session has ended", detail: "Nothing was done: log in again.", code: "missing_key" });
});

/** The last session that the page took: what it shows, and what it asks for, goes by the key of this one. */
let last: Session | null = null;

/**
 * Takes a session. One of another key than the last makes the browser load the page anew, at its first address, so that nothing of the
 * former key's stays; its token is not taken, so that what still runs in the page until then can change nothing.
 */
function begin(session: Session): void {
  if (last !== null && (last.name !== session.name || last.tenant !== session.tenant)) {
    history.replaceState({ replaced: login.get().is !== "out" }, "", address("/", { tenant: null }));
    window.location.reload();
    throw new Problem(0, { title: "Another key is logged in now", detail: "Nothing was done with it.", code: "another_key" });
  }
  last = session;
  setCsrf(session.csrf ?? "");
  login.set({ is: "in", session });
}

/** Whether the page was loaded anew because another key was logged in while it was in use; true once. */
export function wasReplaced(): boolean {
  const replaced = (history.state as { replaced?: boolean } | null)?.replaced === true;
  if (replaced) history.replaceState(null, "");
  return replaced;
}

/** Asks whether there is a session. */
export async function findSession(): Promise<void> {
  try {
    const response = await request("GET", "/v1/session");
    if (response.ok) {
      const session = (await response.json()) as Session | NoSession;
      return session.tenant === null ? login.set({ is: "out" }) : begin(session);
    }
    const problem = await problemOf(response);
    login.set(problem.status === 401 ? { is: "out" } : { is: "failed", problem });
  } catch (error) {
    login.set({ is: "failed", problem: asProblem(error) });
  }
}

/** Makes a session of a key; throws a `Problem` where the key is not good. */
export async function logIn(key: string): Promise<void> {
  const response = await request("POST", "/v1/session", { headers: { authorization: `Bearer ${key}` } });
  if (!response.ok) throw await problemOf(response);
  begin((await response.json()) as Session);
}

export async function logOut(): Promise<void> {
  await del("/v1/session").catch((error: unknown) => {
    if (asProblem(error).status !== 401) throw error;
  });
  setCsrf("");
  login.set({ is: "out" });
}

/** What tells one session's view from another's: a further log-in with the same key sees the same. */
export function identity(session: Session): string {
  return JSON.stringify([session.name, session.tenant, session.scopes]);
}

/** Whether all of the scopes are granted. */
export function granted(session: Session, scopes: readonly Scope[]): boolean {
  return scopes.every((scope) => session.scopes.includes(scope));
}

/** The session, in parts of the page that are there only while there is one. */
export function useSession(): Session {
  const state = useCell(login);
  if (state.is === "in" || state.is === "over") return state.session;
  throw new Error("there is no session");
}

/** Whether the key may do what takes these scopes. What it may not do is not shown. */
export function useGranted(...scopes: Scope[]): boolean {
  return granted(useSession(), scopes);
}
