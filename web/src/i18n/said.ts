import type { Text } from '../data/wire';
import { legible } from './legible';
import type { Locale } from './locale';

/** A text in one language, safe to show. */
export function said(text: Text, lang: Locale): string {
  return legible(typeof text === 'string' ? text : text[lang]);
}
