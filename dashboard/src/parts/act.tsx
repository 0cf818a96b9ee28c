/**
 * Acts: everything that changes something goes by this dialog. It says what will happen, to whose notifications and to how many, asks
 * for what it needs, shows how far a long act is and can stop it, and shows what went wrong where it was asked for.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { asProblem, type Problem } from "../core/api";
import { cell, useCell } from "../core/cell";
import { count as counted } from "../core/format";
import { announce } from "./announce";
import { Dialog } from "./dialog";
import { localTime, utcTime } from "./filters";
import { Facts, type Fact } from "./panel";
import { Failed, Waiting } from "./states";

export type Values = Record<string, string>;

export interface Field {
  name: string;
  label: string;
  kind: "check" | "time" | "text";
  /** A tick is `true` or nothing, a time RFC 3339. */
  initial: string;
  hint?: string;
  /** Shown as soon as a tick is set. */
  warning?: string;
}

export interface Counted {
  total: number;
  /** Counting ended early: there may be more. */
  atLeast: boolean;
  facts?: readonly Fact[];
}

export interface Progress {
  signal: AbortSignal;
  /** Says how far it is; with the two numbers, as a bar. */
  told(text: string, part?: number, whole?: number): void;
}

export interface Act {
  title: string;
  /** The words of the button, as a command: `Cancel broadcast`. */
  button: string;
  danger?: boolean;
  /** Whom and what it concerns: tenant, scope and so on. */
  facts: readonly Fact[];
  text: ComponentChildren;
  fields?: readonly Field[];
  /** A dry run, repeated when the fields change. Without anything to do, the button is not to be pressed. */
  count?(values: Values, signal: AbortSignal): Promise<Counted>;
  /** What the count is of: `would be cancelled`. */
  countOf?: string;
  /** A word that has to be typed where the count is `bigFrom` or more, or not known. */
  word?: string;
  /** Does it and answers the words that are announced. When stopped it answers what was done until then. */
  run(values: Values, progress: Progress): Promise<string>;
}

/** From how many notifications on the word has to be typed. */
const bigFrom = 1000;

const current = cell<Act | null>(null);

export function act(asked: Act): void {
  current.set(asked);
}

/** Shows the act that is asked about. Once this is off the page, as after a log-out, that act is forgotten. */
export function ActHost() {
  const asked = useCell(current);
  useEffect(() => () => current.set(null), []);
  return asked === null ? null : <ActDialog key={asked.title} asked={asked} />;
}

interface Going {
  text: string;
  part: number | null;
  whole: number | null;
}

function ActDialog({ asked }: { asked: Act }) {
  const [values, setValues] = useState<Values>(() => Object.fromEntries((asked.fields ?? []).map(({ name, initial }) => [name, initial])));
  const { result, problem: countProblem, counting } = useCount(asked, values);
  const [typed, setTyped] = useState("");
  const [going, setGoing] = useState<Going | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const stop = useRef(new AbortController());

  const close = () => current.set(null);
  const big = asked.word !== undefined && (asked.count === undefined || (result !== null && (result.atLeast || result.total >= bigFrom)));
  const ready = going === null && (asked.count === undefined || (result !== null && !counting && (result.total > 0 || result.atLeast))) && (!big || typed.trim() === asked.word);

  const run = async () => {
    stop.current = new AbortController();
    setProblem(null);
    setGoing({ text: "", part: null, whole: null });
    try {
      const told = (text: string, part?: number, whole?: number) => setGoing({ text, part: part ?? null, whole: whole ?? null });
      announce(await asked.run(values, { signal: stop.current.signal, told }));
      close();
    } catch (error) {
      setProblem(asProblem(error));
      setGoing(null);
    }
  };

  return (
    <Dialog title={asked.title} onClose={going === null ? close : undefined}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (ready) void run();
        }}
      >
        <div class="text">{asked.text}</div>
        <Facts of={asked.facts} />
        {asked.fields?.map((field) => <ActField key={field.name} field={field} value={values[field.name] ?? ""} disabled={going !== null} set={(value) => setValues({ ...values, [field.name]: value })} />)}
        {asked.count !== undefined && <Count of={asked.countOf ?? "are concerned"} result={result} counting={counting} problem={countProblem} />}
        {big && (
          <label class="word">
            <span>
              Type <code>{asked.word}</code> to go on
            </span>
            <input value={typed} autocomplete="off" spellcheck={false} onInput={(event) => setTyped(event.currentTarget.value)} />
          </label>
        )}
        {going !== null && (
          <div class="going" role="status">
            {going.whole === null ? null : <progress value={going.part ?? 0} max={Math.max(1, going.whole)} aria-label="Progress" />}
            <span>{going.text === "" ? "Asking the engine…" : going.text}</span>
          </div>
        )}
        {problem !== null && <Failed problem={problem} />}
        <footer class="actions">
          <button type="submit" class={asked.danger ? "danger" : "primary"} disabled={!ready}>
            {asked.button}
          </button>
          {going === null ? (
            <button type="button" onClick={close}>
              Leave it as it is
            </button>
          ) : (
            <button type="button" onClick={() => stop.current.abort()}>
              Stop
            </button>
          )}
        </footer>
      </form>
    </Dialog>
  );
}

function useCount(asked: Act, values: Values): { result: Counted | null; problem: Problem | null; counting: boolean } {
  const [state, setState] = useState<{ result: Counted | null; problem: Problem | null; counting: boolean }>({ result: null, problem: null, counting: true });
  useEffect(() => {
    if (asked.count === undefined) return;
    const controller = new AbortController();
    setState({ result: null, problem: null, counting: true });
    asked.count(values, controller.signal).then(
      (result) => {
        if (!controller.signal.aborted) setState({ result, problem: null, counting: false });
      },
      (error: unknown) => {
        if (!controller.signal.aborted) setState({ result: null, problem: asProblem(error), counting: false });
      },
    );
    return () => controller.abort();
  }, [asked, JSON.stringify(values)]);
  return state;
}

function Count({ of, result, counting, problem }: { of: string; result: Counted | null; counting: boolean; problem: Problem | null }) {
  if (problem !== null) return <Failed problem={problem} />;
  if (counting || result === null) return <Waiting>Counting…</Waiting>;
  return (
    <div class="count" role="status">
      <p>
        <strong>
          {result.atLeast ? "At least " : ""}
          {counted(result.total)}
        </strong>{" "}
        {of}.
      </p>
      {result.facts !== undefined && <Facts of={result.facts} />}
    </div>
  );
}

function ActField({ field, value, disabled, set }: { field: Field; value: string; disabled: boolean; set: (value: string) => void }) {
  if (field.kind === "check") {
    return (
      <>
        <label class="check">
          <input type="checkbox" checked={value === "true"} disabled={disabled} onChange={(event) => set(event.currentTarget.checked ? "true" : "")} />
          <span>{field.label}</span>
        </label>
        {field.warning !== undefined && value === "true" && (
          <p class="warning" role="alert">
            {field.warning}
          </p>
        )}
      </>
    );
  }
  return (
    <label>
      <span>{field.label}</span>
      {field.kind === "time" ? (
        <input type="datetime-local" step={1} required disabled={disabled} value={localTime(value)} onInput={(event) => set(utcTime(event.currentTarget.value))} />
      ) : (
        <input value={value} disabled={disabled} autocomplete="off" onInput={(event) => set(event.currentTarget.value)} />
      )}
      {field.hint !== undefined && <small class="mute">{field.hint}</small>}
    </label>
  );
}
