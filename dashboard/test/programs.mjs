// The programs that the tests of the dashboard talk to: engines, a provider that can be told to fail, PostgreSQL. Each is a real one, is
// started on free ports of this machine, and ends with the tests.
import { spawn, execFileSync } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const binaries = process.env.BELFRY_BINARIES;
if (binaries === undefined) throw new Error("BELFRY_BINARIES has to name the folder with belfry and testbed: scripts/dashboard-test.sh does");
const belfry = join(binaries, "belfry");
/** For a program to say that it is ready, in milliseconds: it fails loudly, and nothing waits for ever. */
const patience = 60_000;

const ended = [];
process.setMaxListeners(50);

/** A folder that is removed at the end. */
export function folder() {
  const made = mkdtempSync(join(tmpdir(), "belfry-dashboard-"));
  ended.push(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

/** Ends what was started, the last one first. */
export async function endAll() {
  while (ended.length > 0) await ended.pop()();
}

/** Starts a program and answers it with the first line that it prints. */
async function start(program, args, { cwd, log }) {
  const errors = log === undefined ? "inherit" : openSync(log, "a");
  const child = spawn(program, args, { cwd, stdio: ["pipe", "pipe", errors] });
  if (log !== undefined) closeSync(errors);
  const exit = new Promise((resolve) => child.once("exit", resolve));
  // Also where the tests end before their end, by an error of their own.
  process.once("exit", () => child.kill("SIGKILL"));
  ended.push(async () => {
    // One that is gone already takes no signal.
    child.kill("SIGKILL");
    await exit;
  });
  const line = await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${program} ${args.join(" ")} says nothing`)), patience);
    createInterface({ input: child.stdout }).once("line", (first) => {
      clearTimeout(timer);
      resolve(first);
    });
    child.once("exit", (code) => {
      clearTimeout(timer);
      const told = log === undefined ? "" : readFileSync(log, "utf8").slice(-2000);
      reject(new Error(`${program} ${args.join(" ")} ended with ${code}\n${told}`));
    });
  });
  return { child, line, exit };
}

/** A provider: APNs and webhooks. `flags` make it fail or be slow. */
export async function startProvider(...flags) {
  const cwd = folder();
  const { line } = await start(belfry, ["provider-sim", "--apns", "127.0.0.1:0", "--webhook", "127.0.0.1:0", ...flags], { cwd, log: join(cwd, "log") });
  const ready = JSON.parse(line);
  // It names its files from its own folder.
  return { ...ready, ca: join(cwd, ready.ca) };
}

/** The URL of a PostgreSQL with nothing in it. */
export async function startPostgres() {
  const cwd = folder();
  const { line } = await start(join(binaries, "testbed"), ["postgres"], { cwd, log: join(cwd, "log") });
  return line.slice(line.indexOf("=") + 1);
}

/** A key of an operator, and its table for the configuration. */
export function operatorKey(name = "ops", tenant = "default") {
  const said = execFileSync(belfry, ["api-key", name, "--tenant", tenant, "--scopes", "send,read,cancel,suppress,operate,metrics"], { encoding: "utf8" });
  const key = /BELFRY_API_KEY=(\S+)/.exec(said)[1];
  const table = said.split("\n").filter((line) => !line.startsWith("#")).join("\n");
  return { key, table };
}

/** An engine with `settings`, TOML, and the key of an operator. */
export class Engine {
  constructor(process, url, log, key) {
    this.process = process;
    this.url = url;
    this.log = log;
    this.key = key;
  }

  static async start({ key, table }, settings, name = "engine") {
    const cwd = folder();
    const log = join(cwd, `${name}.log`);
    writeFileSync(join(cwd, "belfry.toml"), `[server]\nlisten = "127.0.0.1:0"\n${table}\n${settings}\n`);
    const { child, line } = await start(belfry, ["serve"], { cwd, log });
    return new Engine(child, `http://${JSON.parse(line).listen}`, log, key);
  }

  /** The same engine, called with another key. */
  as(key) {
    return new Engine(this.process, this.url, this.log, key);
  }

  /** Calls the API with the operator's key; throws what it answers where that is no success. */
  async call(method, path, body) {
    const headers = { authorization: `Bearer ${this.key}` };
    const lines = typeof body === "string";
    if (body !== undefined) headers["content-type"] = lines ? "application/x-ndjson" : "application/json";
    const sent = body === undefined || lines ? body : JSON.stringify(body);
    const answer = await fetch(this.url + path, { method, headers, body: sent });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return answer.headers.get("content-type")?.includes("application/json") ? JSON.parse(text) : text;
  }

  get(path) {
    return this.call("GET", path);
  }

  post(path, body) {
    return this.call("POST", path, body);
  }

  /** Asks `path` until `holds` is true of the answer; fails when that takes longer than a minute. */
  async until(path, holds) {
    const last = Date.now() + patience;
    for (;;) {
      const answer = await this.get(path);
      if (holds(answer)) return answer;
      if (Date.now() > last) throw new Error(`${path} does not come to ${holds}: ${JSON.stringify(answer).slice(0, 2000)}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  /** Processor time that it has used, in seconds. */
  processorSeconds() {
    const fields = readFileSync(`/proc/${this.process.pid}/stat`, "utf8").split(") ")[1].split(" ");
    return (Number(fields[11]) + Number(fields[12])) / 100;
  }
}
