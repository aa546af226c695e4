import { describe, expect, it } from 'vitest';
import { corner, mapOf, ordered, pinned, placeOf, rank, spread, tiled, under } from './heads';
import { stacked } from './paint';

const PALETTE = {
  weight: [0x1a, 0x70, 0xe0, 255],
  above: [0xd9, 0x66, 0x0b, 255],
  below: [0x75, 0x55, 0xd0, 255],
  hidden: [0x80, 0x80, 0x80, 0x38],
  nan: [0xff, 0x00, 0xff, 255],
  paper: [255, 255, 255, 255],
  ink: [26, 26, 26, 255],
} as const;

describe('heads', () => {
  it('are pinned as an address names them, each once, at most eight', () => {
    expect(pinned(['cross.3.0', 'cross.3.0', 'encoder.12.31'])).toEqual([
      { side: 'cross', layer: 3, head: 0 },
      { side: 'encoder', layer: 12, head: 31 },
    ]);
    expect(pinned(['cross.3', 'cross.-1.0', 7, null, '__proto__.1.1'])).toEqual([]);
    expect(pinned('cross.3.0')).toEqual([]);
    expect(pinned(Array.from({ length: 20 }, (_, n) => `decoder.0.${n}`))).toHaveLength(8);
  });

  it('have their numbers where a trace names them', () => {
    const cell = { row: 4, column: 5 };
    const head = { side: 'cross', layer: 3, head: 1 } as const;
    expect(placeOf(head, 'masked', cell)).toEqual({
      name: 'decoder.layers.3.cross_attn.masked',
      index: [0, 1, 4, 5],
    });
    expect(placeOf({ ...head, side: 'encoder' }, 'pattern', cell)?.name).toBe(
      'encoder.layers.3.self_attn.pattern',
    );
    expect(placeOf({ ...head, side: 'decoder' }, 'scores', cell)?.name).toBe(
      'decoder.layers.3.self_attn.scores',
    );
    expect(placeOf(head, 'values', cell)).toBeNull();
  });

  it('stand in the order of a measure, and have a rank by it', () => {
    const values = Float32Array.of(0.5, 2, 0.5, 3);
    expect(ordered(4, values, 'layers')).toEqual([0, 1, 2, 3]);
    expect(ordered(4, null, 'most')).toEqual([0, 1, 2, 3]);
    expect(ordered(4, values, 'most')).toEqual([3, 1, 0, 2]);
    expect(ordered(4, values, 'least')).toEqual([0, 2, 1, 3]);
    expect([0, 1, 2, 3].map((place) => rank(values, place))).toEqual([3, 2, 3, 1]);
  });
});

describe('small maps', () => {
  const small = { maps: Float32Array.from({ length: 12 }, (_, n) => n), rows: 2, columns: 2 };

  it('are parts of one array', () => {
    expect([...mapOf(small, 1).values]).toEqual([4, 5, 6, 7]);
  });

  it('are spread over the tokens that their cells stand for', () => {
    const found = spread(mapOf(small, 0), 2, 3, 4);
    expect([...found.values]).toEqual([0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3]);
    const whole = mapOf(small, 2);
    expect(spread(whole, 1, 2, 2)).toBe(whole);
  });
});

describe('tiles', () => {
  it('are under the places where they lie, whatever the room', () => {
    for (const [room, count, columns, labels] of [
      [540, 16, 4, 30],
      [1150, 1024, 32, 30],
      [300, 144, 12, 2],
    ] as const) {
      const tiling = tiled(room, count, columns, { rows: 10, columns: 9 }, labels);
      for (let at = 0; at < count; at++) {
        const { x, y } = corner(tiling, at);
        expect(under(tiling, count, x + 1, y + 1)).toBe(at);
        expect(under(tiling, count, x + tiling.width - 1, y + tiling.height - 1)).toBe(at);
      }
      expect(under(tiling, count, -1, 20)).toBe(-1);
      expect(under(tiling, count, 20, 1e6)).toBe(-1);
    }
  });

  it('fit the room, with whole pixels for each cell where there are some', () => {
    const tiling = tiled(540, 16, 4, { rows: 10, columns: 9 }, 30);
    expect(tiling.width % 9).toBe(0);
    expect(tiling.height % 10).toBe(0);
    expect(corner(tiling, 3).x + tiling.width).toBeLessThanOrEqual(540);
    expect(tiling.caption).toBeGreaterThan(0);
    const flat = tiled(540, 16, 4, null, 30);
    expect(flat.height).toBeLessThan(flat.width);
    expect(flat.caption).toBe(0);
  });

  it('of 1,024 heads are painted soon, none of their lines lost', () => {
    const [rows, columns, count] = [16, 16, 1024];
    const maps = new Float32Array(count * rows * columns);
    for (let n = 0; n < count; n++) for (let i = 0; i < rows; i++) maps[n * 256 + i * 17] = 1;
    const begun = performance.now();
    const found = stacked({ maps, rows, columns }, count, { rows: 12, columns: 12 }, PALETTE);
    expect(performance.now() - begun).toBeLessThan(200);
    expect(found.pixels).toHaveLength(count * 144);
    const full = found.pixels.filter((pixel) => pixel === 0xffe0701a).length;
    expect(full).toBeGreaterThanOrEqual(12 * count);
  });
});
