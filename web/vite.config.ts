import { defineConfig } from "vite";

// Relative base: the same files work behind any prefix that an ingress puts before them.
export default defineConfig({
  base: "./",
  build: {
    target: "es2022",
    outDir: "dist",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  server: {
    host: "127.0.0.1",
    proxy: { "/api": process.env["BRAIN_URL"] ?? "http://127.0.0.1:8080" },
  },
});
