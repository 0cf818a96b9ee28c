/** A value that parts of the page share, and are drawn anew for when it changes. */
import { useEffect, useRef, useState } from "preact/hooks";

export interface Cell<Value> {
  get(): Value;
  set(value: Value): void;
  /** Calls `heard` after each change; the answer ends that. */
  subscribe(heard: () => void): () => void;
}

export function cell<Value>(initial: Value): Cell<Value> {
  let current = initial;
  const listeners = new Set<() => void>();
  return {
    get: () => current,
    set(value) {
      if (Object.is(value, current)) return;
      current = value;
      for (const heard of [...listeners]) heard();
    },
    subscribe(heard) {
      listeners.add(heard);
      return () => listeners.delete(heard);
    },
  };
}

/** The value of a cell, in a component that is drawn anew when it changes. */
export function useCell<Value>(of: Cell<Value>): Value {
  const [, redraw] = useState({});
  const value = of.get();
  const drawn = useRef(value);
  drawn.current = value;
  useEffect(() => {
    const look = () => {
      if (!Object.is(drawn.current, of.get())) redraw({});
    };
    // It may have changed between the drawing and this effect, which comes later.
    look();
    return of.subscribe(look);
  }, [of]);
  return value;
}
