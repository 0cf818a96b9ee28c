/** What a page is to the frame around it. */
import type { ComponentType } from "preact";
import type { Scope } from "../core/types";

export interface Page {
  /** Below /dashboard; `:name` stands for a part that the view gets in `params`. */
  path: string;
  title: string;
  /** It is shown, and in the navigation, for keys that have all of these. */
  scopes: readonly Scope[];
  /** Whether it is in the navigation. */
  listed: boolean;
  /** The letter that leads to it after `g`. */
  letter?: string;
  view: ComponentType<{ params: Record<string, string> }>;
}
