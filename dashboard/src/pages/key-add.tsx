/** Making a key: whose it is, what it is good for, and until when. Empty bounds stand for all. */
import { useState } from "preact/hooks";
import { asProblem, post, type Problem } from "../core/api";
import { useChannels } from "../core/channels";
import type { KeyMade } from "../core/records";
import { useSession } from "../core/session";
import type { Priority, Scope } from "../core/types";
import { TextInput, TimeInput } from "../parts/inputs";
import { Panel } from "../parts/panel";
import { Failed } from "../parts/states";

const scopes: readonly [scope: Scope, words: string][] = [
  ["send", "create, preview, requeue"],
  ["read", "notifications, broadcasts, the account"],
  ["cancel", "cancel, reschedule, pause, resolve"],
  ["suppress", "erase recipients"],
  ["metrics", "metrics of its tenant"],
  ["operate", "what concerns all tenants"],
];

const priorities: readonly Priority[] = ["urgent", "normal", "bulk"];

interface Draft {
  name: string;
  tenant: string;
  scopes: readonly string[];
  channels: readonly string[];
  priorities: readonly string[];
  from: string;
  endpoints: string;
  not_after: string;
  requests_per_minute: string;
}

function listed(text: string): string[] | null {
  const parts = text.split(/[\s,]+/).filter((part) => part !== "");
  return parts.length === 0 ? null : parts;
}

function bodyOf(draft: Draft): object {
  return {
    name: draft.name.trim(),
    tenant: draft.tenant.trim(),
    scopes: draft.scopes,
    channels: draft.channels.length === 0 ? null : draft.channels,
    priorities: draft.priorities.length === 0 ? null : draft.priorities,
    from: listed(draft.from),
    endpoints: listed(draft.endpoints),
    not_after: draft.not_after === "" ? null : draft.not_after,
    requests_per_minute: draft.requests_per_minute === "" ? null : Number(draft.requests_per_minute),
  };
}

export function AddKey({ made, close }: { made: (key: KeyMade) => void; close: () => void }) {
  const session = useSession();
  const { names } = useChannels();
  const [draft, setDraft] = useState<Draft>({ name: "", tenant: session.tenant, scopes: ["send", "read"], channels: [], priorities: [], from: "", endpoints: "", not_after: "", requests_per_minute: "" });
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const make = async () => {
    setBusy(true);
    setProblem(null);
    try {
      made(await post<KeyMade>("/v1/keys", {}, { body: bodyOf(draft) }));
    } catch (error) {
      setProblem(asProblem(error));
      setBusy(false);
    }
  };
  const text = (name: "name" | "tenant" | "from" | "endpoints" | "requests_per_minute", label: string, more: { placeholder?: string; required?: boolean; pattern?: string } = {}) => (
    <TextInput label={label} value={draft[name]} set={(value) => setDraft({ ...draft, [name]: value })} {...more} />
  );
  const ticks = (name: "scopes" | "channels" | "priorities", legend: string, options: readonly (readonly [value: string, words: string])[]) => (
    <fieldset>
      <legend>{legend}</legend>
      <div class="actions">
        {options.map(([value, words]) => (
          <label key={value} class="check">
            <input
              type="checkbox"
              checked={draft[name].includes(value)}
              onChange={(event) => setDraft({ ...draft, [name]: event.currentTarget.checked ? [...draft[name], value] : draft[name].filter((one) => one !== value) })}
            />
            <span>
              {value} {words !== "" && <small>{words}</small>}
            </span>
          </label>
        ))}
      </div>
    </fieldset>
  );
  const own = (scope: Scope) => session.scopes.includes(scope);
  return (
    <Panel title="Add a key" aside="it may do no more, and for no longer, than the key you are logged in with">
      <form
        class="stack"
        aria-label="Add a key"
        onSubmit={(event) => {
          event.preventDefault();
          if (!busy && draft.scopes.length > 0) void make();
        }}
      >
        <div class="fields">
          {text("name", "Name", { required: true, placeholder: "billing", pattern: "[a-z0-9][a-z0-9_\\-]*" })}
          {text("tenant", "Tenant", { required: true, pattern: "[a-z0-9][a-z0-9_\\-]*" })}
          <TimeInput label="Good until" value={draft.not_after} set={(not_after) => setDraft({ ...draft, not_after })} />
          {text("requests_per_minute", "Requests a minute", { placeholder: "any number, each process", pattern: "[1-9][0-9]*" })}
        </div>
        {ticks("scopes", "Scopes", scopes.filter(([scope]) => own(scope)))}
        {draft.scopes.includes("operate") && (
          <p class="warning" role="alert">
            With operate it is an operator’s key: with read it sees all tenants, and it makes and revokes keys.
          </p>
        )}
        {ticks("channels", "Channels; none ticked stands for all", names.map((name) => [name, ""] as const))}
        {ticks("priorities", "Priorities; none ticked stands for all", priorities.map((name) => [name, ""] as const))}
        <div class="fields">
          {text("from", "Mail from", { placeholder: "all; or news@example.com, @example.com" })}
          {text("endpoints", "Webhooks to", { placeholder: "all; or https://hooks.example.com/a" })}
        </div>
        {problem !== null && <Failed problem={problem} />}
        <p class="actions">
          <button type="submit" class="primary" disabled={busy || draft.scopes.length === 0}>
            Make the key
          </button>
          <button type="button" onClick={close}>
            Leave it
          </button>
        </p>
      </form>
    </Panel>
  );
}
