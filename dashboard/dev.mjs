// A server for developing the dashboard, not for users: it serves the files as they are built last, and hands everything else on to an
// engine (BELFRY_URL), which has those that it was compiled with.
//   BELFRY_URL=http://127.0.0.1:8473 node dev.mjs [PORT]
import { createServer, request as ask } from "node:http";
import { readFile } from "node:fs/promises";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";

const files = join(dirname(fileURLToPath(import.meta.url)), "../crates/api/dashboard");
const engine = new URL(process.env.BELFRY_URL ?? "http://127.0.0.1:8473");
const port = Number(process.argv[2] ?? 20080);
const types = { ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html; charset=utf-8" };
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'";

/** Answers come as they go, so that streams stay streams. */
function handOn(request, response) {
  const headers = { ...request.headers, host: engine.host };
  if (headers.origin !== undefined) headers.origin = engine.origin;
  const asked = ask({ host: engine.hostname, port: engine.port, method: request.method, path: request.url, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  asked.on("error", () => response.destroy());
  response.on("close", () => asked.destroy());
  request.pipe(asked);
}

async function file(path, response) {
  const name = extname(path) === "" ? "index.html" : path.slice("/dashboard/".length);
  const bytes = await readFile(join(files, name)).catch(() => null);
  if (bytes === null || name.includes("..")) return response.writeHead(404).end();
  response.writeHead(200, { "content-type": types[extname(name)], "content-security-policy": policy });
  response.end(bytes);
}

createServer((request, response) => {
  const path = new URL(request.url, "http://localhost").pathname;
  if (path === "/dashboard" || path.startsWith("/dashboard/")) void file(path, response);
  else handOn(request, response);
}).listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${port}/dashboard, of ${engine}`));
