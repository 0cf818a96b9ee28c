/** Instants: how long ago or in how long, with the exact instant on hovering; or the instant itself. */
import { useNow } from "../core/clock";
import { age, instant } from "../core/format";

export function Age({ at, none = "–" }: { at: string | number | null | undefined; none?: string }) {
  const now = useNow();
  if (at === null || at === undefined) return <span class="mute">{none}</span>;
  return (
    <time dateTime={new Date(at).toISOString()} title={`${instant(at)} (${new Date(at).toISOString()})`}>
      {age(at, now)}
    </time>
  );
}

export function Instant({ at, none = "–" }: { at: string | null | undefined; none?: string }) {
  const now = useNow();
  if (at === null || at === undefined) return <span class="mute">{none}</span>;
  return (
    <time dateTime={at} title={`${age(at, now)} (${at})`}>
      {instant(at)}
    </time>
  );
}
