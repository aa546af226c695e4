import type { ModelInfo } from '../data/wire';
import { selection } from '../state/selection.svelte';
import { named } from './list';
import { changes } from './state.svelte';

/** A link to the lab, with the list as it was left there. */
export function labHref(model: ModelInfo | undefined): string {
  const { view, options, hide } = selection.place;
  const kept = changes.model === model?.id ? named(changes.steps.now) : {};
  return selection.viewing(
    'lab',
    view === 'lab' ? options : kept,
    model?.family === 'encoder-only' ? hide : [],
  );
}
