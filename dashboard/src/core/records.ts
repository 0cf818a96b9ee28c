/** Further answers of the API: suppressions, templates, keys, acts. */
import type { Grants } from "./types";

/** A recipient that is not tried. `status` 0 stands for an operator, else it is that of the provider's answer. */
export interface Suppression {
  channel: string;
  to: string;
  reason: string;
  status: number;
  since: string;
}

export interface SuppressionEvent {
  position: string;
  at: string;
  channel: string;
  to: string | null;
  change: "suppressed" | "lifted";
  reason?: string;
  status?: number;
  since?: string;
}

export interface ResolveCount {
  matched: number;
  resolved: number;
  next: string | null;
}

export interface Template {
  name: string;
  /** The one that it is meant for; null for no certain one. */
  channel: string | null;
  content: unknown;
  options: unknown;
  /** Those that it uses, as paths: `user.name`. */
  variables: string[];
}

export interface PreviewAnswer {
  content: unknown;
  options: unknown;
  bytes: number;
  accepted: boolean;
  error?: { pointer: string; message: string } | null;
}

export interface Key extends Grants {
  name: string;
  kept_in: "configuration" | "store";
  made_at: string | null;
  former_until: string | null;
}

export interface KeyMade {
  name: string;
  tenant: string;
  key: string;
  former_until: string | null;
  everywhere: boolean;
}

/** Something that a caller has done, or tried to do. */
export interface Done {
  id: number;
  at: string;
  request: string;
  key: string | null;
  caller: string;
  tenant: string;
  call: string;
  asked: string;
  ended_at: string | null;
  status: number | null;
  answer: Record<string, unknown> | null;
}
