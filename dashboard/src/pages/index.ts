/** All pages, in the order of the navigation: what is wrong first, then what is sent, by what, and what it goes by. */
import { Lanes } from "./lanes";
import type { Page } from "./page";

export const pages: readonly Page[] = [
  { path: "/lanes", title: "Lanes", scopes: ["read", "operate"], listed: true, view: Lanes },
];
