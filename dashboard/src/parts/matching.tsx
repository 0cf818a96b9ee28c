/**
 * Acts on all that match, of any number: first a dry run to the end, so that the count is exact; then the confirmation, with the number
 * to be typed where it is large; then page by page. Counting and acting say how far they are and can be stopped, and what came of it
 * stays until it is closed, unless it came as it was counted.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { asProblem, type Problem } from "../core/api";
import { count } from "../core/format";
import type { Progress } from "./act";
import { announce } from "./announce";
import { Dialog } from "./dialog";
import { Facts, type Fact } from "./panel";
import { Failed } from "./states";

export interface Tally {
  /** How many would be, or were, acted on. */
  total: number;
  /** False where it was stopped before the end. */
  whole: boolean;
  facts: readonly Fact[];
}

export interface AllMatching {
  title: string;
  /** The words of the button, before the number: `Send again`. */
  button: string;
  danger?: boolean;
  /** What the total is of: `would be sent again`. */
  countOf: string;
  /** The same once it is done: `sent again`. */
  doneOf: string;
  facts: readonly Fact[];
  text: ComponentChildren;
  count(progress: Progress): Promise<Tally>;
  /** `total` is that of the count, by which progress is told; 0 where that was stopped. */
  run(progress: Progress, total: number): Promise<Tally>;
}

/** From how many on the number has to be typed. */
const typedFrom = 1000;

type Stage = { is: "counting" } | { is: "counted"; tally: Tally } | { is: "running"; tally: Tally } | { is: "done"; tally: Tally };

export function MatchingDialog({ of, onClose }: { of: AllMatching; onClose: (acted: boolean) => void }) {
  const [stage, setStage] = useState<Stage>({ is: "counting" });
  const [told, setTold] = useState<{ text: string; part: number | null; whole: number | null }>({ text: "", part: null, whole: null });
  const [problem, setProblem] = useState<Problem | null>(null);
  const [typed, setTyped] = useState("");
  const stop = useRef(new AbortController());

  const progress = (): Progress => {
    stop.current = new AbortController();
    setProblem(null);
    setTold({ text: "", part: null, whole: null });
    return { signal: stop.current.signal, told: (text, part, whole) => setTold({ text, part: part ?? null, whole: whole ?? null }) };
  };
  const counting = () => {
    setStage({ is: "counting" });
    of.count(progress()).then(
      (tally) => setStage({ is: "counted", tally }),
      (error: unknown) => setProblem(asProblem(error)),
    );
  };
  useEffect(() => {
    counting();
    return () => stop.current.abort();
  }, []);
  const running = (tally: Tally) => {
    setStage({ is: "running", tally });
    of.run(progress(), tally.whole ? tally.total : 0).then(
      (result) => {
        announce(`${count(result.total)} ${of.doneOf}${result.whole ? "" : ", then stopped"}`);
        // Where it came as it was counted, there is nothing more to read.
        if (tally.whole && result.whole && result.total === tally.total) onClose(true);
        else setStage({ is: "done", tally: result });
      },
      (error: unknown) => setProblem(asProblem(error)),
    );
  };

  const under = problem === null && (stage.is === "counting" || stage.is === "running");
  const word = stage.is === "counted" ? wordOf(stage.tally) : null;
  const close = () => onClose(stage.is === "done" || stage.is === "running");
  return (
    <Dialog title={of.title} onClose={under && stage.is === "running" ? undefined : close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (stage.is === "counted" && (word === null || typed.trim().replaceAll(",", "") === word)) running(stage.tally);
        }}
      >
        {stage.is !== "done" && <div class="text">{of.text}</div>}
        <Facts of={of.facts} />
        {under && (
          <div class="going" role="status">
            {told.whole !== null && <progress value={told.part ?? 0} max={Math.max(1, told.whole)} aria-label="Progress" />}
            <span>{told.text === "" ? (stage.is === "counting" ? "Counting…" : "Asking the engine…") : told.text}</span>
          </div>
        )}
        {stage.is === "counted" && <Result tally={stage.tally} of={of.countOf} />}
        {stage.is === "done" && <Result tally={stage.tally} of={of.doneOf} />}
        {problem !== null && <Failed problem={problem} again={stage.is === "counting" ? counting : undefined} />}
        {problem !== null && stage.is === "running" && <p>What was done until then is done. To go on, begin again: it goes on with what is left.</p>}
        {word !== null && stage.is === "counted" && stage.tally.total > 0 && (
          <label class="word">
            <span>
              Type <code>{word}</code> to go on
            </span>
            <input value={typed} autocomplete="off" spellcheck={false} inputMode={/\d/.test(word) ? "numeric" : "text"} onInput={(event) => setTyped(event.currentTarget.value)} />
          </label>
        )}
        <footer class="actions">
          {stage.is === "counted" && stage.tally.total > 0 && (
            <button type="submit" class={of.danger ? "danger" : "primary"} disabled={word !== null && typed.trim().replaceAll(",", "") !== word}>
              {of.button} {stage.tally.whole ? count(stage.tally.total) : "all"}
            </button>
          )}
          {under ? (
            <button type="button" onClick={() => stop.current.abort()}>
              {stage.is === "counting" ? "Stop counting" : "Stop"}
            </button>
          ) : (
            <button type="button" onClick={close}>
              {stage.is === "counted" && stage.tally.total > 0 ? "Leave them as they are" : "Close"}
            </button>
          )}
        </footer>
      </form>
    </Dialog>
  );
}

/** What has to be typed: the number where it is large, a word where it is not known. */
function wordOf({ total, whole }: Tally): string | null {
  if (!whole) return "all";
  return total > typedFrom ? String(total) : null;
}

function Result({ tally, of }: { tally: Tally; of: string }) {
  return (
    <div class="count" role="status">
      <p>
        {tally.whole ? "" : of.startsWith("would") ? "At least " : "Stopped: "}
        <strong>{count(tally.total)}</strong> {of}.
      </p>
      <Facts of={tally.facts} />
    </div>
  );
}

/** Says how far an act is: `1,200 of 4,000…`; the whole is 0 where it is not known. */
export function tellDone({ told }: Progress, done: number, whole: number): void {
  if (whole === 0) told(`${count(done)} so far…`);
  else told(`${count(done)} of ${count(whole)}…`, done, whole);
}
