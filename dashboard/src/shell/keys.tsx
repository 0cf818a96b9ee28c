/** Keys of the keyboard, and the dialog that lists them. They do nothing while something is typed or a dialog is open. */
import { useEffect, useState } from "preact/hooks";
import { navigate } from "../core/router";
import type { Page } from "../pages/page";
import { Dialog } from "../parts/dialog";

const always: [string, string][] = [
  ["/", "Search, or the first filter of a list"],
  ["?", "These keys"],
  ["Escape", "Close a dialog or a panel"],
];

/** `pages` are those that are shown for this key. */
export function KeysHelp({ pages }: { pages: readonly Page[] }) {
  const [open, setOpen] = useState(false);
  useEffect(() => {
    let going = 0;
    const pressed = (event: KeyboardEvent) => {
      const target = event.target instanceof HTMLElement ? event.target : null;
      const typing = target?.closest("input, select, textarea, [contenteditable]") !== null;
      if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") !== null) return;
      const place = performance.now() - going < 1500 ? pages.find(({ letter }) => letter === event.key)?.path : undefined;
      going = event.key === "g" ? performance.now() : 0;
      if (place !== undefined) navigate(place);
      else if (event.key === "?") setOpen(true);
      else if (event.key === "/") document.querySelector<HTMLElement>("[data-search], form.filters input")?.focus();
      else return;
      event.preventDefault();
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, [pages]);
  if (!open) return null;
  const told = [...always, ...pages.flatMap(({ letter, title }): [string, string][] => (letter === undefined ? [] : [[`g ${letter}`, title]]))];
  return (
    <Dialog title="Keys" onClose={() => setOpen(false)}>
      <dl class="keys">
        {told.map(([key, what]) => (
          <div key={key}>
            <dt>
              {key.split(" ").map((one) => (
                <kbd key={one}>{one}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
