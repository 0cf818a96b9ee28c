/** What stands where there is nothing to show: nothing yet, nothing at all, or a problem with what to do about it. */
import type { ComponentChildren } from "preact";
import type { Problem } from "../core/api";
import { sentence } from "../core/format";

export function Waiting({ children = "Asking the engine…" }: { children?: ComponentChildren }) {
  return (
    <p class="waiting" role="status">
      {children}
    </p>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

/** A problem in the words of the engine, its fields, and a way to try again. */
export function Failed({ problem, again }: { problem: Problem; again?: (() => void) | undefined }) {
  return (
    <div class="failed" role="alert">
      <p>
        <strong>{sentence(problem.title)}</strong> {sentence(problem.title) === sentence(problem.detail) ? "" : sentence(problem.detail)}
      </p>
      {problem.errors.length > 0 && (
        <ul>
          {problem.errors.map((error) => (
            <li key={error.pointer + error.message}>
              <code>{error.pointer}</code> {error.message}
            </li>
          ))}
        </ul>
      )}
      <p class="actions">
        {again !== undefined && (
          <button type="button" onClick={again}>
            Try again
          </button>
        )}
        {problem.retryAfter !== null && <span class="mute">The engine asks to wait {problem.retryAfter} s.</span>}
        {problem.status > 0 && problem.code !== "unknown" && (
          <a href={`/problems/${problem.code}`} target="_blank" rel="noreferrer">
            What {problem.code} means
          </a>
        )}
      </p>
    </div>
  );
}
