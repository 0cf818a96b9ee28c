/** All pages, in the order of the navigation: what is wrong first, then what is sent, by what, and what it goes by. */
import { Acts } from "./acts";
import { Broadcast } from "./broadcast";
import { Broadcasts } from "./broadcasts";
import { Channels } from "./channels";
import { Keys } from "./keys";
import { Lanes } from "./lanes";
import { OneNotification } from "./notification";
import { Notifications } from "./notifications";
import { Overview } from "./overview";
import type { Page } from "./page";
import { Suppressions } from "./suppressions";
import { Templates } from "./templates";
import { Trouble } from "./trouble";
import { Workers } from "./workers";

export const pages: readonly Page[] = [
  { path: "/", title: "Overview", scopes: ["read"], listed: true, letter: "o", view: Overview },
  { path: "/notifications", title: "Notifications", scopes: ["read"], listed: true, letter: "n", view: Notifications },
  { path: "/notifications/:id", title: "Notification", scopes: ["read"], listed: false, view: OneNotification },
  { path: "/broadcasts", title: "Broadcasts", scopes: ["read"], listed: true, letter: "b", view: Broadcasts },
  { path: "/broadcasts/:id", title: "Broadcast", scopes: ["read"], listed: false, view: Broadcast },
  { path: "/lanes", title: "Lanes", scopes: ["read", "operate"], listed: true, letter: "l", view: Lanes },
  { path: "/trouble", title: "Trouble", scopes: ["read"], listed: true, letter: "t", view: Trouble },
  { path: "/suppressions", title: "Suppressions", scopes: ["suppress", "operate"], listed: true, letter: "s", view: Suppressions },
  { path: "/channels", title: "Channels", scopes: ["read"], listed: true, letter: "c", view: Channels },
  { path: "/workers", title: "Workers", scopes: ["read", "operate"], listed: true, letter: "w", view: Workers },
  { path: "/templates", title: "Templates", scopes: ["read"], listed: true, letter: "m", view: Templates },
  { path: "/keys", title: "Keys", scopes: ["read", "operate"], listed: true, letter: "k", view: Keys },
  { path: "/acts", title: "Acts", scopes: ["read"], listed: true, letter: "a", view: Acts },
];
