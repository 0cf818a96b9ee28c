/** All pages, in the order of the navigation: what is wrong first, then what is sent, by what, and what it goes by. */
import { Lanes } from "./lanes";
import { OneNotification } from "./notification";
import { Notifications } from "./notifications";
import type { Page } from "./page";
import { Trouble } from "./trouble";

export const pages: readonly Page[] = [
  { path: "/lanes", title: "Lanes", scopes: ["read", "operate"], listed: true, view: Lanes },
  { path: "/notifications", title: "Notifications", scopes: ["read"], listed: true, view: Notifications },
  { path: "/notifications/:id", title: "Notification", scopes: ["read"], listed: false, view: OneNotification },
  { path: "/trouble", title: "Trouble", scopes: ["read"], listed: true, view: Trouble },
];
