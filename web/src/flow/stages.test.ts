import { describe, expect, it } from 'vitest';
import type { Stage } from '../data/wire';
import { greatest, look, numberAt, runs, segments, shortName, spans } from './stages';

/** A stage of these dimensions; of the rest what a value without rows and columns has. */
function stage(name: string, dims: string, index: number[], more: Partial<Stage> = {}): Stage {
  return {
    part: 'attention',
    joint: null,
    name,
    meaning: '',
    formula: '',
    note: null,
    dims: dims.split(' '),
    shape: index.map((each) => each + 1),
    index,
    values: { shape: [1, 1], f16: 'AAA=' },
    rows: [],
    columns: [],
    words: [],
    norm: null,
    total: null,
    ...more,
  };
}

describe('the number of a cell', () => {
  it.each([
    ['a vector', stage('a.out', 'B T D', [0, 4, 0]), { row: 0, column: 7 }, [0, 4, 7]],
    ['a query', stage('a.q', 'B H T E', [0, 2, 4, 0]), { row: 0, column: 7 }, [0, 2, 4, 7]],
    ['a key', stage('a.k', 'B K S E', [0, 1, 4, 0]), { row: 3, column: 7 }, [0, 1, 3, 7]],
    ['a weight', stage('a.pattern', 'B H T S', [0, 2, 4, 4]), { row: 0, column: 1 }, [0, 2, 4, 1]],
    ['a head of many', stage('a.q_proj', 'B T HE', [0, 4, 32]), { row: 0, column: 3 }, [0, 4, 35]],
    ['keys of a head', stage('a.k_proj', 'B S KE', [0, 4, 16]), { row: 2, column: 3 }, [0, 2, 19]],
    ['an expert', stage('m.expert_weight', 'B T A', [0, 4, 0]), { row: 0, column: 1 }, [0, 4, 1]],
    ['of an expert', stage('m.expert_out', 'B T A D', [0, 4, 0, 0]), { row: 1, column: 5 }, [0, 4, 1, 5]],
    ['a word', stage('l', 'B T V', [0, 4, 9], { words: [9, 3] }), { row: 0, column: 1 }, [0, 4, 3]],
    ['a row of the table', stage('e.tokens.weight', 'V D', [9, 0]), { row: 0, column: 5 }, [9, 5]],
    ['an id', stage('ids', 'B T', [0, 4]), { row: 0, column: 0 }, [0, 4]],
  ])('%s', (_, of, cell, index) => {
    expect(numberAt(of, cell)).toEqual({ name: of.name, index });
  });
});

describe('a part', () => {
  const branch = ['a.q', 'a.k', 'a.v'].map((name) => stage(name, 'B T D', [0, 0, 0]));
  const [before, after] = (['as it is', 'added'] as const).map((joint) =>
    stage(`resid`, 'B T D', [0, 0, 0], { joint }),
  );

  it('is the stream, and what branches off between', () => {
    expect(runs([before!, ...branch, after!])).toEqual([{ stream: before }, { branch }, { stream: after }]);
    expect(runs([...branch])).toEqual([{ branch }]);
  });

  it('has its cards in full rows', () => {
    const wide = stage('a.scores', 'B H T S', [0, 0, 0, 0], { columns: ['a'] });
    const normed = stage('r.normed', 'B T D', [0, 0, 0]);
    expect(spans([normed, ...branch, wide, ...branch.slice(1)])).toEqual([6, 2, 2, 2, 6, 3, 3]);
    expect(spans([...branch, branch[0]!])).toEqual([3, 3, 3, 3]);
    expect(spans([...branch, ...branch.slice(1)])).toEqual([2, 2, 2, 3, 3]);
    expect(spans([branch[0]!, wide])).toEqual([6, 6]);
  });
});

describe('a stage', () => {
  it('is drawn by what its numbers are', () => {
    expect(look(stage('ids', 'B T', [0, 0]))).toBe('id');
    expect(look(stage('m.expert_index', 'B T A', [0, 0, 0], { columns: ['3'] }))).toBe('chosen');
    expect(look(stage('q', 'B T D', [0, 0, 0]))).toBe('strip');
    expect(look(stage('s', 'B H T S', [0, 0, 0, 0], { columns: ['a'] }))).toBe('cells');
    expect(look(stage('p', 'B H T S', [0, 0, 0, 0], { columns: ['a'], total: 1 }))).toBe('shares');
    expect(shortName(stage('a.b.q', 'B T D', [0, 0, 0]))).toBe('q');
    expect(shortName(stage('e.weight', 'V D', [0, 0]))).toBe('E[id]');
  });
});

describe('shares', () => {
  it('are parts of a bar, small ones together', () => {
    expect(segments([0.5, 0.001, 0.002, 0.4, 0])).toEqual([
      { at: 0, share: 0.5 },
      { at: null, share: 0.003 },
      { at: 3, share: 0.4 },
    ]);
    expect(segments(Array(500).fill(0.002))).toHaveLength(500);
  });

  it('are told from the greatest', () => {
    expect(greatest([1, -Infinity, 5, 3], 2)).toEqual([2, 3]);
  });
});
