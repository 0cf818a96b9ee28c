/** The frame of all pages: the log-in or the navigation, the head, the page that the address names, and what lies above it. */
import { useEffect, useMemo, useRef } from "preact/hooks";
import { useCell } from "../core/cell";
import { address, match, useLocation } from "../core/router";
import { findSession, granted, identity, login, wasReplaced } from "../core/session";
import type { Session } from "../core/types";
import { ActHost } from "../parts/act";
import { announce, Announcements } from "../parts/announce";
import { Dialog } from "../parts/dialog";
import { PageHead } from "../parts/panel";
import { Failed, Waiting } from "../parts/states";
import { pages } from "../pages/index";
import type { Page } from "../pages/page";
import { Head } from "./head";
import { KeysHelp } from "./keys";
import { LogIn } from "./login";

export function Frame() {
  const state = useCell(login);
  switch (state.is) {
    case "loading":
      return (
        <main class="alone">
          <Waiting />
        </main>
      );
    case "failed":
      return (
        <main class="alone">
          <h1>Belfry</h1>
          <Failed problem={state.problem} again={() => void findSession()} />
        </main>
      );
    case "out":
      return (
        <main class="alone">
          <h1>Belfry</h1>
          <LogIn />
        </main>
      );
    default:
      return (
        <>
          <Inside key={identity(state.session)} session={state.session} />
          {state.is === "over" && (
            <Dialog title="The session is over">
              <p>Log in again to go on where you are.</p>
              <LogIn />
            </Dialog>
          )}
        </>
      );
  }
}

function Inside({ session }: { session: Session }) {
  const { path } = useLocation();
  const main = useRef<HTMLElement>(null);
  const shown = useMemo(() => pages.filter(({ scopes }) => granted(session, scopes)), [session]);
  const found = find(shown, path);
  const title = found?.page.title ?? "No such page";

  useEffect(() => {
    if (wasReplaced()) announce(`Another key is logged in now: ${session.name ?? "none"}, of the tenant ${session.tenant}. What was open is closed, and nothing of it was done with this key.`, "bad");
  }, []);

  const first = useRef(true);
  useEffect(() => {
    document.title = `${title} · Belfry`;
    // On the way from one page to another the focus goes along, as with pages of their own.
    if (first.current) first.current = false;
    else main.current?.querySelector("h1")?.focus();
  }, [path]);

  return (
    <>
      <a class="skip" href="#main">
        Skip to the page
      </a>
      <Head session={session} />
      <nav class="pages" aria-label="Pages">
        <ul>
          {shown
            .filter(({ listed }) => listed)
            .map((page) => (
              <li key={page.path}>
                <a href={address(page.path)} aria-current={isWithin(path, page.path) ? "page" : undefined}>
                  {page.title}
                </a>
              </li>
            ))}
        </ul>
      </nav>
      <main id="main" ref={main} tabIndex={-1}>
        {found === null ? <Missing path={path} /> : <found.page.view key={path} params={found.params} />}
      </main>
      <ActHost />
      <Announcements />
      <KeysHelp pages={shown} />
    </>
  );
}

function find(shown: readonly Page[], path: string): { page: Page; params: Record<string, string> } | null {
  for (const page of shown) {
    const params = match(page.path, path);
    if (params !== null) return { page, params };
  }
  return null;
}

function isWithin(path: string, page: string): boolean {
  return path === page || (page !== "/" && path.startsWith(`${page}/`));
}

function Missing({ path }: { path: string }) {
  return (
    <>
      <PageHead title="No such page" />
      <p>
        There is no page <code>{path}</code>, or this key is not good for it. <a href={address("/")}>Overview</a>
      </p>
    </>
  );
}
