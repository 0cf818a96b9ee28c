/** Which tenant is looked at: any name, with those that have something to pick from. */
import { useId, useState } from "preact/hooks";
import { get } from "../core/api";
import { setQuery, useLocation } from "../core/router";
import type { Listed, Session, TenantAccount } from "../core/types";

/** So many are offered; a name beyond them is typed. */
const offered = 1000;

export function TenantPicker({ session }: { session: Session }) {
  const named = useLocation().query.get("tenant") ?? "";
  const [names, setNames] = useState<string[] | null>(null);
  const list = useId();
  const load = () => {
    if (names !== null) return;
    setNames([]);
    // Where the names cannot be listed, they can be typed all the same.
    get<Listed<TenantAccount>>("/v1/tenants", { limit: offered }).then(
      ({ items }) => setNames(items.map(({ tenant }) => tenant)),
      () => setNames(null),
    );
  };
  const pick = (name: string) => setQuery({ tenant: name === "" ? null : name, after: null }, false);
  return (
    <label class="picker tenant">
      <span>Tenant</span>
      <input
        key={named}
        type="search"
        list={list}
        defaultValue={named}
        placeholder={session.tenant}
        autocomplete="off"
        spellcheck={false}
        title={`Empty: ${session.tenant}, the key's own, in lists; all tenants in what is told of the engine`}
        onFocus={load}
        onChange={(event) => pick(event.currentTarget.value.trim())}
      />
      <datalist id={list}>
        {names?.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </label>
  );
}
