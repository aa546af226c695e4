import { expect, it } from 'vitest';
import type { Token } from '../data/wire';
import { gapped } from './gaps';

it('puts gaps in the places of tokens, whatever stands before them', () => {
  const token = (start: number | null, end: number | null): Token => ({
    id: 0,
    piece: '',
    start,
    end,
    control: start === null,
  });
  const tokens = [token(null, null), token(0, 2), token(3, 4), token(4, 6)];
  expect(gapped('👩😀 a👩b.', tokens, [2, 1])).toBe('[MASK] [MASK]👩b.');
  expect(gapped('👩😀 a👩b.', tokens, [3])).toBe('👩😀 a[MASK].');
  expect(gapped('👩😀 a', tokens, [0, 17])).toBe('👩😀 a');
});
