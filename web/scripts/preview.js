// Writes one HTML file that carries the built page and made-up recordings: node scripts/preview.js FILE [--long]
import { readFileSync, writeFileSync } from "node:fs";
import { deflateSync } from "node:zlib";
import { createServer } from "vite";

const [path = "preview.html", ...flags] = process.argv.slice(2);
const server = await createServer({ server: { middlewareMode: true }, appType: "custom", logLevel: "error" });
const { archive, fakeFiles } = await server.ssrLoadModule("/test/fake.ts");
const packed = deflateSync(archive(fakeFiles({ long: flags.includes("--long") }))).toString("base64");
await server.close();

const page = new URL("../../regard/viewer/page/", import.meta.url);
const part = (name) => readFileSync(new URL(name, page), "utf8");
writeFileSync(
  path,
  `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>regard</title>
<style>${part("page.css")}</style><div id="regard"></div>
<script type="text/plain" id="regard-recordings">${packed}</script>
<script type="module">${part("page.js")}</script></html>`,
);
