/** What a pause or a cancellation covers: as the API writes it, as the parameters of a call, and in words. */
import type { Query } from "./api";
import type { Lane, Priority } from "./types";

export type Covered =
  | { of: "tenant" }
  | { of: "channel"; channel: string }
  | { of: "lane"; channel: string; priority: Priority; destination: string }
  | { of: "broadcast"; id: string };

/** Reads `broadcast/ID`, `tenant`, `channel/CHANNEL` or `lane/CHANNEL/PRIORITY/DESTINATION`; null for what is none of these. */
export function readScope(scope: string): Covered | null {
  const [of, first = "", second = "", ...rest] = scope.split("/");
  switch (of) {
    case "tenant":
      return { of };
    case "channel":
      return { of, channel: first };
    case "broadcast":
      return { of, id: first };
    case "lane":
      return { of, channel: first, priority: second as Priority, destination: rest.join("/") };
    default:
      return null;
  }
}

export function coveredQuery(covered: Covered): Query {
  switch (covered.of) {
    case "tenant":
      return { all: true };
    case "channel":
      return { channel: covered.channel };
    case "broadcast":
      return { broadcast: covered.id };
    case "lane":
      return { channel: covered.channel, priority: covered.priority, destination: covered.destination };
  }
}

export function coveredWords(covered: Covered): string {
  switch (covered.of) {
    case "tenant":
      return "all that the tenant has";
    case "channel":
      return `the channel ${covered.channel}`;
    case "broadcast":
      return `the broadcast ${covered.id}`;
    case "lane":
      return `the lane ${covered.channel} · ${covered.priority} to ${covered.destination}`;
  }
}

export function laneOf(lane: Lane): Covered {
  return { of: "lane", channel: lane.channel, priority: lane.priority, destination: lane.destination };
}

/** A name of a lane that no two have. */
export function laneKey(lane: Lane): string {
  return `${lane.tenant}/${lane.channel}/${lane.priority}/${lane.destination}`;
}
