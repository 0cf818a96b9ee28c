// A browser: Debian's Chromium, driven by Playwright. A page whose script fails, that logs an error, or that asks anything of another
// origin fails its test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export async function startBrowser() {
  return chromium.launch({ executablePath: process.env.BELFRY_CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
}

/** A page of `engine`, logged in, and `faults`: what it did that a page must not do. */
export async function openPage(browser, engine, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(30_000);
  const page = await context.newPage();
  const faults = watch(page, engine);
  await page.goto(`${engine.url}/dashboard`);
  await logIn(page, engine);
  return { context, page, faults };
}

export async function logIn(page, engine) {
  await page.getByLabel("API key").fill(engine.key);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("navigation", { name: "Pages" }).waitFor();
}

function watch(page, engine) {
  const faults = [];
  page.on("pageerror", (error) => faults.push(`the script failed: ${error.stack}`));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) faults.push(`the console says: ${message.text()} ${message.location().url}`);
  });
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== engine.url) faults.push(`it asks another origin: ${request.url()}`);
  });
  page.on("response", (response) => {
    if (response.status() >= 500) faults.push(`${response.url()} answered ${response.status()}`);
  });
  return faults;
}

/** Fails at whatever of WCAG 2.2 A and AA axe finds violated. */
export async function checkAccess(page) {
  // By the debugger and not in the page, whose policy takes no such script.
  await page.evaluate(axe);
  const found = await page.evaluate(() => globalThis.axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] }));
  const violated = found.violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.html.slice(0, 200)).join(" | ")}`);
  assert.deepEqual(violated, [], `${page.url()} is not accessible`);
}
