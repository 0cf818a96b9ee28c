/** What components read by calls: one answer, asked for anew when asked to, and lists that are gone through page by page. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { asProblem, isAborted, type Problem } from "./api";

export interface Loaded<Answer> {
  /** The last answer, which stays while a further one is waited for or fails. */
  data: Answer | null;
  problem: Problem | null;
  loading: boolean;
  /** Asks anew; a call that is under way is given up. */
  again(): void;
  /** Asks anew unless a call is under way: for what is repeated, so that a slow engine is not asked without end. */
  refresh(): void;
}

/**
 * Calls `load` now, and when one of `inputs` has changed: then the former answer is dropped, and a call that is under way is given up.
 */
export function useLoad<Answer>(load: (signal: AbortSignal) => Promise<Answer>, inputs: readonly unknown[]): Loaded<Answer> {
  const [state, setState] = useState<Omit<Loaded<Answer>, "again" | "refresh">>({ data: null, problem: null, loading: true });
  const latest = useRef(load);
  latest.current = load;
  const running = useRef<AbortController | null>(null);

  const start = useCallback((fresh: boolean) => {
    running.current?.abort();
    const controller = new AbortController();
    running.current = controller;
    setState((before) => ({ data: fresh ? null : before.data, problem: fresh ? null : before.problem, loading: true }));
    latest.current(controller.signal).then(
      (data) => {
        if (!controller.signal.aborted) setState({ data, problem: null, loading: false });
      },
      (error: unknown) => {
        if (controller.signal.aborted || isAborted(error)) return;
        setState((before) => ({ data: before.data, problem: asProblem(error), loading: false }));
      },
    );
  }, []);

  useEffect(() => {
    start(true);
    return () => running.current?.abort();
  }, inputs);

  const under = useRef(false);
  under.current = state.loading;
  const again = useCallback(() => start(false), [start]);
  const refresh = useCallback(() => {
    if (!under.current) start(false);
  }, [start]);
  return { ...state, again, refresh };
}

/** Calls `act` every so many milliseconds while the page is seen; null for not at all. */
export function useEvery(milliseconds: number | null, act: () => void): void {
  const latest = useRef(act);
  latest.current = act;
  useEffect(() => {
    if (milliseconds === null) return;
    const timer = setInterval(() => {
      if (!document.hidden) latest.current();
    }, milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds]);
}
