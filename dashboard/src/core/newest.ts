/** The newest notifications of a state, read page by page in the background, as far as a bound. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { asProblem, get, isAborted, type Problem } from "./api";
import type { Listed, Notification, State } from "./types";

/** So many are read at most, of each state. */
export const newestMax = 1000;
const pageSize = 250;

export interface Newest {
  items: readonly Notification[];
  /** Whether all that there are were read. */
  whole: boolean;
  reading: boolean;
  problem: Problem | null;
}

const nothing: Newest = { items: [], whole: false, reading: true, problem: null };

/** Reads the states one after the other; what has come is shown while more comes. */
export function useNewest(states: readonly State[], tenant: string): { of: Record<string, Newest>; again: () => void } {
  const [of, setOf] = useState<Record<string, Newest>>({});
  const running = useRef<AbortController | null>(null);
  const start = useCallback(() => {
    running.current?.abort();
    const controller = new AbortController();
    running.current = controller;
    setOf({});
    void readAll(states, tenant, controller.signal, (state, newest) => {
      if (!controller.signal.aborted) setOf((before) => ({ ...before, [state]: newest }));
    });
  }, [states, tenant]);
  useEffect(() => {
    start();
    return () => running.current?.abort();
  }, [start]);
  return { of, again: start };
}

export function newestOf(all: Record<string, Newest>, state: State): Newest {
  return all[state] ?? nothing;
}

async function readAll(states: readonly State[], tenant: string, signal: AbortSignal, took: (state: State, newest: Newest) => void): Promise<void> {
  for (const state of states) {
    let items: Notification[] = [];
    let after: string | null = null;
    try {
      do {
        const page: Listed<Notification> = await get<Listed<Notification>>("/v1/notifications", { state, order: "newest", tenant, after, limit: Math.min(pageSize, newestMax - items.length) }, signal);
        items = [...items, ...page.items];
        after = page.next;
        took(state, { items, whole: after === null, reading: after !== null && items.length < newestMax, problem: null });
      } while (after !== null && items.length < newestMax);
    } catch (error) {
      if (signal.aborted || isAborted(error)) return;
      took(state, { items, whole: false, reading: false, problem: asProblem(error) });
    }
  }
}
