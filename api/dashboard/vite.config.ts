import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// The control plane's content security policy is `default-src 'self'`: nothing may be inlined as a data: URI.
export default defineConfig({
  plugins: [react()],
  build: { target: "es2023", assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  server: { proxy: { "/v1": process.env.SHARDYARD_URL ?? "http://127.0.0.1:8400" } },
  test: {
    environment: "jsdom",
    include: ["src/**/*.test.{ts,tsx}"],
    restoreMocks: true,
    unstubGlobals: true,
    setupFiles: "src/testing/setup.ts",
    // A machine that is busy with other things is slow, not wrong.
    testTimeout: 120_000,
    expect: { poll: { timeout: 60_000 } },
  },
});
