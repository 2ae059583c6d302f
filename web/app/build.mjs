// Builds the page into a directory: `node build.mjs DIR`. The same sources give the same bytes.

import { copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const to = process.argv[2] ?? join(here, "../assets");
mkdirSync(to, { recursive: true });
await build({
  absWorkingDir: here, entryPoints: ["src/main.tsx"], outfile: join(to, "app.js"), bundle: true, minify: true,
  format: "iife", target: "es2022", jsx: "automatic", jsxImportSource: "preact", charset: "utf8", legalComments: "none",
});
await build({
  absWorkingDir: here, entryPoints: ["src/app.css"], outfile: join(to, "app.css"), minify: true, target: "chrome110",
});
copyFileSync(join(here, "src/index.html"), join(to, "index.html"));
