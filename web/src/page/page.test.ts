import { describe, expect, it } from 'vitest';
import type { Block, Matrix, Table } from '../data/wire';
import { clusters, textWidth, truncate, width } from '../kit/display';
import { numbersOf, strongest, strongestOf } from './figure';
import { inRows } from './layout';
import { legible } from '../i18n/legible';
import { means, nats, number, numeric, threePlaces, told, written } from '../kit/numbers';
import { said } from '../i18n/said';
import { sortable, sorted } from './sorting';

const halves = (values: number[]) =>
  btoa(String.fromCharCode(...new Uint8Array(Uint16Array.from(values).buffer)));
const matrix = (more: Partial<Matrix> = {}): Matrix => ({
  kind: 'Matrix',
  values: { shape: [1, 2], f16: halves([0x3c00, 0xbe00]) },
  rows: ['a'],
  columns: ['b', 'c'],
  down: 'd',
  across: 'e',
  unit: 'u',
  scale: 'signed',
  drawn: false,
  greatest: null,
  ...more,
});

describe('numbers', () => {
  it('have four digits, as %.4g writes them', () => {
    const cases: [number, string][] = [
      [0.12345, '0.1235'],
      [-12.3456, '-12.35'],
      [1.234e-7, '1.234e-07'],
      [0, '0'],
      [1, '1'],
      [100, '100'],
      [9999.6, '1e+04'],
      [12346, '1.235e+04'],
      [0.00390625, '0.003906'],
      [0.0001, '0.0001'],
      [0.00001, '1e-05'],
      [1.5, '1.5'],
      [NaN, 'NaN'],
      [-Infinity, '−∞'],
    ];
    for (const [value, text] of cases) expect(number(value)).toBe(text);
    expect(number(4.897, 3)).toBe('4.9');
  });

  it('are written as they are in cells, tables and readouts', () => {
    expect([0.004, -0.5, 12.345, -Infinity, NaN].map((value) => written(value, 'signed'))).toEqual([
      '',
      '-0.50',
      '+12.3',
      '',
      'NaN',
    ]);
    expect(written(0.5, 'weight')).toBe('0.50');
    expect([0.0004, -0.0001, 1.5, -Infinity].map(threePlaces)).toEqual(['0.000', '0.000', '1.500', '−∞']);
    expect([0.0625, 0.1875, -0.0625, 0.085, 2.675].map(threePlaces)).toEqual([
      '0.062',
      '0.188',
      '-0.062',
      '0.085',
      '2.675',
    ]);
    expect([0.125, 0.375, 0.085].map((value) => written(value, 'weight'))).toEqual(['0.12', '0.38', '0.09']);
    expect([0.0004, 0, 0.25, Infinity].map(told)).toEqual(['4.0e-4', '0.000', '0.250', '∞']);
    expect([0.004, -1.234, 2].map(nats)).toEqual(['0.00', '-1.23', '+2.00']);
  });

  it('are means of neighbours where there are too many', () => {
    expect(means([1, 2, 3, 4], 2)).toEqual([1.5, 3.5]);
    expect(means([1, 2], 4)).toEqual([1, 2]);
  });

  it('are read from cells', () => {
    const cases: [string, number | null][] = [
      ['1,052,672', 1052672],
      ['21.7 %', 21.7],
      ['+1.50', 1.5],
      ['−2', -2],
      ['-0.25', -0.25],
      ['1.5e-07', 1.5e-7],
      ['−∞', -Infinity],
      ['▁Her', null],
      ['256×1024', null],
      ['1.2.3', null],
      ['', null],
    ];
    for (const [text, value] of cases) expect(numeric(text), text).toBe(value);
    expect(numeric('<.001')).toBeLessThan(0.001);
    expect(numeric('<.001')).toBeGreaterThan(0);
  });
});

describe('texts', () => {
  it('are safe to show', () => {
    expect(legible('a\u202eb\u0000c\ud800')).toBe('a⟨U+202E⟩b⟨U+0000⟩c⟨U+D800⟩');
    expect(legible('👩‍👩‍👧 ❤️ 𠮷\n银')).toBe('👩‍👩‍👧 ❤️ 𠮷\n银');
    expect(legible('a\u200db \ufffd\t')).toBe('a⟨U+200D⟩b ⟨U+FFFD⟩⇥');
    expect(legible(legible('\u202e'))).toBe('⟨U+202E⟩');
  });

  it('are said in one language, data as it is', () => {
    expect(said({ en: 'head', zh: '头' }, 'zh')).toBe('头');
    expect(said('▁Her', 'zh')).toBe('▁Her');
  });

  it('are as wide as they are seen, and cut between characters', () => {
    expect([width('abc'), width('银行'), width('👩‍👩‍👧'), width('é')]).toEqual([3, 4, 2, 1]);
    expect(truncate('👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧', 5)).toBe('👩‍👩‍👧👩‍👩‍👧…');
    expect(clusters('👩‍👩‍👧银')).toHaveLength(2);
    expect(textWidth('a银', 10)).toBe(16);
  });
});

describe('a matrix', () => {
  it('has as many numbers as it says', () => {
    expect([...numbersOf(matrix()).values]).toEqual([1, -1.5]);
    expect(() => numbersOf(matrix({ rows: ['a', 'b'] }))).toThrow('1 × 2 numbers for 2 × 2 cells');
    expect(() => numbersOf(matrix({ values: { shape: [9, 9], f16: 'AAA=' } }))).toThrow('81 numbers');
  });

  it('is as strong as its greatest value, or as it is told', () => {
    expect(strongest(matrix())).toBe(1.5);
    expect(strongest(matrix({ greatest: 4 }))).toBe(4);
    expect(strongest(matrix({ scale: 'weight' }))).toBe(1);
    const atlas = {
      kind: 'Atlas' as const,
      names: [],
      maps: [matrix(), matrix({ greatest: 4 })],
      per_row: 1,
      opened: 0,
    };
    expect(strongestOf(atlas)).toBe(4);
  });
});

describe('tables', () => {
  const column = (title: string) => ({ kind: 'Column' as const, title, align: 'left' as const });
  const table = (titles: string[], rows: Table['rows']): Table => ({
    kind: 'Table',
    columns: titles.map(column),
    rows,
    tint: null,
    keep: 0,
  });

  it('are sorted where a column has numbers that differ, and nothing else', () => {
    const bar = (value: number) => ({ kind: 'Bar' as const, value });
    const found = table(
      ['token', 'share', 'same', '', 'some'],
      [
        ['a', '2 %', '1', bar(1), '1'],
        ['b', '10 %', '1', bar(2), ''],
        ['c', '<.001', '1', bar(3), '2'],
      ],
    );
    expect(sortable(found, 'en')).toEqual([false, true, false, false, true]);
    expect(sorted(found, 1, false, 'en')).toEqual([1, 0, 2]);
    expect(sorted(found, 1, true, 'en')).toEqual([2, 0, 1]);
    expect(sorted(found, 4, false, 'en')).toEqual([2, 0, 1]);
    expect(sorted(found, 4, true, 'en')).toEqual([0, 2, 1]);
  });

  it('have heads in the order of their numbers', () => {
    const found = table(['head'], [['0.10'], ['0.2'], ['1.1'], ['0.9']]);
    expect(sorted(found, 0, true, 'en').map((n) => found.rows[n]![0])).toEqual(['0.2', '0.9', '0.10', '1.1']);
  });
});

describe('the layout', () => {
  const heading = (text: string): Block => ({ kind: 'Heading', text });
  const prose: Block = { kind: 'Prose', label: 'a', text: 'b' };
  const atlas: Block = { kind: 'Atlas', names: ['a'], maps: [matrix()], per_row: 1, opened: 0 };

  it('has every block once and in order', () => {
    const blocks = [prose, heading('1'), atlas, prose, heading('2'), matrix(), heading('3'), prose];
    const rows = inRows(blocks, 'en');
    const places = rows.flatMap(({ broad, columns }) =>
      [...(broad ? [broad] : []), ...columns].flatMap((section) => section.blocks.map((each) => each.place)),
    );
    expect(places).toEqual(blocks.map((_, n) => n));
    expect(rows.map(({ broad, columns }) => [broad !== null, columns.length])).toEqual([
      [false, 1],
      [true, 0],
      [false, 3],
    ]);
  });

  it('puts columns beside what is not too broad', () => {
    const tower = {
      kind: 'Tower' as const,
      top: '',
      above: [],
      repeated: [],
      times: 1,
      below: [],
      bottom: '',
    };
    const two: Block = { kind: 'Diagram', towers: [tower, tower], memory: 'm', enters: 0 };
    expect(inRows([two, prose], 'en')).toMatchObject([{ broad: {}, columns: [{}] }]);
  });
});
