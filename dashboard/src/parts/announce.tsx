/** Says what has happened: to those who see, in a corner for some seconds, and to those who hear, by a live region. */
import { cell, useCell } from "../core/cell";

interface Said {
  id: number;
  text: string;
  tone: "ok" | "bad";
}

const said = cell<readonly Said[]>([]);
let last = 0;

/** Says the result of an act. What failed stays until it is closed. */
export function announce(text: string, tone: "ok" | "bad" = "ok"): void {
  last += 1;
  const id = last;
  said.set([...said.get(), { id, text, tone }].slice(-4));
  if (tone === "ok") setTimeout(() => close(id), 9000);
}

function close(id: number): void {
  said.set(said.get().filter((one) => one.id !== id));
}

export function Announcements() {
  const all = useCell(said);
  return (
    <div class="announcements" role="log" aria-live="polite" aria-label="Results">
      {all.map(({ id, text, tone }) => (
        <div key={id} class={`said ${tone}`}>
          <span>{text}</span>
          <button type="button" class="plain" aria-label="Close this message" onClick={() => close(id)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}
