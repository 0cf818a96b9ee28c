/** What happened to a notification, attempt by attempt, in the words of the provider. */
import type { Attempted } from "../core/types";
import { StateBadge } from "./badge";
import { Empty } from "./states";
import { Instant } from "./time";

export function Timeline({ attempts }: { attempts: readonly Attempted[] }) {
  if (attempts.length === 0) return <Empty>Nothing was tried yet.</Empty>;
  return (
    <ol class="timeline" aria-label="Timeline">
      {attempts.map((one, index) => (
        <li key={index}>
          <Instant at={one.at} />
          <span class="mute">{one.attempt === 0 ? "by hand or by itself" : `attempt ${one.attempt}`}</span>
          <StateBadge state={one.state} />
          <span class="detail-text">
            {one.status > 0 && <code>{one.status}</code>} {one.detail}
          </span>
        </li>
      ))}
    </ol>
  );
}
