import { describe, expect, it } from 'vitest';
import type { Cover, Unit } from '../data/wire';
import { isCovered, percent, ribbons, shares, strongest, toggled, written } from './shown';

const unit = (text: string, first: number, end = first + 1, control = false): Unit => ({
  text,
  tokens: [first, end],
  control,
  name: text,
  pieces: [text],
});
const row = (words: string): Unit[] => words.split(' ').map((word, at) => unit(word, at));

function cover(changes: Partial<Cover>): Cover {
  const target = changes.target ?? [];
  return {
    family: 'encoder-decoder',
    source: [],
    target,
    weights: { shape: [0, 0], f16: '' },
    told: [],
    light: null,
    hidden: [],
    base: { target, text: '' },
    text: '',
    edits: [],
    sentence: null,
    ...changes,
  };
}

const shown = (before: string, now: string): string =>
  written(cover({ target: row(now), base: { target: row(before), text: '' }, hidden: [1] }))
    .map((word) => ('gone' in word ? `-${word.gone}` : `${word.changed ? '+' : ''}${word.unit.text}`))
    .join(' ');

describe('what covering changed', () => {
  it.each([
    ['Her sister works in Beijing .', 'Her sister works in Kyoto .', 'Her sister works in -Beijing +Kyoto .'],
    [
      'Her sister works in Beijing .',
      'Her sister is working .',
      'Her sister -works -in -Beijing +is +working .',
    ],
    ['a b', 'a b', 'a b'],
    ['a', 'b a c', '+b a +c'],
    ['a b c', 'c', '-a -b c'],
  ])('%s → %s', (before, now, expected) => {
    expect(shown(before, now)).toBe(expected);
  });

  it('every unit stands there once, in order, with its own place', () => {
    const words = written(
      cover({ target: row('x b y d d'), base: { target: row('a b c d'), text: '' }, hidden: [0] }),
    );
    expect(words.flatMap((word) => ('unit' in word ? [word.at] : []))).toEqual([0, 1, 2, 3, 4]);
  });

  it('nothing is changed where nothing is covered', () => {
    expect(written(cover({ target: row('a b') })).every((word) => 'unit' in word && !word.changed)).toBe(
      true,
    );
  });
});

describe('covering', () => {
  it('a unit of several tokens is covered and uncovered whole', () => {
    const word = unit('Beijing', 3, 6);
    expect(toggled([1], word)).toEqual([1, 3, 4, 5]);
    expect(toggled([1, 3, 4, 5], word)).toEqual([1]);
    expect(toggled([4], word)).toEqual([]);
    expect([isCovered([5], word), isCovered([6], word), isCovered([2], word)]).toEqual([true, false, false]);
  });

  it('the strongest word is no mark, no punctuation and not covered', () => {
    const source = [unit('>>eng<<', 0, 1, true), unit('北', 1), unit('京', 2), unit('。', 3)];
    const weights = new Float32Array([0.5, 0.2, 0.1, 0.2]);
    expect(strongest(cover({ source }), weights)).toBe(1);
    expect(strongest(cover({ source, hidden: [1] }), weights)).toBe(2);
    expect(strongest(cover({ source, hidden: [1, 2] }), weights)).toBe(-1);
  });
});

describe('ribbons', () => {
  const place = (left: number, right: number, top: number) => ({ left, right, top, bottom: top + 40 });
  const sources = [place(0, 40, 0), place(50, 90, 0), undefined, place(100, 140, 0)];

  it('divide the upper edge of the word by their shares, in the order of the text', () => {
    const drawn = ribbons(new Float32Array([0.25, 0.5, 0.1, 0.15]), sources, place(200, 308, 200));
    expect(drawn.map((each) => each.source)).toEqual([0, 1, 3]);
    const edges = drawn.map((each) => {
      const numbers = each.path.match(/[\d.]+/g)!.map(Number);
      return [numbers[6], numbers[8]];
    });
    expect(edges).toEqual([
      [204, 229],
      [229, 279],
      [279, 294],
    ]);
  });

  it('leave out what is no share to speak of', () => {
    expect(ribbons(new Float32Array([0, 0.001, 0, 1]), sources, place(0, 100, 100))).toHaveLength(1);
  });

  it('are at most 2,000', () => {
    const many = Array.from({ length: 3000 }, (_, n) => place(n, n + 1, 0));
    expect(ribbons(new Float32Array(3000).fill(0.01), many, place(0, 100, 100))).toHaveLength(2000);
  });
});

it('a row of weights is that of its unit', () => {
  const values = new Float32Array([1, 2, 3, 4, 5, 6]);
  expect([...shares({ rows: 2, columns: 3, values }, 1)]).toEqual([4, 5, 6]);
});

it('a share that rounds to nothing is not told as nothing', () => {
  expect([percent(0.654, 'en'), percent(0.001, 'en'), percent(0, 'zh')]).toEqual(['65%', '< 1%', '0%']);
});
