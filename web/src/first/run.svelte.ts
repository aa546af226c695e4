import type { Cover, ModelInfo } from '../data/wire';
import { Latest } from '../state/latest.svelte';

/** What the first screen shows, kept while other views are looked at. */
export const run = new Latest<Cover>('cover');

/** What it found of a text in a model; null where it was asked of another one last. */
export function coverOf(model: ModelInfo | undefined, text: string): Cover | null {
  const same = run.asked?.model === model?.id && run.asked?.text === text;
  return same ? (run.answer?.result ?? null) : null;
}

/** The option of a run in which all that a decoder-only model goes on to write stands too. */
export function allOf(cover: Cover | null): { max_new_tokens?: number } {
  return cover ? { max_new_tokens: cover.target.at(-1)?.tokens[1] ?? 0 } : {};
}
