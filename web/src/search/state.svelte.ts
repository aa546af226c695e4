import type { Alignment, Tree } from '../data/wire';
import { Latest } from '../state/latest.svelte';

// What the view of the search shows, kept while other views are looked at.
export const search = new Latest<Tree>('tree');
export const effects = new Latest<Alignment>('align');
