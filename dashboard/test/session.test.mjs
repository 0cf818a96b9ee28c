// The way in and out: what a browser that has no session sees, and what is left of one that is over.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { checkAccess, logIn, openPage, startBrowser } from "./browser.mjs";
import { Engine, endAll, operatorKey } from "./programs.mjs";

const channel = `[channels.ios]\nkind = "dry-run"`;

let browser;
let engine;

before(async () => {
  browser = await startBrowser();
  engine = await Engine.start(operatorKey(), channel);
});

after(async () => {
  await browser?.close();
  await endAll();
});

test("a wrong key is refused in words, and the right one leads to the address that was asked for", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${engine.url}/dashboard/lanes`);
  await page.getByLabel("API key").fill("belfry_wrong");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByText("the API key is not known").waitFor();
  await checkAccess(page);
  await logIn(page, engine);
  await page.getByRole("heading", { name: "Lanes", level: 1 }).waitFor();
  await context.close();
});

test("the key is kept nowhere in the browser, and its cookie is out of reach of scripts", async () => {
  const { context, page, faults } = await openPage(browser, engine);
  const kept = await page.evaluate(() => document.cookie + JSON.stringify({ ...localStorage }) + JSON.stringify({ ...sessionStorage }));
  assert.ok(!kept.includes("belfry_"), kept);
  const [cookie, ...others] = await context.cookies();
  assert.equal(others.length, 0);
  assert.deepEqual([cookie.httpOnly, cookie.sameSite, cookie.value === engine.key], [true, "Strict", false]);
  assert.deepEqual(faults, []);
  await context.close();
});

test("a session that has ended asks for the key above the page, and goes on there", async () => {
  const { context, page } = await openPage(browser, engine);
  await page.goto(`${engine.url}/dashboard/lanes`);
  await page.getByRole("heading", { name: "Lanes", level: 1 }).waitFor();
  await context.clearCookies();
  await page.reload();
  await logIn(page, engine);
  await page.getByRole("heading", { name: "Lanes", level: 1 }).waitFor();
  await context.close();
});

/** An engine with two operators of two tenants, each of which has a notification that waits. */
async function startOfTwo() {
  const [alice, bob] = [operatorKey("alice", "a"), operatorKey("bob", "b")];
  const byAlice = await Engine.start({ key: alice.key, table: `${alice.table}\n${bob.table}` }, channel);
  const byBob = byAlice.as(bob.key);
  const waiting = { channel: "ios", to: "00".repeat(32), content: { aps: { alert: "Later" } }, send_at: new Date(Date.now() + 3_600_000).toISOString() };
  await byAlice.post("/v1/notifications", waiting);
  await byBob.post("/v1/notifications", waiting);
  await byAlice.until("/v1/status", ({ lanes }) => lanes.length === 2);
  return { byAlice, byBob, lane: `${byAlice.url}/dashboard/lanes?lane=a/ios/normal/dry-run` };
}

test("what is confirmed after another key was logged in is not done, and the page says so", async () => {
  const { byAlice, byBob, lane } = await startOfTwo();
  const context = await browser.newContext();
  const [one, two] = [await context.newPage(), await context.newPage()];
  // Both ask for a key before there is a session, which is that of all tabs.
  await one.goto(lane);
  await two.goto(`${byAlice.url}/dashboard`);
  await two.getByLabel("API key").waitFor();
  await logIn(one, byAlice);
  await one.getByRole("button", { name: "Cancel what waits" }).click();
  const dialog = one.getByRole("dialog");
  await dialog.getByText("1 wait and would be cancelled").waitFor();

  await logIn(two, byBob);
  const asked = [];
  one.on("request", (request) => request.method() === "POST" && asked.push(new URL(request.url())));
  await dialog.getByRole("button", { name: "Cancel what waits" }).click();

  await one.getByText("Another key is logged in now: bob, of the tenant b.").waitFor();
  await one.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
  assert.equal(await dialog.count(), 0);
  assert.equal(one.url(), `${byAlice.url}/dashboard`);
  // It was asked once, of the tenant that the dialog has named, and not again.
  assert.deepEqual(asked.map(({ pathname, searchParams }) => [pathname, searchParams.get("tenant")]), [["/v1/cancel", "a"]]);
  const { totals } = await byAlice.get("/v1/status");
  assert.deepEqual([totals.pending, totals.cancelled], [2, 0]);
  await context.close();
});

test("another key that is logged in where a session has ended begins with a page of its own", async () => {
  const { byAlice, byBob, lane } = await startOfTwo();
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(lane);
  await logIn(page, byAlice);
  await context.clearCookies();
  await page.getByRole("link", { name: "Templates" }).click();
  await page.getByRole("dialog", { name: "The session is over" }).waitFor();
  await page.evaluate(() => Object.assign(globalThis, { former: true }));
  await logIn(page, byBob);
  await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
  assert.equal(page.url(), `${byAlice.url}/dashboard`);
  assert.equal(await page.evaluate(() => globalThis.former), undefined);
  await context.close();
});
