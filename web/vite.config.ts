// How the page is built: one module page.js, one page.css, and index.html copied as it is. The result is committed, so it must
// be the same bytes every time: no hashes in names, no source maps, no chunks.
import { defineConfig } from "vitest/config";

export default defineConfig({
  base: "./",
  build: {
    outDir: "../regard/viewer/page",
    emptyOutDir: false,
    target: "es2022",
    sourcemap: false,
    modulePreload: false,
    cssCodeSplit: false,
    rolldownOptions: {
      input: "src/main.tsx",
      preserveEntrySignatures: "strict",
      output: {
        format: "es",
        codeSplitting: false,
        entryFileNames: "page.js",
        assetFileNames: "page.[ext]",
      },
    },
  },
  test: { include: ["test/**/*.test.ts"] },
});
