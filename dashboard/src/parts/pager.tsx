/**
 * Lists of the API, page by page by `after`, with no end to the number of pages. The page is in the address. A call may answer with
 * fewer items than asked for although more follow; so calls are repeated until a page is full, or some seconds are over.
 */
import { get, type Query } from "../core/api";
import { useLoad, type Loaded } from "../core/load";
import { setQuery, useLocation } from "../core/router";
import type { Listed } from "../core/types";
import { count } from "../core/format";

/** How long a page is waited for until what is there is shown. */
const patience = 3000;

export async function collect<Item>(path: string, query: Query, most: number, signal: AbortSignal): Promise<Listed<Item>> {
  const until = performance.now() + patience;
  const items: Item[] = [];
  let after = query["after"];
  for (;;) {
    const page = await get<Listed<Item>>(path, { ...query, after, limit: most - items.length }, signal);
    items.push(...page.items);
    if (page.next === null || items.length >= most || performance.now() > until) return { items, next: page.next };
    after = page.next;
  }
}

/** The page of a list that the address names; `filters` are the parameters of the call. */
export function usePage<Item>(path: string, filters: Query, most = 100): Loaded<Listed<Item>> {
  const after = useLocation().query.get("after");
  const query: Query = { ...filters, after };
  return useLoad((signal) => collect<Item>(path, query, most, signal), [path, JSON.stringify(query), most]);
}

/** Where the pages before the present one began, as far as this tab has come by them: by the address of the list and its page. */
const before = new Map<string, string | null>();

function place(query: URLSearchParams, after: string | null): string {
  const all = new URLSearchParams(query);
  all.delete("after");
  return `${window.location.pathname}?${all.toString()}#${after ?? ""}`;
}

interface Props {
  page: Listed<unknown>;
  /** The words for the two directions, as the list is ordered. */
  forward?: string;
  back?: string;
  first?: string;
}

export function Pager({ page, forward = "Older", back = "Newer", first = "Newest" }: Props) {
  const { query } = useLocation();
  const after = query.get("after");
  const former = before.get(place(query, after));
  const next = page.next;
  if (after === null && next === null) return <p class="pager mute">{count(page.items.length)} in all</p>;
  return (
    <nav class="pager" aria-label="Pages of the list">
      {after !== null && (
        <button type="button" onClick={() => setQuery({ after: null }, false)}>
          {first}
        </button>
      )}
      {after !== null && former !== undefined && (
        <button type="button" onClick={() => setQuery({ after: former }, false)}>
          {back}
        </button>
      )}
      {next !== null && (
        <button
          type="button"
          onClick={() => {
            before.set(place(query, next), after);
            setQuery({ after: next }, false);
          }}
        >
          {forward}
        </button>
      )}
      <span class="mute">
        {count(page.items.length)} on this page{next === null ? ", the last one" : ", more follow"}
      </span>
    </nav>
  );
}
