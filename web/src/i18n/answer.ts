import { en } from './answer.en';
import { zh } from './answer.zh';
import type { Locale } from './locale';

export type Word = keyof typeof en;

const WORDS = { en, zh };

/** A word of the page in one language, `{name}` replaced by its value. */
export function t(lang: Locale, word: Word, values: Record<string, string | number> = {}): string {
  return WORDS[lang][word].replace(/\{(\w+)\}/g, (whole, name: string) =>
    name in values ? String(values[name]) : whole,
  );
}
