/** How a whole is divided among states: a bar, and a legend with the numbers, which says all that the bar does. */
import type { ComponentChildren } from "preact";
import { count, percent, words } from "../core/format";
import { accountStates, type Account, type AccountState } from "../core/types";

/** What is done stands at the left of the bar, and what waits is the rest. */
const drawn: readonly AccountState[] = [...accountStates.filter((state) => state !== "pending"), "pending"];

/** With `link`, each number leads to what it counts. */
export function AccountBar({ account, link, label }: { account: Account; link?: ((state: AccountState) => string | null) | undefined; label: string }) {
  const ended = account.accepted - account.pending;
  return (
    <div class="account">
      <div class="bar" role="progressbar" aria-label={label} aria-valuemin={0} aria-valuemax={account.accepted} aria-valuenow={ended} aria-valuetext={`${count(ended)} of ${count(account.accepted)} have ended`}>
        {drawn.map((state) => account[state] > 0 && <span key={state} class={`part state-${state}`} style={{ flexGrow: account[state] / Math.max(1, account.accepted) }} />)}
      </div>
      <ul class="legend">
        {accountStates.map((state) => (
          <li key={state} class={account[state] === 0 ? "none" : undefined}>
            <span class={`swatch state-${state}`} aria-hidden="true" />
            <span class="name">{words(state)}</span>
            <strong>{linked(count(account[state]), account[state] > 0 ? (link?.(state) ?? null) : null, words(state))}</strong>
            <span class="mute share">{percent(account[state], account.accepted)}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

function linked(text: string, href: string | null, what: string): ComponentChildren {
  return href === null ? (
    text
  ) : (
    <a href={href} aria-label={`${text} ${what}`}>
      {text}
    </a>
  );
}
