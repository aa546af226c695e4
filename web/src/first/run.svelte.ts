import type { Cover } from '../data/wire';
import { Latest } from '../state/latest.svelte';

/** What the first screen shows, kept while other views are looked at. */
export const run = new Latest<Cover>('cover');
