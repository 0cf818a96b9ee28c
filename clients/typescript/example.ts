// Sends by Belfry, receives and verifies a signed callback, lists page by page, and cancels. The types of `./belfry` are generated:
//
//     npx openapi-typescript docs/reference/openapi.json --output belfry.ts
//
// Environment: BELFRY_URL, BELFRY_API_KEY; WEBHOOK_SECRET, with which the channel `hooks` signs. The channel `ios` only has to be there.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import createClient from "openapi-fetch";
import { Webhook } from "standardwebhooks";
import type { components, paths } from "./belfry.js";

const PENDING = 5;

function setting(name: string): string {
  const value = process.env[name];
  assert(value, `${name} is not set`);
  return value;
}

const client = createClient<paths>({
  baseUrl: setting("BELFRY_URL"),
  headers: { authorization: `Bearer ${setting("BELFRY_API_KEY")}` },
});

type Problem = components["schemas"]["Problem"];

/** The answer, which is no problem. */
function must<T>({ data, error }: { data?: T; error?: Problem }): T {
  if (error !== undefined || data === undefined) {
    throw new Error(`${error?.code}: ${error?.detail}`);
  }
  return data;
}

async function create(body: components["schemas"]["NotificationSubmission"]): Promise<string> {
  const created = must(await client.POST("/v1/notifications", { body }));
  assert("id" in created);
  return created.id;
}

/** An endpoint of the application takes what is signed, and nothing else. */
async function receiveACallback(): Promise<void> {
  const webhook = new Webhook(setting("WEBHOOK_SECRET"));
  let receive: (callback: unknown) => void;
  const received = new Promise((resolve) => (receive = resolve));
  const server = createServer(async (request, response) => {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    try {
      const headers = request.headers as Record<string, string>;
      const content = webhook.verify(Buffer.concat(pieces).toString(), headers);
      // A repetition has the same identifier.
      receive({ id: headers["webhook-id"], content });
      response.writeHead(204).end();
    } catch {
      response.writeHead(401).end();
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const id = await create({ channel: "hooks", to: `http://127.0.0.1:${port}/orders`, content: { order: 17 } });
  assert.deepEqual(await received, { id, content: { order: 17 } });
  server.close();
  server.closeAllConnections();
}

async function pageAndCancel(): Promise<void> {
  const later = new Date(Date.now() + 3_600_000).toISOString();
  const sent = new Set<string>();
  for (let number = 0; number < PENDING; number++) {
    const to = number.toString(16).padStart(8, "0");
    sent.add(await create({ channel: "ios", to, content: { n: number }, send_at: later, tags: ["typescript"] }));
  }
  const listed: string[] = [];
  let after: string | null | undefined;
  do {
    const query = { tag: "typescript", limit: 2, after: after ?? undefined };
    const page = must(await client.GET("/v1/notifications", { params: { query } }));
    listed.push(...page.items.map((item) => item.id));
    after = page.next;
  } while (after !== null);
  assert.equal(listed.length, PENDING);
  assert.deepEqual(new Set(listed), sent);
  for (const id of sent) {
    const params = { path: { id } };
    for (let again = 0; again < 2; again++) {
      // Asked for again it has the same answer.
      assert.equal(must(await client.POST("/v1/notifications/{id}/cancel", { params })).cancelled, 1);
    }
    assert.equal(must(await client.GET("/v1/notifications/{id}", { params })).state, "cancelled");
  }
}

async function readAnError(): Promise<void> {
  const { error } = await client.POST("/v1/notifications", { body: { channel: "none", to: "a1", content: {} } });
  assert.equal(error?.code, "invalid_field");
  assert.equal(error?.errors?.[0]?.pointer, "/channel");
}

await receiveACallback();
await pageAndCancel();
await readAnError();
console.log(JSON.stringify({ client: "typescript", cancelled: PENDING }));
