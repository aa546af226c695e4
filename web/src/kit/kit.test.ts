import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { textWidth } from './display';
import { laid, stacked, stands } from './labels';
import { move } from './moves';
import { MARK, placed } from './placement';
import { throttled } from './throttle';
import { gradient, tint } from './tint';

const many = (count: number, name = (n: number) => String(n)) =>
  Array.from({ length: count }, (_, n) => name(n));

describe('labels of a heat map', () => {
  const room = { cell: 40, across: 560, down: 560 };

  it('lie flat where they fit, stand where there is Chinese, else are slanted', () => {
    expect(laid(many(4), many(4), room).titles).toBe('flat');
    expect(laid(many(4), ['她的', '妹妹', '<s>'], { ...room, cell: 24 }).titles).toBe('upright');
    expect(laid(many(4), ['▁sister', '▁works'], room).titles).toBe('slanted');
  });

  it('stay inside their room, the last one too', () => {
    for (const columns of [many(9, (n) => `cross_attn.${n}`), many(64), many(20, (n) => `第 ${n} 层`)]) {
      for (const across of [340, 560, 1150]) {
        const at = laid(['self_attention', 'b'], columns, { ...room, across });
        expect(at.cell, `${columns.length} in ${across}`).toBeGreaterThan(2);
        expect(at.width).toBeLessThanOrEqual(across);
        expect(at.left).toBeGreaterThan(textWidth('self_attention', 12));
      }
    }
  });

  it('are left out where they would touch', () => {
    const at = laid(many(512), many(512), { ...room, across: 1150 });
    expect(at.cell).toBe(2);
    expect(at.every * at.cell).toBeGreaterThanOrEqual(at.font);
    expect(at.titleEvery).toBeGreaterThan(1);
    expect(laid(many(9), many(9), room)).toMatchObject({ every: 1, titleEvery: 1 });
  });

  it('are cut where they are long', () => {
    const [cut] = laid(['a very long label indeed'], ['a'], room).rows;
    expect(cut).toBe('a very long label…');
    expect(laid(['银'.repeat(20)], ['a'], room).rows[0]).toBe(`${'银'.repeat(8)}…`);
  });

  it('stand character by character, none of them cut', () => {
    expect(stacked('👩‍👩‍👧 银')).toEqual(['👩‍👩‍👧', '银']);
    expect([stands('妹妹'), stands('.'), stands('</s>')]).toEqual([true, true, false]);
  });
});

describe('the keys of a grid', () => {
  const size = { rows: 30, columns: 5 };
  const from = { row: 12, column: 2 };
  const cases: [string, boolean, number, number][] = [
    ['ArrowUp', false, 11, 2],
    ['ArrowDown', false, 13, 2],
    ['ArrowLeft', false, 12, 1],
    ['ArrowRight', false, 12, 3],
    ['Home', false, 12, 0],
    ['End', false, 12, 4],
    ['Home', true, 0, 0],
    ['End', true, 29, 4],
    ['PageUp', false, 2, 2],
    ['PageDown', false, 22, 2],
  ];
  it.each(cases)('%s (ctrl: %s)', (key, ctrl, row, column) => {
    expect(move(from, key, size, ctrl)).toEqual({ row, column });
  });

  it('stop at the edges', () => {
    for (const key of ['ArrowUp', 'ArrowLeft', 'PageUp'])
      expect(move({ row: 0, column: 0 }, key, size)).toEqual({ row: 0, column: 0 });
    for (const key of ['ArrowDown', 'ArrowRight', 'PageDown'])
      expect(move({ row: 29, column: 4 }, key, size)).toEqual({ row: 29, column: 4 });
  });

  it('leave other keys alone', () => {
    for (const key of ['Tab', 'a', 'Enter', 'Escape']) expect(move(from, key, size)).toBeNull();
  });
});

describe('what is told', () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  it('is told at most four times a second, the newest last', () => {
    const heard: number[] = [];
    const live = throttled((value: number) => heard.push(value), 250);
    for (let n = 0; n < 100; n++) {
      live.say(n);
      vi.advanceTimersByTime(10);
    }
    vi.advanceTimersByTime(1000);
    expect(heard.length).toBeLessThanOrEqual(6);
    expect(heard[0]).toBe(0);
    expect(heard.at(-1)).toBe(99);
  });

  it('is dropped when nobody listens any more', () => {
    const heard: number[] = [];
    const live = throttled((value: number) => heard.push(value), 250);
    live.say(1);
    live.say(2);
    live.stop();
    vi.advanceTimersByTime(1000);
    expect(heard).toEqual([1]);
  });
});

describe('labels of points', () => {
  it('cover neither marks nor one another', () => {
    const marks = many(40).map((_, n) => ({ x: 60 + ((n * 37) % 200), y: 40 + ((n * 53) % 160) }));
    const sizes = marks.map((_, n) => 20 + (n % 30));
    const found = placed(marks, sizes, 11);
    const boxes = found.flatMap((place, n) =>
      place ? [{ left: place.x, top: place.y - 8.8, right: place.x + sizes[n]!, bottom: place.y + 2.2 }] : [],
    );
    expect(boxes.length).toBeGreaterThan(5);
    const apart = (a: (typeof boxes)[0], b: (typeof boxes)[0]) =>
      a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
    for (const [n, box] of boxes.entries()) {
      for (const other of boxes.slice(n + 1)) expect(apart(box, other)).toBe(true);
      for (const { x, y } of marks)
        expect(apart(box, { left: x - MARK, top: y - MARK, right: x + MARK, bottom: y + MARK })).toBe(true);
    }
  });

  it('go where no line runs if they can', () => {
    const [place] = placed([{ x: 100, y: 50 }], [30], 11, [
      [
        { x: 100, y: 50 },
        { x: 200, y: 50 },
      ],
    ]);
    expect(place!.x).toBeLessThan(100);
    expect(placed([{ x: 2, y: 2 }], [0], 11)).toEqual([null]);
  });
});

describe('tints', () => {
  it('are mixed of the palette alone', () => {
    expect(tint(0.25, 'weight')).toBe('color-mix(in srgb, var(--weight) 37.5%, transparent)');
    expect(tint(1, 'signed')).toBe('color-mix(in srgb, var(--above) 75.0%, transparent)');
    expect(tint(-0.5, 'signed')).toBe('color-mix(in srgb, var(--below) 37.5%, transparent)');
    expect([tint(null, 'weight'), tint(NaN, 'signed')]).toEqual(['transparent', 'transparent']);
    expect(gradient('weight')).toContain('var(--weight) 100.0%');
    expect(gradient('signed', 80)).toMatch(/--below\) 80.*transparent.*--above\) 80/);
  });
});
