import { expect, it } from 'vitest';
import { en } from './en';
import { preferred } from './locale';
import { both, say, speak, t } from './words.svelte';
import { zh } from './zh';

it('both languages have the same words with the same values', () => {
  const values = (text: string): string[] => [...text.matchAll(/\{\w+\}/g)].map((found) => found[0]).sort();
  expect(Object.keys(zh).sort()).toEqual(Object.keys(en).sort());
  for (const key of Object.keys(en) as (keyof typeof en)[]) {
    expect(values(zh[key]), key).toEqual(values(en[key]));
    expect(zh[key].trim(), key).not.toBe('');
  }
});

it('says data as they are and phrases in the language of the page', () => {
  speak('zh');
  expect(say({ en: 'head', zh: '头' })).toBe('头');
  expect(say('{n}')).toBe('{n}');
  expect(t('chip.cover', { word: '$& {word}' })).toBe('遮住 $& {word}');
  speak('en');
  expect(t('model.size.K', { n: 9400 })).toBe('9,400 parameters');
  expect(both('chip.cover', { word: '北' })).toEqual({ en: 'Cover 北', zh: '遮住 北' });
});

it.each([
  [['zh-CN', 'en'], 'zh'],
  [['fr', 'zh-Hant-TW'], 'zh'],
  [['fr', 'en-GB'], 'en'],
  [[], 'en'],
])('%j → %s', (languages, locale) => {
  expect(preferred(languages)).toBe(locale);
});
