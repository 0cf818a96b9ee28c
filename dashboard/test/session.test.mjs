// The way in and out: what a browser that has no session sees, and what is left of one that is over.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { checkAccess, logIn, openPage, startBrowser } from "./browser.mjs";
import { Engine, endAll, operatorKey } from "./programs.mjs";

let browser;
let engine;

before(async () => {
  browser = await startBrowser();
  engine = await Engine.start(operatorKey(), `[channels.ios]\nkind = "dry-run"`);
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
