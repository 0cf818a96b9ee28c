/** Filters of a list, kept in the address, so that a filtered list can be sent to others and is there after a reload. */
import { useEffect, useRef, useState } from "preact/hooks";
import { setQuery, useLocation } from "../core/router";

export interface Filter {
  /** The name of the parameter. */
  name: string;
  label: string;
  kind: "search" | "text" | "select" | "check" | "time";
  options?: readonly { value: string; label: string }[];
  /** What an empty choice means. */
  any?: string;
  placeholder?: string;
}

/** The first filter of the kind `search` is where `/` goes. A change begins the list anew, from its first page. */
export function FilterBar({ filters, label = "Filters" }: { filters: readonly Filter[]; label?: string }) {
  const { query } = useLocation();
  const set = filters.some(({ name }) => query.has(name));
  return (
    <form class="filters" role="search" aria-label={label} onSubmit={(event) => event.preventDefault()}>
      {filters.map((filter) => (
        <Field key={filter.name} filter={filter} value={query.get(filter.name) ?? ""} />
      ))}
      {set && (
        <button type="button" class="plain" onClick={() => setQuery({ after: null, ...Object.fromEntries(filters.map(({ name }) => [name, null])) })}>
          Clear filters
        </button>
      )}
    </form>
  );
}

function Field({ filter, value }: { filter: Filter; value: string }) {
  const set = (text: string) => setQuery({ [filter.name]: text === "" ? null : text, after: null });
  switch (filter.kind) {
    case "select":
      return (
        <label>
          <span>{filter.label}</span>
          <select value={value} onChange={(event) => set(event.currentTarget.value)}>
            <option value="">{filter.any ?? "any"}</option>
            {filter.options?.map((option) => (
              <option key={option.value} value={option.value}>
                {option.label}
              </option>
            ))}
          </select>
        </label>
      );
    case "check":
      return (
        <label class="check">
          <input type="checkbox" checked={value === "true"} onChange={(event) => set(event.currentTarget.checked ? "true" : "")} />
          <span>{filter.label}</span>
        </label>
      );
    case "time":
      return (
        <label>
          <span>{filter.label}</span>
          <input type="datetime-local" step={1} value={localTime(value)} onChange={(event) => set(utcTime(event.currentTarget.value))} />
        </label>
      );
    default:
      return <TextField filter={filter} value={value} set={set} />;
  }
}

/** Text is taken half a second after the last key, or at once with Enter. */
function TextField({ filter, value, set }: { filter: Filter; value: string; set: (text: string) => void }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  useEffect(() => setText(value), [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const changed = (now: string, wait: number) => {
    setText(now);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => set(now.trim()), wait);
  };
  return (
    <label>
      <span>{filter.label}</span>
      <input
        type="search"
        data-search={filter.kind === "search" ? "" : undefined}
        value={text}
        placeholder={filter.placeholder}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => changed(event.currentTarget.value, 500)}
        onKeyDown={(event) => {
          if (event.key === "Enter") changed(event.currentTarget.value, 0);
        }}
      />
    </label>
  );
}

/** An RFC 3339 instant as a field for local times wants it. */
export function localTime(at: string): string {
  const time = Date.parse(at);
  if (Number.isNaN(time)) return "";
  const offset = new Date(time).getTimezoneOffset() * 60_000;
  return new Date(time - offset).toISOString().slice(0, 19);
}

/** The local time of such a field as an RFC 3339 instant, or nothing. */
export function utcTime(local: string): string {
  const time = Date.parse(local);
  return Number.isNaN(time) ? "" : new Date(time).toISOString();
}
