import { en } from '../i18n/ask.en';
import { zh } from '../i18n/ask.zh';
import type { Lang } from '../page/said';
import type { Problem } from './form';

export type Word = keyof typeof en;

const WORDS = { en, zh };

/** A word of the page in one language, `{name}` replaced by its value. */
export function t(lang: Lang, word: Word, values: Record<string, string | number> = {}): string {
  return WORDS[lang][word].replace(/\{(\w+)\}/g, (whole, name: string) =>
    name in values ? String(values[name]) : whole,
  );
}

/** What is wrong with a field, as a sentence. */
export function problemText(lang: Lang, { word, values, expected }: Problem): string {
  return t(lang, word, { ...values, ...(expected ? { expected: problemText(lang, expected) } : {}) });
}
