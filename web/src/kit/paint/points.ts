import { pixel, type Colour } from './palette';

/** Points in pixels of an image, and the group of each. */
export type Cloud = { xs: Float32Array; ys: Float32Array; groups: ArrayLike<number> };

/** Squares of `side` pixels around the points, the later ones on top; those outside of the image are cut off. */
export function dots(
  cloud: Cloud,
  size: { width: number; height: number },
  colours: readonly Colour[],
  side = 3,
): Uint32Array {
  const { width, height } = size;
  const pixels = new Uint32Array(width * height);
  const inks = colours.map(pixel);
  for (let i = 0; i < cloud.xs.length; i++) {
    const ink = inks[cloud.groups[i]! % inks.length]!;
    const left = Math.round(cloud.xs[i]! - side / 2);
    const top = Math.round(cloud.ys[i]! - side / 2);
    for (let y = Math.max(0, top); y < Math.min(height, top + side); y++)
      for (let x = Math.max(0, left); x < Math.min(width, left + side); x++) pixels[y * width + x] = ink;
  }
  return pixels;
}

/** The point nearest to a place, at most `within` pixels from it; -1 where there is none. */
export function nearest(cloud: Pick<Cloud, 'xs' | 'ys'>, x: number, y: number, within: number): number {
  let found = -1;
  let least = within * within;
  for (let i = 0; i < cloud.xs.length; i++) {
    const distance = (cloud.xs[i]! - x) ** 2 + (cloud.ys[i]! - y) ** 2;
    if (distance <= least) {
      least = distance;
      found = i;
    }
  }
  return found;
}
