// The scene of the operator's tasks: an engine that has delivered much, whose neighbours fail in the usual ways, and a cluster of two.
import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Engine, folder, operatorKey, startPostgres, startProvider } from "./programs.mjs";

/** Notifications that were delivered before: 10,000,000 show that no page counts by scanning. */
const delivered = Number(process.env.BELFRY_DASHBOARD_NOTIFICATIONS ?? 20_000);

/** Notifications that were given up. */
export const dead = 4;

const secret = `whsec_${Buffer.from("a secret of the tests, and of nothing else").toString("base64")}`;

/** An endpoint on this machine that is down until it is brought up, and counts what it receives. */
export class Endpoint {
  received = 0;

  static async reserve() {
    const endpoint = new Endpoint();
    await endpoint.bringUp(0);
    await endpoint.takeDown();
    return endpoint;
  }

  async bringUp(port = this.port) {
    this.server = createServer((request, response) => {
      request.resume().on("end", () => {
        this.received += 1;
        response.end();
      });
    });
    await new Promise((resolve) => this.server.listen(port, "127.0.0.1", resolve));
    this.port = this.server.address().port;
    this.url = `http://127.0.0.1:${this.port}/hook`;
  }

  async takeDown() {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}

function appleChannel(name, { apns, ca }) {
  const key = join(folder(), "key.p8");
  writeFileSync(key, generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({ type: "pkcs8", format: "pem" }));
  return `[channels.${name}]
kind = "apns"
endpoint = "https://${apns}"
ca_file = "${ca}"
key_file = "${key}"
key_id = "BELFRYKEY1"
team_id = "BELFRYTEAM"
topic = "org.belfry.test"
`;
}

function webhookChannel(name, more) {
  return `[channels.${name}]
kind = "webhook"
allow_http = true
allow_networks = ["127.0.0.0/8"]
secrets = ["${secret}"]
${more}
`;
}

export const deviceToken = (number) => number.toString(16).padStart(64, "0");

/** Lines of a broadcast to `count` recipients, made as they are sent. */
async function* broadcastLines(head, count) {
  yield `${JSON.stringify(head)}\n`;
  for (let from = 0; from < count; from += 10_000) {
    let lines = "";
    for (let number = from; number < Math.min(count, from + 10_000); number += 1) lines += `"${deviceToken(number)}"\n`;
    yield lines;
  }
}

/** Hands in a broadcast, and answers its identifier. */
export async function broadcast(engine, head, count) {
  const answer = await fetch(`${engine.url}/v1/broadcasts`, {
    method: "POST",
    headers: { authorization: `Bearer ${engine.key}`, "content-type": "application/x-ndjson" },
    body: ReadableStream.from(broadcastLines(head, count)).pipeThrough(new TextEncoderStream()),
    duplex: "half",
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`a broadcast was answered ${answer.status} ${text}`);
  return JSON.parse(text).id;
}

/** The engine by itself, with everything that went wrong with it. */
export async function startScene() {
  const [good, gone, endpoint] = [await startProvider("--latency", "300ms", "--capacity", "200"), await startProvider("--dead-tokens", "1"), await Endpoint.reserve()];
  const settings = [
    `[channels.news]\nkind = "dry-run"`,
    `[channels.slow]\nkind = "dry-run"\nlatency = "5s"\nconcurrency = 10`,
    appleChannel("ios", good),
    appleChannel("old-app", gone),
    webhookChannel("hooks", ""),
    webhookChannel("orders", "[channels.orders.retry]\nattempts = 1"),
  ].join("\n");
  const engine = await Engine.start(operatorKey(), settings);
  const past = await broadcast(engine, { channel: "news", content: { aps: { alert: "Good morning" } }, tags: ["morning"] }, delivered);

  // One recipient whose application is gone: refused, and suppressed from then on.
  const lost = deviceToken(77);
  const refused = await engine.post("/v1/notifications", { channel: "old-app", to: lost, content: { aps: { alert: "Your parcel is here" } }, external_id: "parcel-77" });
  // An endpoint that is down, and one whose deliveries are given up at once.
  await engine.post("/v1/notifications", { channel: "hooks", to: endpoint.url, content: { event: "order.paid" } });
  // Few enough that they are tried before the destination is taken for dead.
  const orders = Array.from({ length: dead }, (_, number) => ({ channel: "orders", to: endpoint.url, content: { order: number } }));
  await engine.post("/v1/notifications", orders);
  // A provider that takes 300 ms for each, and 200 at a time: that is learned.
  await broadcast(engine, { channel: "ios", content: { aps: { alert: "The match begins" } } }, 2_000);
  await engine.until("/v1/status", ({ totals }) => totals.dead === dead && totals.refused === 1 && totals.delivered >= delivered + 2_000);
  return { engine, endpoint, past, lost, refused: refused.id };
}

/** Two processes on one PostgreSQL. */
export async function startCluster() {
  const [url, key] = [await startPostgres(), operatorKey()];
  const settings = `[store]\nurl = "${url}"\n[channels.news]\nkind = "dry-run"`;
  const [one, two] = [await Engine.start(key, settings, "one"), await Engine.start(key, settings, "two")];
  await one.until("/v1/status", ({ cluster }) => cluster.workers.length === 2);
  return { one, two };
}
