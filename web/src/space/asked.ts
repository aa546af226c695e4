import type { ModelInfo } from '../data/wire';
import { t } from '../i18n/answer';
import type { Locale } from '../i18n/locale';

/** A word as a place names it: by its spelling, or by its id. */
export type Token = string | number;
export type Trio = { a: Token; b: Token; c: Token };
export type Two = { text: string; other: string; word: string };

export function token(value: unknown): Token | null {
  return (typeof value === 'string' && value.trim() !== '') || Number.isInteger(value)
    ? (value as Token)
    : null;
}

/** The words a - b + c of these options; null where one of them is missing. */
export function trio(options: Record<string, unknown>): Trio | null {
  const [a, b, c] = [token(options['a']), token(options['b']), token(options['c'])];
  return a === null || b === null || c === null ? null : { a, b, c };
}

/** The two sentences and the word of these options. */
export function two(options: Record<string, unknown>, text: string | null): Two | null {
  const { other, word } = options;
  return text && typeof other === 'string' && other && typeof word === 'string' && word
    ? { text, other, word }
    : null;
}

/** Two sentences to begin with, in a language that the model reads: that of its first example. */
export function firstTwo(first: ModelInfo['examples'][number] | undefined, lang: Locale): Two {
  const read: Locale = first ? (/\p{Script=Han}/u.test(first.text) ? 'zh' : 'en') : lang;
  return { text: t(read, 'twoText'), other: t(read, 'twoOther'), word: t(read, 'twoWord') };
}
