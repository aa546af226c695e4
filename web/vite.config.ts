import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// The page works behind any prefix: every address in it is relative.
export default defineConfig({
  base: './',
  plugins: [svelte()],
  build: {
    outDir: '../src/cutaway/serve/_ui',
    emptyOutDir: true,
    // The oldest browsers that know CSS's light-dark().
    target: ['chrome123', 'firefox120', 'safari17.5'],
  },
});
