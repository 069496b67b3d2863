import { readFileSync } from "node:fs";
import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

/** Swagger UI as its package has it, beside `public/docs/`: the API's own pages ask no other host for anything. */
const swagger: Plugin = {
  name: "swagger-ui",
  generateBundle() {
    for (const name of ["swagger-ui.css", "swagger-ui-bundle.js"]) {
      const source = readFileSync(new URL(`node_modules/swagger-ui-dist/${name}`, import.meta.url));
      this.emitFile({ type: "asset", fileName: `docs/${name}`, source });
    }
  },
};

// The control plane's content security policy is `default-src 'self'`: nothing may be inlined as a data: URI.
export default defineConfig({
  plugins: [react(), swagger],
  build: { target: "es2023", assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  server: { proxy: { "/v1": process.env.SHARDYARD_URL ?? "http://127.0.0.1:8400" } },
  test: {
    environment: "jsdom",
    include: ["src/**/*.test.{ts,tsx}"],
    restoreMocks: true,
    unstubGlobals: true,
    setupFiles: "src/testing/setup.ts",
    // One jsdom per worker instead of one per file: a sixth of the processor time. `setup.ts` and the two above clean up between tests.
    isolate: false,
    // A machine that is busy with other things is slow, not wrong.
    testTimeout: 120_000,
    expect: { poll: { timeout: 60_000 } },
  },
});
