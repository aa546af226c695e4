import type { HeadSheet, HeadSweep, Side } from '../data/wire';
import { Latest } from '../state/latest.svelte';
import type { Stage } from './heads';

// What the view of the heads shows, kept while other views are looked at.
export const sheet = new Latest<HeadSheet>('heads');
/** Of other sides, for the heads of theirs that are pinned. */
export const others: Record<Side, Latest<HeadSheet>> = {
  encoder: new Latest<HeadSheet>('heads'),
  decoder: new Latest<HeadSheet>('heads'),
  cross: new Latest<HeadSheet>('heads'),
};
export const sweep = new Latest<HeadSweep>('sweep');
/** The whole maps of one head. */
export const stages: Record<Stage, Latest<unknown>> = {
  scores: new Latest('attention', ['page']),
  scaled: new Latest('attention', ['page']),
  masked: new Latest('attention', ['page']),
  pattern: new Latest('attention', ['page']),
  values: new Latest('values', ['page']),
};
