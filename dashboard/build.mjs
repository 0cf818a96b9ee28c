// Builds the dashboard into crates/api/dashboard, where the engine embeds it from. The result depends on the sources and the
// locked packages alone, so a second build gives the same bytes. It checks no types: `npm run check` does.
import { build } from "esbuild";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.env.BELFRY_DASHBOARD_OUT ?? join(here, "../crates/api/dashboard");
/** Most that app.js, app.css and index.html may have together, in bytes of gzip. */
const budget = 80_000;

const bundled = await build({
  absWorkingDir: here,
  entryPoints: { app: "src/app.tsx" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  write: false,
});

await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });
const files = new Map(bundled.outputFiles.map((file) => [file.path.slice(out.length + 1), Buffer.from(file.contents)]));
for (const name of ["index.html", "icon.svg"]) files.set(name, await readFile(join(here, "src", name)));
// Whose code is in app.js beside our own, as its licence asks for.
files.set("licenses.txt", await readFile(join(here, "node_modules/preact/LICENSE")));

let total = 0;
for (const [name, bytes] of files) {
  // Level 9, and no time or name in the head: RFC 1952 has MTIME 0 for "none". The system's byte is set, as it differs by platform.
  const packed = gzipSync(bytes, { level: 9 });
  packed[9] = 255;
  await writeFile(join(out, name), bytes);
  await writeFile(join(out, `${name}.gz`), packed);
  if (!["icon.svg", "licenses.txt"].includes(name)) total += packed.length;
  console.log(`${name.padEnd(12)} ${String(bytes.length).padStart(7)} bytes, ${String(packed.length).padStart(6)} gzip`);
}
console.log(`together     ${String(total).padStart(31)} gzip, of ${budget}`);
if (total > budget) {
  console.error("the dashboard is larger than it may be");
  process.exit(1);
}
