import type { Text } from '../data/wire';
import { legible } from './legible';

export type Lang = 'en' | 'zh';

/** A text in one language, safe to show. */
export function said(text: Text, lang: Lang): string {
  return legible(typeof text === 'string' ? text : text[lang]);
}
