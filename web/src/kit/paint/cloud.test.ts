import { describe, expect, it } from 'vitest';
import { blank, inks, paint, radius, seen, type View } from './cloud';
import { pixel, type Colour } from './palette';
import { nearest } from './points';

const FRONT: View = { turn: 0, tip: 0, zoom: 1, x: 0, y: 0 };
const SIZE = { width: 200, height: 100 };
const BLUE: Colour = [0, 0, 255, 255];
const RED: Colour = [255, 0, 0, 255];
const PAPER: Colour = [255, 255, 255, 255];

/** Points all over a ball, without chance. */
function ball(count: number): Float32Array {
  const points = new Float32Array(3 * count);
  for (let n = 0; n < count; n++) {
    const [y, turn, far] = [1 - (2 * n + 1) / count, 2.39996 * n, Math.cbrt(((n * 7919) % count) / count)];
    const ring = Math.sqrt(1 - y * y);
    points.set([far * ring * Math.cos(turn), far * y, far * ring * Math.sin(turn)], 3 * n);
  }
  return points;
}

describe('points in space', () => {
  it('lie within a radius, but for three in a hundred of them', () => {
    const points = Float32Array.from({ length: 300 }, (_, i) => (i % 3 === 0 ? i / 3 : 0));
    expect(radius(points)).toBe(96);
    expect(radius(Float32Array.of(0, 0, 0))).toBe(1);
  });

  it('are seen in perspective: the middle in the middle, up above, the near one farther out', () => {
    const points = Float32Array.of(0, 0, 0, 0, 0.5, 0, 0.5, 0, 0.5, 0.5, 0, -0.5);
    const { xs, ys, near } = seen(points, 1, FRONT, SIZE);
    expect([xs[0], ys[0], near[0]]).toEqual([100, 50, 0.5]);
    expect(xs[1]).toBe(100);
    expect(ys[1]).toBeCloseTo(50 - 21.5, 3);
    expect(near[2]).toBe(0.75);
    expect(xs[2]! - 100).toBeGreaterThan(xs[3]! - 100);
  });

  it('turn about the upright axis, and are tipped towards the reader', () => {
    const turned = seen(Float32Array.of(0, 0, 1), 1, { ...FRONT, turn: Math.PI / 2 }, SIZE);
    expect([turned.xs[0]! > 140, turned.ys[0], turned.near[0]]).toEqual([true, 50, 0.5]);
    const tipped = seen(Float32Array.of(0, 1, 0), 1, { ...FRONT, tip: Math.PI / 2 }, SIZE);
    expect(tipped.xs[0]).toBeCloseTo(100, 3);
    expect(tipped.ys[0]).toBeCloseTo(50, 3);
    expect(tipped.near[0]).toBeCloseTo(1, 5);
  });

  it('come back after a whole turn, and keep their distances from the middle', () => {
    const points = ball(50);
    const [before, after] = [0, 2 * Math.PI].map((turn) =>
      seen(points, 1, { ...FRONT, turn, tip: 0.4 }, SIZE),
    );
    before!.xs.forEach((x, n) => expect(after!.xs[n]).toBeCloseTo(x, 3));
  });

  it('are enlarged and moved', () => {
    const point = Float32Array.of(0, 0.5, 0);
    const { xs, ys } = seen(point, 1, { ...FRONT, zoom: 2, x: 10, y: -5 }, SIZE);
    expect(xs[0]).toBe(110);
    expect(ys[0]).toBeCloseTo(45 - 43, 3);
  });
});

describe('a cloud', () => {
  const colours = inks([BLUE, RED], PAPER, () => 1);

  it('has the full colour in front, and a faint one at the back', () => {
    expect(colours[63]).toBe(pixel(BLUE));
    expect(colours[0]).toBe(pixel([179, 179, 255, 255]));
    expect(inks([BLUE], PAPER, () => 0)[63]).toBe(pixel(PAPER));
  });

  it('hides what is behind, in whatever order it is painted', () => {
    const [back, front] = [0.2, 0.9];
    for (const near of [
      [back, front],
      [front, back],
    ]) {
      const image = blank({ width: 9, height: 9 });
      const groups = near.map((each) => (each === front ? 1 : 0));
      const xy = Float32Array.of(4.5, 4.5);
      paint(image, { xs: xy, ys: xy, near: Float32Array.from(near) }, groups, colours, 3);
      expect(image.pixels[4 * 9 + 4]).toBe(colours[64 + Math.round(0.9 * 63)]);
      expect(image.pixels[0]).toBe(0);
    }
  });

  it('is of discs that are cut off at the edge, and the same each time', () => {
    const drawn = () => {
      const image = blank({ width: 6, height: 5 });
      const points = {
        xs: Float32Array.of(3, 0),
        ys: Float32Array.of(2.5, 0),
        near: Float32Array.of(0.5, 0.5),
      };
      paint(image, points, [0, 1], colours, 5);
      return Array.from(image.pixels, (each) => (each ? '#' : '.'))
        .join('')
        .match(/.{6}/g);
    };
    expect(drawn()).toEqual(['#####.', '######', '######', '.#####', '..###.']);
    expect(drawn()).toEqual(drawn());
  });

  it('names the point that is nearest to a place', () => {
    const points = ball(2000);
    const places = seen(points, 1, { ...FRONT, turn: 0.7 }, SIZE);
    for (const n of [0, 999, 1999]) {
      const found = nearest(places, places.xs[n]!, places.ys[n]!, 3);
      expect(Math.hypot(places.xs[found]! - places.xs[n]!, places.ys[found]! - places.ys[n]!)).toBe(0);
    }
  });

  it('of 150,000 points turns at 25 frames a second and more', () => {
    const points = ball(150_000);
    const groups = Uint8Array.from({ length: 150_000 }, (_, n) => n % 2);
    const size = { width: 1200, height: 800 };
    const image = blank(size);
    const took = Array.from({ length: 9 }, (_, frame) => {
      const began = performance.now();
      paint(image, seen(points, 1, { ...FRONT, turn: frame / 10 }, size), groups, colours, 2);
      return performance.now() - began;
    });
    expect(image.pixels.filter(Boolean).length).toBeGreaterThan(100_000);
    // The others may have had to wait for whatever else this machine does.
    expect(Math.min(...took)).toBeLessThan(40);
  });
});
