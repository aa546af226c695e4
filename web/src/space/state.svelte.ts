import type { Analogy, Cloud, Neighbours } from '../data/wire';
import { Latest } from '../state/latest.svelte';

// What the view of the space shows, kept while other views are looked at.
export const cloud = new Latest<Cloud>('cloud');
export const near = new Latest<Neighbours>('neighbours');
export const sum = new Latest<Analogy>('analogy', ['page', 'result']);
export const drift = new Latest<unknown>('drift', ['page']);
