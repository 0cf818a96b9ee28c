// A server for developing the dashboard, not for users: it serves the built files as the engine does, hands calls on to an engine
// (BELFRY_URL) with the key of the session, and stands in for the routes that an engine of before the dashboard does not have:
// /v1/session, /v1/live and /v1/tenants. It goes once every engine has them.
//   BELFRY_URL=http://127.0.0.1:8473 node dev.mjs [PORT]
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";

const files = join(dirname(fileURLToPath(import.meta.url)), "../crates/api/dashboard");
const engine = process.env.BELFRY_URL ?? "http://127.0.0.1:8473";
const port = Number(process.argv[2] ?? 20080);
/** The one key of all who use this server; empty where the engine has none. */
let key = process.env.BELFRY_API_KEY ?? "";
const csrf = "development";
const types = { ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html; charset=utf-8" };
const policy = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

const authorized = () => (key === "" ? {} : { authorization: `Bearer ${key}` });

function json(response, status, value) {
  const type = status >= 400 ? "application/problem+json" : "application/json";
  response.writeHead(status, { "content-type": type });
  response.end(JSON.stringify(value));
}

async function bodyOf(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts);
}

async function session(request, response) {
  if (request.method === "DELETE") {
    key = "";
    response.writeHead(204).end();
    return;
  }
  if (request.method === "POST") key = JSON.parse(String(await bodyOf(request))).key;
  const answer = await fetch(`${engine}/v1/keys/self`, { headers: authorized() });
  if (!answer.ok) return json(response, answer.status, await answer.json());
  const grants = await answer.json();
  json(response, request.method === "POST" ? 201 : 200, { ...grants, csrf, expires_at: null, open: grants.name === null });
}

async function live(request, response) {
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  for (;;) {
    const answer = await fetch(`${engine}/v1/status`, { headers: authorized() }).catch(() => null);
    if (!answer?.ok || response.destroyed) return response.end();
    response.write(`event: status\ndata: ${await answer.text()}\n\n`);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

async function tenants(response) {
  const answer = await fetch(`${engine}/v1/audit`, { headers: authorized() });
  json(response, 200, { items: (await answer.json()).tenants ?? [], next: null });
}

async function handOn(request, response) {
  const headers = { ...request.headers, ...authorized(), host: new URL(engine).host };
  for (const name of ["connection", "content-length", "cookie", "origin", "referer", "x-belfry-csrf", "accept-encoding"]) delete headers[name];
  const body = request.method === "GET" ? undefined : await bodyOf(request);
  const answer = await fetch(engine + request.url, { method: request.method, headers, body: body?.length ? body : undefined });
  const kept = Object.fromEntries([...answer.headers].filter(([name]) => !["content-length", "transfer-encoding", "connection"].includes(name)));
  response.writeHead(answer.status, kept);
  response.end(Buffer.from(await answer.arrayBuffer()));
}

async function file(path, response) {
  const name = extname(path) === "" ? "index.html" : path.slice("/dashboard/".length);
  const bytes = await readFile(join(files, name)).catch(() => null);
  if (bytes === null || name.includes("..")) return json(response, 404, { title: "Not found", status: 404, code: "not_found", detail: path });
  response.writeHead(200, { "content-type": types[extname(name)], "content-security-policy": policy });
  response.end(bytes);
}

createServer(async (request, response) => {
  const path = new URL(request.url, "http://localhost").pathname;
  try {
    if (path === "/") response.writeHead(303, { location: "/dashboard" }).end();
    else if (path.startsWith("/dashboard")) await file(path, response);
    else if (path === "/v1/session") await session(request, response);
    else if (path === "/v1/live") await live(request, response);
    else if (path === "/v1/tenants") await tenants(response);
    else await handOn(request, response);
  } catch (error) {
    if (!response.headersSent) json(response, 502, { title: "The engine does not answer", status: 502, code: "no_answer", detail: String(error) });
    response.end();
  }
}).listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${port}/dashboard, of ${engine}`));
