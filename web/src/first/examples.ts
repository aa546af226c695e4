import { type Locale } from '../i18n/locale';
import type { ModelInfo } from '../data/wire';
import { preferences } from '../state/preferences.svelte';

let first: Locale | null = null;

/**
 * The sentence that a model is shown with: its first one in the language that the page was opened in, so that another
 * language of the page changes no text that is looked at.
 */
export function example(model: ModelInfo | undefined): string | null {
  first ??= preferences.locale;
  const texts = model?.examples.map((each) => each.text) ?? [];
  return texts.find((text) => isChinese(text) === (first === 'zh')) ?? texts[0] ?? null;
}

function isChinese(text: string): boolean {
  return /\p{Script=Han}/u.test(text);
}
