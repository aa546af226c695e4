import type { ModelInfo } from '../data/wire';
import type { Locale } from '../i18n/locale';
import type { Place } from '../state/place';
import { preferences } from '../state/preferences.svelte';
import { selection } from '../state/selection.svelte';
import { sorted } from '../state/place';

let opened: Locale | null = null;

/**
 * The sentences that a model is shown with, those in the language that the page was opened in before the others:
 * another language of the page then changes no text that is looked at.
 */
export function examples(model: ModelInfo | undefined): ModelInfo['examples'] {
  opened ??= preferences.locale;
  const all = model?.examples ?? [];
  const fits = (text: string): boolean => /\p{Script=Han}/u.test(text) === (opened === 'zh');
  return [...all.filter((each) => fits(each.text)), ...all.filter((each) => !fits(each.text))];
}

/** The text that is looked at: that of the place, else the model's first example. */
export function textOf(model: ModelInfo | undefined): string {
  return selection.place.text ?? examples(model)[0]?.text ?? '';
}

/** The positions of a text that are worth covering, as the model's example says; none of a text that is no example. */
export function telling(model: ModelInfo | undefined, text: string | null | undefined): number[] {
  const hide = model?.examples.find((each) => each.text === text)?.options['hide'];
  return Array.isArray(hide) ? sorted(hide.filter((place) => Number.isInteger(place))) : [];
}

/** Where a model is first looked at: its first example; one that fills gaps has a word of it covered. */
export function opening(model: ModelInfo): Partial<Place> {
  const hide = model.family === 'encoder-only' ? telling(model, examples(model)[0]?.text) : [];
  return { text: null, hide, light: null, options: {} };
}
