/** The head of all pages: whether what is seen is fresh, whose notifications it is about, the theme, and who is logged in. */
import { asProblem } from "../core/api";
import { useCell } from "../core/cell";
import { useNow } from "../core/clock";
import { age, instant } from "../core/format";
import { live } from "../core/live";
import { address } from "../core/router";
import { logOut } from "../core/session";
import { pickedTheme, pickTheme, type Theme } from "../core/theme";
import type { Session } from "../core/types";
import { announce } from "../parts/announce";
import { Badge } from "../parts/badge";
import { TenantPicker } from "./tenants";

export function Head({ session }: { session: Session }) {
  return (
    <header class="head">
      <a class="brand" href={address("/")}>
        <svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
          <path d="M16 5 7 11v2h18v-2zM9 15v10h14V15M16 15v3m-3.500 5c1-1 1-5 3.500-5s2.500 4 3.500 5z" fill="none" stroke="currentColor" stroke-width="2" stroke-linejoin="round" stroke-linecap="round" />
        </svg>
        Belfry
      </a>
      <Connection />
      <span class="gap" />
      <TenantPicker session={session} />
      <ThemePicker />
      <Who session={session} />
    </header>
  );
}

function Connection() {
  const { connected, at, lostSince, problem } = useCell(live);
  const now = useNow();
  // A stream that is open and silent tells nothing either.
  const silent = at !== null && now - at > 15_000;
  return (
    <div class="connection" role="status" aria-label="Connection">
      {connected && problem !== null ? (
        <Badge tone="bad" title={problem.detail}>
          no status
        </Badge>
      ) : connected && !silent ? (
        <Badge tone="ok" title={at === null ? "" : `Last heard at ${instant(at)}`}>
          live
        </Badge>
      ) : lostSince !== null || silent ? (
        <Badge tone="bad" title={problem === null ? "" : `${problem.title}. ${problem.detail}`}>
          not connected since {instant(lostSince ?? at ?? now).slice(11)} ({age(lostSince ?? at ?? now, now)})
        </Badge>
      ) : (
        <Badge tone="calm">connecting…</Badge>
      )}
    </div>
  );
}

const themes: { value: Theme; label: string }[] = [
  { value: "system", label: "System" },
  { value: "light", label: "Light" },
  { value: "dark", label: "Dark" },
];

function ThemePicker() {
  const picked = useCell(pickedTheme);
  return (
    <label class="picker">
      <span class="hidden">Theme</span>
      <select value={picked} onChange={(event) => pickTheme(event.currentTarget.value as Theme)}>
        {themes.map(({ value, label }) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
    </label>
  );
}

function Who({ session }: { session: Session }) {
  if (session.open) return <span class="who mute" title="No key is configured: every program on this machine may do everything">no keys</span>;
  const leave = () => logOut().catch((error: unknown) => announce(asProblem(error).message, "bad"));
  return (
    <span class="who">
      <span title={`Scopes: ${session.scopes.join(", ")}`}>
        <span class="mute">key</span> {session.name}
      </span>
      <button type="button" onClick={() => void leave()}>
        Log out
      </button>
    </span>
  );
}
