// What operators come for, each done through the pages alone, against an engine that has delivered much and whose neighbours fail.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { checkAccess, logIn, openPage, startBrowser } from "./browser.mjs";
import { endAll } from "./programs.mjs";
import { broadcast, dead, startCluster, startScene } from "./scene.mjs";

const pictures = process.env.BELFRY_PICTURES;
if (pictures !== undefined) mkdirSync(pictures, { recursive: true });

let browser;
let scene;
let context;
let page;
let faults;

before(async () => {
  [browser, scene] = [await startBrowser(), await startScene()];
  ({ context, page, faults } = await openPage(browser, scene.engine));
});

after(async () => {
  await browser?.close();
  await scene?.endpoint.takeDown().catch(() => undefined);
  await endAll();
});

/** Goes to a page by the navigation, as operators do. */
async function visit(title) {
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: title, exact: true }).click();
  await page.getByRole("heading", { name: title, level: 1 }).waitFor();
}

/** Keeps a picture of what is seen, and fails at what those cannot use who do not see it as others do. */
async function look(name) {
  if (pictures !== undefined) await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true });
  await checkAccess(page);
}

/** The row of a table that has `text`. */
const row = (table, text) => page.getByRole("table", { name: table }).getByRole("row").filter({ hasText: text });

/** Confirms the dialog that is open by its button; types `word` where it asks for one. */
async function confirm(button) {
  const dialog = page.getByRole("dialog");
  const asked = dialog.getByLabel(/^Type .* to go on$/);
  await dialog.getByRole("button", { name: button }).waitFor();
  await dialog.getByText("Counting…").waitFor({ state: "detached" });
  if (await asked.count()) await asked.fill(await dialog.locator("label.word code").innerText());
  await dialog.getByRole("button", { name: button }).click();
  await dialog.waitFor({ state: "detached" });
}

test("find the endpoint that is down", async () => {
  await visit("Overview");
  const { origin } = new URL(scene.endpoint.url);
  const finding = page.getByRole("region", { name: "What is wrong now" }).getByText(`hooks to ${origin}: every attempt fails`);
  await finding.waitFor();
  await look("overview");
  await page.getByRole("link", { name: new RegExp(`^The lane: hooks to ${origin}`) }).click();
  await page.getByRole("heading", { name: "Lanes", level: 1 }).waitFor();
  await page.getByText("Every attempt fails.").waitFor();
  await look("lane");
});

test("find why one recipient got nothing", async () => {
  await visit("Notifications");
  await page.getByLabel("Recipient").fill(scene.lost);
  await page.getByLabel("Recipient").press("Enter");
  await page.getByRole("link", { name: `Open the notification ${scene.refused}` }).click();
  const why = page.getByRole("region", { name: "What became of it" });
  await why.getByText(/410/).first().waitFor();
  await why.getByText(/suppression list/).first().waitFor();
  assert.ok(!(await page.getByText("Your parcel is here").count()), "the content is shown before it is asked for");
  await look("notification");
});

test("lift a suppression", async () => {
  await page.getByRole("link", { name: "Its row of the suppression list" }).click();
  await page.getByRole("heading", { name: "Suppressions", level: 1 }).waitFor();
  await page.getByRole("button", { name: new RegExp(`^Lift .*${scene.lost.slice(-8)}`) }).click();
  await look("suppression");
  await confirm("Lift");
  const { items } = await scene.engine.get("/v1/suppressions?channel=old-app");
  assert.deepEqual(items, []);
});

test("requeue last night's dead", async () => {
  await scene.endpoint.bringUp();
  await visit("Trouble");
  await row("Dead by cause", "orders").getByRole("button").first().click();
  await page.getByRole("button", { name: "Count, then send again…" }).click();
  await page.getByRole("dialog").getByText(`${dead} would be sent again`).waitFor();
  await look("trouble");
  await confirm("Send again");
  await scene.engine.until("/v1/status", ({ totals }) => totals.dead === 0 && totals.pending === 0);
  // Those that were given up, and the one that waited for the endpoint.
  assert.equal(scene.endpoint.received, dead + 1);
});

test("see which limit was learned, and stop a wrong broadcast", async () => {
  const wrong = await broadcast(scene.engine, { channel: "ios", content: { aps: { alert: "TEST please ignore" } }, tags: ["wrong"] }, 50_000);
  await visit("Lanes");
  const lane = row("Lanes", "ios");
  await lane.getByText("working").waitFor();
  // How many it may have under way was learned: more than one, and no number of the configuration.
  const heads = await page.getByRole("table", { name: "Lanes" }).getByRole("columnheader").allInnerTexts();
  const limit = lane.getByRole("cell").nth(heads.findIndex((head) => head.startsWith("Limit")));
  await limit.getByText(/^[\d,]{2,}$/).waitFor();
  await look("lanes");
  await visit("Overview");
  await page.getByRole("figure", { name: "Notifications a second" }).waitFor();
  // It goes out: the pictures of it are those of the README.
  await page.locator(".readings div").filter({ hasText: "Delivered a second" }).getByText(/^\d{3}|,/).waitFor();
  const said = page.getByRole("button", { name: "Close this message" });
  // One that has gone by itself meanwhile needs no click.
  while (await said.count()) await said.first().click({ timeout: 1_000 }).catch(() => undefined);
  for (const colorScheme of ["dark", "light"]) {
    await page.emulateMedia({ colorScheme });
    await look(`overview-${colorScheme}`);
  }
  await visit("Broadcasts");
  await row("Broadcasts", "wrong").getByRole("link").first().click();
  await page.getByRole("progressbar", { name: "Progress of the broadcast" }).waitFor();
  await look("broadcast");
  await page.getByRole("button", { name: "Cancel", exact: true }).click();
  await confirm(/^Cancel/);
  const account = await scene.engine.until(`/v1/broadcasts/${wrong}`, ({ pending }) => pending === 0);
  assert.ok(account.cancelled > 0 && account.cancelled + account.delivered === 50_000, JSON.stringify(account));
});

test("rotate a key", async () => {
  const { key: before } = await scene.engine.post("/v1/keys", { name: "shop", tenant: "shop", scopes: ["send", "read"] });
  const isGood = async (key) => (await fetch(`${scene.engine.url}/v1/keys/self`, { headers: { authorization: `Bearer ${key}` } })).ok;
  await visit("Keys");
  await page.getByRole("button", { name: "Rotate shop" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("radio", { name: /now|at once/i }).check();
  await look("key");
  await dialog.getByRole("button", { name: "Rotate key" }).click();
  const rotated = await dialog.getByLabel("The key", { exact: true }).inputValue();
  assert.deepEqual([await isGood(rotated), await isGood(before)], [true, false]);
  await dialog.getByRole("button", { name: "Close", exact: true }).last().click();
  await dialog.waitFor({ state: "detached" });
  assert.ok(!(await page.content()).includes(rotated), "the key is shown once");
});

test("every page is whole in both themes, narrow and wide", async () => {
  const titles = await page.getByRole("navigation", { name: "Pages" }).getByRole("link").allInnerTexts();
  assert.ok(titles.length >= 9, titles.join());
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    for (const [width, height] of [[1280, 800], [320, 640]]) {
      await page.setViewportSize({ width, height });
      for (const title of titles) {
        await visit(title);
        await look(`${title.toLowerCase().replaceAll(" ", "-")}-${colorScheme}-${width}`);
        const overflows = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.ok(overflows <= 0, `${title} is ${overflows} px wider than a window of ${width}`);
      }
    }
  }
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.emulateMedia({ colorScheme: "light" });
});

test("no page failed, logged an error or asked another origin", () => {
  assert.deepEqual(faults, []);
});

test("see a worker die", async () => {
  const { one, two } = await startCluster();
  const opened = await openPage(browser, one);
  page = opened.page;
  await visit("Workers");
  const dying = new RegExp(`-${two.process.pid}$`);
  await page.getByRole("cell", { name: dying }).waitFor();
  await look("workers");
  two.process.kill("SIGKILL");
  await page.getByText(new RegExp(`-${two.process.pid} went without a word`)).waitFor();
  await look("worker-gone");
  assert.deepEqual(opened.faults, []);
});
