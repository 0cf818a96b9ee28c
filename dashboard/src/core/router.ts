/**
 * Addresses of pages: paths below /dashboard by the History API, with filters in the query, so that what is seen can be sent to
 * another person. The parameter `tenant` goes along with every link.
 */
import { withQuery, type Query } from "./api";
import { cell, useCell } from "./cell";

const base = "/dashboard";

export interface Location {
  /** The path below /dashboard, as `/lanes`; `/` for the first page. */
  path: string;
  query: URLSearchParams;
}

function read(): Location {
  const path = window.location.pathname.slice(base.length).replace(/\/+$/, "");
  return { path: path === "" ? "/" : path, query: new URLSearchParams(window.location.search) };
}

export const location = cell<Location>(read());

export function useLocation(): Location {
  return useCell(location);
}

/** The address of a page, of the tenant that is looked at now unless `query` names one. */
export function address(path: string, query: Query = {}): string {
  const tenant = location.get().query.get("tenant");
  return withQuery(base + (path === "/" ? "" : path), { ...(tenant === null ? {} : { tenant }), ...query });
}

/** The present address with other parameters; null takes one away. */
export function addressWith(changes: Query): string {
  const { path, query } = location.get();
  return withQuery(base + (path === "/" ? "" : path), { ...Object.fromEntries(query), ...changes });
}

function go(url: string, replace: boolean): void {
  if (replace) history.replaceState(null, "", url);
  else history.pushState(null, "", url);
  location.set(read());
}

/** Goes to a page, as a link does. */
export function navigate(path: string, query: Query = {}): void {
  go(address(path, query), false);
}

/** Changes parameters of the present address; null takes one away. With `replace` the step back skips the present one. */
export function setQuery(changes: Query, replace = true): void {
  go(addressWith(changes), replace);
}

/**
 * The parameters of a path by a pattern such as `/broadcasts/:id`, or null where it is of another form. Of an identifier that is
 * escaped badly the text itself is taken.
 */
export function match(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split("/");
  const given = path.split("/");
  if (wanted.length !== given.length) return null;
  const params: Record<string, string> = {};
  for (const [index, part] of wanted.entries()) {
    const text = given[index] ?? "";
    if (part.startsWith(":")) params[part.slice(1)] = unescaped(text);
    else if (part !== text) return null;
  }
  return params;
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Takes clicks on links to pages, which are plain `<a href>`, and steps back and forward. */
export function startRouter(): void {
  window.addEventListener("popstate", () => location.set(read()));
  document.addEventListener("click", (event) => {
    const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (!plain || event.defaultPrevented || link === null || link.target !== "" || link.origin !== window.location.origin) return;
    if (link.pathname !== base && !link.pathname.startsWith(`${base}/`)) return;
    if (link.hash !== "" && link.pathname === window.location.pathname) return;
    event.preventDefault();
    go(link.pathname + link.search, false);
    window.scrollTo(0, 0);
  });
}
