import { describe, expect, it } from 'vitest';
import type { Operand } from '../data/wire';
import { apart, listed, operandText, parent, scaleOf } from './operands';

function operand(name: string | null, index: (number | string)[], more: Partial<Operand> = {}): Operand {
  return {
    symbol: 'x',
    name,
    index,
    values: { shape: [], f32: '' },
    meaning: '',
    element: null,
    labels: {},
    ...more,
  };
}

describe('where a number of an operand comes from', () => {
  it.each([
    [operand('a', [0, 1, 2]), [], 0, [0, 1, 2]],
    [operand('a', [0, ':', 2]), [5], 3, [0, 3, 2]],
    [operand('a', [0, '4:8']), [4], 3, [0, 7]],
    [operand('a', [0, ':', 4, ':']), [2, 3], 4, [0, 1, 4, 1]],
    [operand('loss', []), [], 0, []],
  ])('%j %j %i', (of, sizes, place, index) => {
    expect(parent(of, sizes, place)).toEqual({ name: of.name, index });
  });

  it('is nowhere for a constant', () => {
    expect(parent(operand(null, []), [], 0)).toBeNull();
    expect(operandText(operand(null, []))).toBe('');
    expect(operandText(operand('a.b', [0, '4:8']))).toBe('a.b[0,4:8]');
  });
});

it('a hidden number is no finite one', () => {
  expect(apart(1.5, 1.25)).toBe(0.25);
  expect(apart(null, null)).toBe(0);
  expect(apart(null, 0)).toBe(Infinity);
  expect(apart(0, null)).toBe(Infinity);
});

describe('the numbers that are listed', () => {
  const line = Float32Array.from([1, -9, 3, 0, 5, 2]);
  it('are all of a short line, the greatest of a long one', () => {
    expect(listed(operand('a', [':']), line, 6)).toEqual([0, 1, 2, 3, 4, 5]);
    expect(listed(operand('a', [':']), line, 5)).toEqual([1, 4, 2]);
    expect(listed(operand('a', [':'], { element: ['m[s]', 3] }), line, 5)).toEqual([3, 1, 4, 2]);
  });

  it('are those with words, and all tokens of a text of some length', () => {
    expect(listed(operand('a', [':'], { labels: { 4: 'e', 1: 'b' } }), line, 3)).toEqual([4, 1]);
    const tokens = Object.fromEntries([...'abcdef'].map((each, n) => [n, each]));
    expect(listed(operand('a', [':'], { labels: tokens }), line, 3)).toHaveLength(6);
    expect(listed(operand('a', [':'], { labels: tokens }), line, 2)).toEqual([4, 2]);
  });

  it('have the colours of weights where they are weights', () => {
    expect(scaleOf(operand('a.pattern', [':']))).toBe('weight');
    expect(scaleOf(operand('probabilities', [':']))).toBe('weight');
    expect(scaleOf(operand('a.scores', [':']))).toBe('signed');
  });
});
