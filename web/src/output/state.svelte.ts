import type { Candidates, Comparison, Lens } from '../data/wire';
import { Latest } from '../state/latest.svelte';

// What the view of the output shows, kept while other views are looked at.
export const whole = new Latest<Lens>('lens');
export const place = new Latest<Candidates>('candidates');
export const forced = new Latest<Comparison>('diff');
export const pinned = new Latest<Lens>('lens');
export const parts = new Latest<unknown>('logit', ['page']);
