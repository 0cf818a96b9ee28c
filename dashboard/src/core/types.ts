/**
 * The answers of the API that the dashboard reads, as docs/reference/openapi.json has them. Fields may be added to answers:
 * nothing here relies on there being no others.
 */

export type Scope = "send" | "read" | "cancel" | "suppress" | "operate" | "metrics";
export type Priority = "urgent" | "normal" | "bulk";
export type State = "pending" | "claimed" | "begun" | "delivered" | "refused" | "expired" | "cancelled" | "suppressed" | "in_doubt" | "dead";

/** The states that an account counts, in the order in which they are shown. */
export const accountStates = ["pending", "delivered", "refused", "suppressed", "expired", "cancelled", "in_doubt", "dead"] as const;
export type AccountState = (typeof accountStates)[number];
export type Account = Record<AccountState, number> & { accepted: number };
export type TenantAccount = Account & { tenant: string };

/** What a key is good for. `null` stands for all, for ever, any number. */
export interface Grants {
  name: string | null;
  tenant: string;
  scopes: Scope[];
  channels: string[] | null;
  priorities: Priority[] | null;
  from: string[] | null;
  endpoints: string[] | null;
  not_after: string | null;
  requests_per_minute: number | null;
}

export interface Session extends Grants {
  csrf: string | null;
  expires_at: string | null;
  /** True where the engine has no keys: every caller on this machine may do everything. */
  open: boolean;
}

/** The answer to a browser that has no session. */
export interface NoSession {
  tenant: null;
}

export interface Lane {
  channel: string;
  destination: string;
  priority: Priority;
  tenant: string;
  claimed: number;
  next_due_at: string | null;
  limit: number | null;
  latency_ms: number | null;
  rate_per_minute: number | null;
  answered_at: string | null;
  closed_until: string | null;
  parked: boolean;
  paused: boolean;
}

export interface Parked {
  channel: string;
  lanes: number;
  notifications: number;
  next_due_at: string;
  at_least: boolean;
}

export interface Pause {
  tenant: string;
  scope: string;
  since: string;
  everywhere?: boolean | null;
}

export interface Source {
  name: string;
  read: number;
  accepted: number;
  repeated: number;
  dead_lettered: number;
  acknowledged: number;
  waiting_since: string | null;
  waits_for: string | null;
}

export interface Feed {
  name?: string;
  position: string;
  waiting_since: string | null;
  lag_seconds: number;
}

export interface Space {
  used_bytes: number;
  left_bytes: number | null;
  grows_per_day: number | null;
  full_in_days: number | null;
}

export interface Worker {
  id: number;
  name: string;
  role: string;
  version: string;
  listen: string | null;
  started_at: string;
  alive_for_seconds: number;
  standing_by: boolean;
  partitions: number;
  claimed: number;
  settled: number;
  settled_per_second: number;
}

export interface Cluster {
  workers: Worker[];
  partitions_free: number;
  outbox_rejected: number;
  /** Counted to 10,000. */
  outbox_waiting: number;
  outbox_oldest_seconds: number;
}

/** Where work stands, of all tenants: `GET /v1/status`, and each event of its stream. */
export interface Status {
  version: string;
  started_at: string | null;
  totals: Account;
  oldest_due_at: string | null;
  lag_seconds: number;
  lanes: Lane[];
  parked: Parked[];
  pauses: Pause[];
  sources: Source[];
  suppression_feed: Feed | null;
  feeds: Feed[];
  space: Space | null;
  cluster: Cluster | null;
}

export interface Credential {
  what: string;
  expires_at: string | null;
}

export interface Channel {
  name: string;
  kind: string;
  messages_per_minute: number | null;
  paused_since: string | null;
  credentials?: Credential[];
}

export interface Estimate {
  state: "running" | "early" | "stalled" | "paused" | "scheduled" | "complete";
  since: string | null;
  earliest: string | null;
  latest: string | null;
  least_seconds: number | null;
  most_seconds: number | null;
}

export interface Labels {
  external_id?: string | null;
  tags?: string[];
  metadata?: unknown;
}

export interface Broadcast extends Account, Labels {
  id: string;
  channel: string;
  accepted_at: string;
  expires_at: string | null;
  paused_since: string | null;
  estimate: Estimate;
}

export interface BroadcastItem extends Labels {
  id: string;
  channel: string;
  priority: Priority;
  guarantee: string;
  accepted_at: string;
  due_at: string;
  expires_at: string | null;
  accepted: number;
  paused_since: string | null;
}

export interface Attempted {
  at: string;
  attempt: number;
  state: State;
  status: number;
  detail: string;
}

export interface Notification extends Labels {
  id: string;
  channel: string;
  destination: string;
  to: string | null;
  state: State;
  guarantee: string;
  priority: Priority;
  accepted_at: string;
  due_at: string;
  expires_at: string | null;
  broadcast: string | null;
  next_attempt_at: string | null;
  fallback_of: string | null;
  fallback_id: string | null;
  attempts: Attempted[];
  content?: unknown;
  options?: unknown;
}

/** A page of a list: `next` is passed as `after` to go on, and is null at the end. */
export interface Listed<Item> {
  items: Item[];
  next: string | null;
}

export interface CancelCount {
  tenant: string;
  scope: string | null;
  at: string;
  cancelled: number;
  under_way: number;
  next: string | null;
}

export interface RequeueCount {
  matched: number;
  requeued: number;
  expired: number;
  not_yet: number;
  content_removed: number;
  replaced: number;
  next: string | null;
}

export interface RescheduleCount {
  rescheduled: number;
  under_way: number;
  ended: number;
}
