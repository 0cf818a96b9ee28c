/** Rotating and revoking a key. */
import { del, post } from "../core/api";
import { now } from "../core/clock";
import { cell } from "../core/cell";
import type { Key, KeyMade } from "../core/records";
import { act } from "../parts/act";

/** How long the former key stays good after a rotation. */
const choices: readonly { value: string; label: string; milliseconds: number }[] = [
  { value: "day", label: "In 24 hours, so that its callers can be changed over", milliseconds: 86_400_000 },
  { value: "now", label: "Now: it ends at once", milliseconds: 0 },
  { value: "until", label: "At the time below", milliseconds: 0 },
];

const chosen = cell("day");

function formerUntil(at: string | undefined): string | null {
  if (chosen.get() === "until") return at ?? null;
  const choice = choices.find(({ value }) => value === chosen.get());
  // An instant that has passed ends it at once.
  return new Date(now() + (choice?.milliseconds || -60_000)).toISOString();
}

export function askRotate(key: Key, shown: (made: KeyMade) => void): void {
  chosen.set("day");
  act({
    title: `Rotate the key ${key.name}?`,
    button: "Rotate key",
    facts: [
      ["Name", key.name],
      ["Tenant", key.tenant],
      ["Scopes", key.scopes.join(", ")],
    ],
    text: (
      <>
        <p>It gets another key with the same name and grants, which is shown once.</p>
        <fieldset>
          <legend>When the key before it ends</legend>
          {choices.map(({ value, label }) => (
            <label key={value} class="check">
              <input type="radio" name="former" value={value} defaultChecked={value === "day"} onChange={() => chosen.set(value)} />
              <span>{label}</span>
            </label>
          ))}
        </fieldset>
      </>
    ),
    fields: [{ name: "at", label: "Time, for the last choice", kind: "time", initial: new Date(now() + 7 * 86_400_000).toISOString(), hint: "At most 90 days ahead." }],
    async run({ at }) {
      const made = await post<KeyMade>(`/v1/keys/${encodeURIComponent(key.name)}/rotate`, { former_until: formerUntil(at) });
      shown(made);
      return `The key ${key.name} is another one now`;
    },
  });
}

export function askRevoke(key: Key, done: () => void): void {
  act({
    title: `Revoke the key ${key.name}?`,
    button: "Revoke key",
    danger: true,
    facts: [
      ["Name", key.name],
      ["Tenant", key.tenant],
      ["Scopes", key.scopes.join(", ")],
    ],
    text: "It is good for nothing from then on, and neither is the one before its last rotation. What its callers have handed in stays. This cannot be undone: another key can be made under the name.",
    word: key.name,
    async run() {
      const { revoked, everywhere } = await del<{ revoked: boolean; everywhere: boolean }>(`/v1/keys/${encodeURIComponent(key.name)}`);
      done();
      if (!revoked) return `There was no key ${key.name} any more`;
      return everywhere ? `The key ${key.name} is revoked, in every process` : `The key ${key.name} is revoked here; a process was not heard of for 12 s, and takes no stored key until it has read them again`;
    },
  });
}
