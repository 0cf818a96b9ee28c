/** The frame of a piece of a page, lists of facts, and text to be copied. */
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import { announce } from "./announce";

/** A section with its heading, which names it for those who jump from one to the next. */
export function Panel({ title, aside, children, className = "" }: { title: string; aside?: ComponentChildren; children: ComponentChildren; className?: string }) {
  const id = useId();
  return (
    <section class={`panel ${className}`} aria-labelledby={id}>
      <header>
        <h2 id={id}>{title}</h2>
        {aside !== undefined && <div class="aside">{aside}</div>}
      </header>
      {children}
    </section>
  );
}

export type Fact = readonly [name: string, value: ComponentChildren];

export function Facts({ of }: { of: readonly (Fact | false | null)[] }) {
  return (
    <dl class="facts">
      {of.map(
        (fact) =>
          fact && (
            <div key={fact[0]}>
              <dt>{fact[0]}</dt>
              <dd>{fact[1]}</dd>
            </div>
          ),
      )}
    </dl>
  );
}

/** The heading of a page with what can be done on it. The router moves the focus here when the page changes. */
export function PageHead({ title, children, note }: { title: string; children?: ComponentChildren; note?: ComponentChildren }) {
  return (
    <header class="page-head">
      <div>
        <h1 tabIndex={-1}>{title}</h1>
        {note !== undefined && <p class="note">{note}</p>}
      </div>
      {children !== undefined && <div class="actions">{children}</div>}
    </header>
  );
}

/** A button that copies a text. Browsers allow it on https and on localhost alone; elsewhere it is not there. */
export function Copy({ text, label }: { text: string; label: string }) {
  if (!window.isSecureContext) return null;
  const copy = () => {
    navigator.clipboard.writeText(text).then(
      () => announce(`Copied: ${label}`),
      () => announce("The browser does not allow copying here", "bad"),
    );
  };
  return (
    <button type="button" class="plain copy" aria-label={`Copy ${label}`} title={`Copy ${label}`} onClick={copy}>
      <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
        <path d="M5.500 5.500v-3h8v8h-3m-8-5h8v8h-8z" fill="none" stroke="currentColor" stroke-width="1.300" stroke-linejoin="round" />
      </svg>
    </button>
  );
}
