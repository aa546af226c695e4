import type { Flow } from '../data/wire';
import { Latest } from '../state/latest.svelte';

// The way that the view shows, kept while other views are looked at.
export const way = new Latest<Flow>('flow');
