/** Inputs of forms, each with its label. Filters of lists, which are kept in the address, are in filters.tsx. */
import { localTime, utcTime } from "./filters";

interface Props {
  label: string;
  value: string;
  set: (value: string) => void;
}

interface TextProps extends Props {
  placeholder?: string;
  required?: boolean;
  /** A regular expression that the whole has to match. */
  pattern?: string;
}

export function TextInput({ label, value, set, ...more }: TextProps) {
  return (
    <label>
      <span>{label}</span>
      <input value={value} autocomplete="off" spellcheck={false} {...more} onInput={(event) => set(event.currentTarget.value)} />
    </label>
  );
}

/** Several lines. */
export function AreaInput({ label, value, set, low = false }: Props & { low?: boolean }) {
  return (
    <label>
      <span>{label}</span>
      <textarea class={low ? "low" : undefined} value={value} spellcheck={false} onInput={(event) => set(event.currentTarget.value)} />
    </label>
  );
}

/** An RFC 3339 instant, or nothing, shown in the reader's time zone. */
export function TimeInput({ label, value, set }: Props) {
  return (
    <label>
      <span>{label}</span>
      <input type="datetime-local" step={1} value={localTime(value)} onInput={(event) => set(utcTime(event.currentTarget.value))} />
    </label>
  );
}

export function SelectInput({ label, value, set, options }: Props & { options: readonly (readonly [value: string, words: string])[] }) {
  return (
    <label>
      <span>{label}</span>
      <select value={value} onChange={(event) => set(event.currentTarget.value)}>
        {options.map(([one, words]) => (
          <option key={one} value={one}>
            {words}
          </option>
        ))}
      </select>
    </label>
  );
}
