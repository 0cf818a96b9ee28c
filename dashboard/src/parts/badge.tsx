/** A word with a colour and a sign: the sign says the same as the colour, for those who do not see that. */
import type { ComponentChildren } from "preact";
import type { State } from "../core/types";
import { words } from "../core/format";

export type Tone = "ok" | "warn" | "bad" | "calm" | "active";

const signs: Record<Tone, string> = { ok: "●", warn: "▲", bad: "■", calm: "○", active: "◐" };

export function Badge({ tone, title, children }: { tone: Tone; title?: string; children: ComponentChildren }) {
  return (
    <span class={`badge ${tone}`} title={title}>
      <span class="sign" aria-hidden="true">
        {signs[tone]}
      </span>
      {children}
    </span>
  );
}

export const stateTones: Record<State, Tone> = {
  pending: "calm",
  claimed: "active",
  begun: "active",
  delivered: "ok",
  refused: "warn",
  expired: "warn",
  cancelled: "calm",
  suppressed: "calm",
  in_doubt: "bad",
  dead: "bad",
};

export function StateBadge({ state }: { state: State }) {
  return <Badge tone={stateTones[state] ?? "calm"}>{words(state)}</Badge>;
}
