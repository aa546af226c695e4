import { expect, it } from 'vitest';
import type { Lens, Packed } from '../data/wire';
import { reach } from '../kit/reach';
import { chance } from '../kit/numbers';
import { readings, spots, usual } from './spots';

function packed(shape: number[], values: number[]): Packed {
  const bytes = new Uint8Array(Float32Array.from(values).buffer);
  return { shape, f32: btoa(String.fromCharCode(...bytes)) };
}
const log = Math.log;
// Two readings of three places; token 9 is pinned.
const LENS: Lens = {
  tokens: { ids: [2, 4, 6], pieces: ['<s>', '[MASK]', 'sat'] },
  outcome: { ids: [2, 5, 6], pieces: ['<s>', 'king', 'sat'] },
  layers: [0, 1],
  log_probs: packed([2, 3, 1], [log(0.5), log(0.25), log(0.75), log(0.9), log(0.6), log(0.8)]),
  pieces: [
    [['<s>'], ['day'], ['sat']],
    [['<s>'], ['king'], ['on']],
  ],
  outcome_log_probs: packed([2, 3], [log(0.5), log(0.01), log(0.75), log(0.9), log(0.6), log(0.1)]),
  outcome_ranks: packed([2, 3], [1, 40, 1, 1, 1, 3]),
  pinned: { ids: [9], pieces: ['queen'] },
  pinned_log_probs: packed([2, 3, 1], [log(0.1), log(0.02), log(0.1), log(0.1), log(0.3), log(0.1)]),
  pinned_ranks: packed([2, 3, 1], [7, 12, 8, 9, 2, 9]),
  approximate: null,
};

it('a place has the probability and the rank of its token, by the last reading', () => {
  const found = spots(LENS, 'encoder-decoder', 0);
  expect(found.map((spot) => spot.piece)).toEqual(['<s>', 'king', 'sat']);
  expect(found.map((spot) => spot.rank)).toEqual([1, 1, 3]);
  [0.9, 0.6, 0.1].forEach((share, at) => expect(found[at]!.share).toBeCloseTo(share, 6));
  expect(found.map((spot) => spot.kind)).toEqual(['written', 'written', 'written']);
  expect(usual(found)).toBe(0);
});

it('knows what was given, what was written after it, and what was a gap', () => {
  const kinds = (family: 'decoder-only' | 'encoder-only', read: number) =>
    spots(LENS, family, read).map((spot) => spot.kind);
  expect(kinds('encoder-only', 0)).toEqual(['given', 'gap', 'given']);
  expect(usual(spots(LENS, 'encoder-only', 0))).toBe(1);
  expect(kinds('decoder-only', 3)).toEqual(['given', 'given', 'written']);
  expect(usual(spots(LENS, 'decoder-only', 3))).toBe(2);
  expect(usual(spots(LENS, 'decoder-only', 9))).toBe(1);
});

it('reads one place layer by layer, with the pinned token', () => {
  const found = readings(LENS, 1);
  expect(found.map(({ layer, piece, rank }) => [layer, piece, rank])).toEqual([
    [0, 'day', 40],
    [1, 'king', 1],
  ]);
  expect(found.map((reading) => reading.pinned?.rank)).toEqual([12, 2]);
  expect(found[1]!.share).toBeCloseTo(0.6, 6);
  expect(found[1]!.pinned!.share).toBeCloseTo(0.3, 6);
  const none = { ...LENS, pinned: { ids: [], pieces: [] } };
  expect(readings(none, 1)[0]!.pinned).toBeNull();
});

it('a slider goes as far as the option does, and where that has no end as far as is useful', () => {
  const option = { name: 'x', about: '', required: false, positional: false };
  expect(reach({ ...option, kind: 'number', default: 1, at_least: 0, at_most: 1 })).toMatchObject({
    low: 0,
    high: 1,
  });
  expect(reach({ ...option, kind: 'number', default: 1 })).toEqual({ low: 1, high: 2, step: 0.01 });
  expect(reach({ ...option, kind: 'integer', default: null, at_least: 2 })).toEqual({
    low: 2,
    high: 50,
    step: 1,
  });
});

it.each([
  [1, '100%'],
  [0, '0%'],
  [0.8706, '87.1%'],
  [0.0432, '4.32%'],
  [0.00062, '0.062%'],
  [1e-9, '< 0.001%'],
])('%d is told as %s', (share, told) => {
  expect(chance(share, 'en')).toBe(told);
});
