import type { Text } from '../data/wire';
import { en as answerEn } from './answer.en';
import { zh as answerZh } from './answer.zh';
import { en } from './en';
import type { Locale } from './locale';
import { zh } from './zh';

const WORDS = { en: { ...answerEn, ...en }, zh: { ...answerZh, ...zh } };
export type Key = keyof typeof WORDS.en;
type Values = Record<string, string | number>;

const spoken = $state<{ locale: Locale }>({ locale: 'en' });

/** The language of the page, in which `t` and `say` answer; whoever asks in an effect or in markup hears of a change. */
export function locale(): Locale {
  return spoken.locale;
}

export function speak(locale: Locale): void {
  spoken.locale = locale;
}

/** A phrase of the page's own, `{name}` replaced by its value; numbers as the language writes them. */
export function t(key: Key, values: Values = {}): string {
  return filled(WORDS[spoken.locale][key], spoken.locale, values);
}

/** A phrase of the page's own as the server sends its phrases: in both languages. */
export function both(key: Key, values: Values = {}): { en: string; zh: string } {
  return { en: filled(WORDS.en[key], 'en', values), zh: filled(WORDS.zh[key], 'zh', values) };
}

/** What the server sent: data as it is, a phrase in the page's language. */
export function say(text: Text): string {
  return typeof text === 'string' ? text : text[spoken.locale];
}

function filled(template: string, locale: Locale, values: Values): string {
  return template.replace(/\{(\w+)\}/g, (whole, name: string) => {
    const value = values[name];
    if (value === undefined) return whole;
    return typeof value === 'number' ? new Intl.NumberFormat(locale).format(value) : value;
  });
}
