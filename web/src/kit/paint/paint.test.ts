import { describe, expect, it } from 'vitest';
import { heat, pooled } from './heat';
import { links } from './links';
import { contrast, entry, parseColour, pixel, reach, shades, wantsPaper, type Palette } from './palette';
import { dots, nearest } from './points';

const PALETTE: Palette = {
  weight: [0x1a, 0x70, 0xe0, 255],
  above: [0xd9, 0x66, 0x0b, 255],
  below: [0x75, 0x55, 0xd0, 255],
  hidden: [0x80, 0x80, 0x80, 0x38],
  nan: [0xff, 0x00, 0xff, 255],
  paper: [255, 255, 255, 255],
  ink: [26, 26, 26, 255],
};
const map = (rows: number, columns: number, values: number[]) => ({
  rows,
  columns,
  values: Float32Array.from(values),
});
const hex = (pixels: Uint32Array) => Array.from(pixels, (each) => each.toString(16).padStart(8, '0'));

describe('colours', () => {
  it('are read as style sheets write them', () => {
    expect(parseColour('#1a70e0')).toEqual([26, 112, 224, 255]);
    expect(parseColour(' #80808038 ')).toEqual([128, 128, 128, 56]);
    expect(parseColour('#f0f')).toEqual([255, 0, 255, 255]);
    expect(parseColour('rgb(128 128 128 / 0.220)')).toEqual([128, 128, 128, 56]);
    expect(parseColour('rgba(26,112,224,0.5)')).toEqual([26, 112, 224, 128]);
    expect(parseColour('rgb(100% 0% 50%)')).toEqual([255, 0, 128, 255]);
    for (const wrong of ['', 'red', '#12', '#12345', 'rgb(1 2)', 'light-dark(#fff, #000)'])
      expect(() => parseColour(wrong), wrong).toThrow('no colour');
  });

  it('stand in memory as ImageData has them', () => {
    const bytes = new Uint8Array(Uint32Array.of(pixel([1, 2, 3, 4])).buffer);
    expect([...bytes]).toEqual([1, 2, 3, 4]);
  });

  it('differ by the square root of weights, in proportion for signed values', () => {
    expect([0, 0.25, 1, 2, -1].map((value) => entry(value, 'weight', 1))).toEqual([0, 127, 253, 253, 0]);
    expect([-2, -1, 0, 0.5, 1, 9].map((value) => entry(value, 'signed', 1))).toEqual([
      0, 0, 126, 189, 252, 252,
    ]);
    expect([-Infinity, NaN].map((value) => entry(value, 'weight', 1))).toEqual([254, 255]);
    expect(entry(0.5, 'weight', 0.5)).toBe(253);
  });

  it('reach as far as the greatest magnitude', () => {
    expect(reach([0.1, -3, NaN, -Infinity, 2], 'signed')).toBe(3);
    expect(reach([0, 0], 'signed')).toBe(1);
    expect(reach([7], 'weight')).toBe(1);
  });

  it('have as much contrast as WCAG counts', () => {
    expect(contrast([0, 0, 0], [255, 255, 255])).toBeCloseTo(21, 5);
    expect(contrast([26, 112, 224], [255, 255, 255])).toBeCloseTo(4.77, 1);
    expect(wantsPaper(0.01, 'weight', 1, PALETTE)).toBe(false);
    expect(wantsPaper(1, 'weight', 1, PALETTE)).toBe(true);
    expect(wantsPaper(-Infinity, 'weight', 1, PALETTE)).toBe(false);
  });
});

describe('a heat map', () => {
  it('is painted pixel by pixel', () => {
    const weights = map(2, 3, [0, 0.25, 1, -Infinity, NaN, 0.04]);
    expect(hex(heat(weights, 'weight', 1, PALETTE))).toEqual([
      '00e0701a',
      '80e0701a',
      'ffe0701a',
      '38808080',
      'ffff00ff',
      '33e0701a',
    ]);
    const signed = map(1, 5, [-2, -1, 0, 1, 2]);
    expect(hex(heat(signed, 'signed', 2, PALETTE))).toEqual([
      'ffd05575',
      '80d05575',
      '000b66d9',
      '800b66d9',
      'ff0b66d9',
    ]);
  });

  it('is the same each time', () => {
    const values = Array.from({ length: 64 * 64 }, (_, n) => Math.abs(Math.sin(n * 12.9898)));
    const first = heat(map(64, 64, values), 'weight', 1, PALETTE);
    expect(heat(map(64, 64, values), 'weight', 1, PALETTE)).toEqual(first);
    expect(new Set(first).size).toBeGreaterThan(200);
  });

  it('has 254 shades, then what is hidden and what is no number', () => {
    const shade = shades(PALETTE, 'weight');
    expect(new Set(shade.slice(0, 254)).size).toBe(254);
    expect(hex(shade.slice(254))).toEqual(['38808080', 'ffff00ff']);
  });
});

describe('a pooled map', () => {
  it('keeps what is greatest', () => {
    const line = map(4, 4, [0, 0, 0, 0, 0, 0, 0, -9, 1, 0, 0, 0, 0, 0, 0, 0]);
    const found = pooled(line, { rows: 2, columns: 2 });
    expect([...found.map.values]).toEqual([0, -9, 1, 0]);
    expect([...found.places]).toEqual([0, 7, 8, 10]);
  });

  it('counts hidden cells only where there are no others', () => {
    const causal = map(2, 4, [1, -Infinity, -Infinity, -Infinity, 2, 3, NaN, -Infinity]);
    expect([...pooled(causal, { rows: 1, columns: 2 }).map.values]).toEqual([3, -Infinity]);
  });

  it('is the map itself where it is small', () => {
    const small = map(1, 2, [1, 2]);
    const found = pooled(small, { rows: 9, columns: 9 });
    expect(found.map).toEqual(small);
    expect([...found.places]).toEqual([0, 1]);
  });

  it('covers every cell of sizes that do not divide', () => {
    for (const size of [5, 7, 13]) {
      const values = Array.from({ length: size * size }, (_, n) => n + 1);
      const { map: found } = pooled(map(size, size, values), { rows: 3, columns: 4 });
      expect(Math.max(...found.values)).toBe(size * size);
      expect(found.values).toHaveLength(12);
    }
  });
});

describe('links', () => {
  const weights = map(2, 4, [0.5, 0.3, 0.15, 0.05, 0, NaN, 1, -Infinity]);

  it('are the strongest of each row until a share of its mass is drawn', () => {
    expect(links(weights, 0.75).map(({ from, to }) => [to, from])).toEqual([
      [1, 2],
      [0, 0],
      [0, 1],
    ]);
    expect(links(weights, 1)).toHaveLength(5);
  });

  it('are at most so many, the strongest', () => {
    expect(links(weights, 1, 2).map((link) => link.weight)).toEqual([1, 0.5]);
  });
});

describe('points', () => {
  const cloud = { xs: Float32Array.of(1, 3.4, 50), ys: Float32Array.of(1, 3.4, 50), groups: [0, 1, 0] };

  it('are squares of their colours, cut off at the edge', () => {
    const image = dots(cloud, { width: 5, height: 5 }, [PALETTE.weight, PALETTE.above], 3);
    const shown = Array.from(image, (each) =>
      each === 0 ? '.' : each === pixel(PALETTE.weight) ? 'w' : 'a',
    );
    expect(shown.join('').match(/.{5}/g)).toEqual(['www..', 'www..', 'wwaaa', '..aaa', '..aaa']);
    expect(dots(cloud, { width: 5, height: 5 }, [PALETTE.weight, PALETTE.above], 3)).toEqual(image);
  });

  it('are found by a place near them', () => {
    expect(nearest(cloud, 3, 3, 5)).toBe(1);
    expect(nearest(cloud, 20, 20, 5)).toBe(-1);
  });
});
