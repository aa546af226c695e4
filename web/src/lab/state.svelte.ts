import type { Comparison, HeadSweep } from '../data/wire';
import { Latest } from '../state/latest.svelte';
import type { Item } from './list';
import type { Steps } from './undo';

// What the lab shows, kept while other views are looked at.
export const compared = new Latest<Comparison>('diff');
export const swept = new Latest<HeadSweep>('sweep');

class Changes {
  /** The list as it was, is, and was taken back. */
  steps = $state.raw<Steps<Item[]>>({ past: [], now: [], future: [] });
  /** The model whose list it is. */
  model = $state.raw<string | null>(null);
}
export const changes = new Changes();
