// A picture of `belfry demo` as a terminal shows it when it has ended, in both themes, for the README:
//   node demo.mjs FOLDER scripts/demo.sh [ARGUMENT OF THE DEMO...]
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { startBrowser } from "./browser.mjs";

const [folder, ...words] = process.argv.slice(2);
assert.ok(words.length > 0, "node demo.mjs FOLDER scripts/demo.sh [ARGUMENT OF THE DEMO...]");
const columns = 72;

/** What stands on a terminal after `output`: a carriage return goes to the beginning of a line, and an erased line is empty. */
function screen(output) {
  return output.split("\n").map((line) => line.split("\r").reduce((before, part) => (part.startsWith("\x1b[2K") ? "" : before) + part.replaceAll(/\x1b\[[0-9;?]*[A-Za-z]/g, ""), ""));
}

const command = `stty cols ${columns}; ${words.map((word) => `'${word}'`).join(" ")}`;
const run = spawnSync("script", ["-qec", command, "/dev/null"], { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"], timeout: 600_000 });
assert.equal(run.status, 0, run.stdout);
const all = screen(run.stdout).map((line) => line.trimEnd());
// Without the lines of the build.
const lines = all.slice(all.findIndex((line) => line.startsWith("starting")));
assert.ok(lines.some((line) => /account balances +yes/.test(line)), lines.join("\n"));

const browser = await startBrowser();
for (const [name, ink, paper] of [["demo.png", "#1f2328", "#f6f8fa"], ["demo-dark.png", "#e6edf3", "#0d1117"]]) {
  const page = await browser.newPage({ deviceScaleFactor: 1.5 });
  await page.setContent(`<style>body { margin: 0; display: inline-block; background: ${paper} }
    pre { margin: 0; padding: 16px 20px; min-width: ${columns}ch; font: 14px/1.45 "DejaVu Sans Mono", monospace; color: ${ink} }</style><pre></pre>`);
  await page.locator("pre").evaluate((pre, text) => (pre.textContent = text), ["$ make demo", ...lines].join("\n").trimEnd());
  await page.locator("pre").screenshot({ path: join(folder, name) });
}
await browser.close();
