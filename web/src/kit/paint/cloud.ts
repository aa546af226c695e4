import { pixel, type Colour } from './palette';

/**
 * How points in space are looked at: turned about the upright axis, then tipped towards the reader, both in radians;
 * enlarged; moved, in pixels.
 */
export type View = { turn: number; tip: number; zoom: number; x: number; y: number };
export type Size = { width: number; height: number };
/** Where points are seen, in pixels, and how near each is: 0 at the back, 1 at the front. */
export type Seen = { xs: Float32Array; ys: Float32Array; near: Float32Array };
/** An image, and how near what is painted on each of its pixels is. */
export type Image = Size & { pixels: Uint32Array; depths: Float32Array };

/** The eye is so many radii of the cloud away from its middle. */
const EYE = 3.2;
const SHADES = 64;
/** Of a point at the back so much of its colour is left. */
const FARTHEST = 0.3;

/** The distance from the middle that all but three in a hundred of the points (x, y, z one after another) lie within. */
export function radius(points: Float32Array): number {
  const squares = new Float32Array(points.length / 3);
  for (let i = 0, n = 0; i < points.length; i += 3, n++)
    squares[n] = points[i]! ** 2 + points[i + 1]! ** 2 + points[i + 2]! ** 2;
  squares.sort();
  return Math.sqrt(squares[Math.floor(0.97 * (squares.length - 1))] ?? 0) || 1;
}

/** Points (x, y, z one after another) in perspective; x leads to the right and y up, z towards the reader. */
export function seen(points: Float32Array, radius: number, view: View, { width, height }: Size): Seen {
  const count = points.length / 3;
  const [xs, ys, near] = [new Float32Array(count), new Float32Array(count), new Float32Array(count)];
  const [sin, cos] = [Math.sin(view.turn), Math.cos(view.turn)];
  const [up, level] = [Math.sin(view.tip), Math.cos(view.tip)];
  const scale = 0.43 * Math.min(width, height) * view.zoom * EYE;
  const [left, top] = [width / 2 + view.x, height / 2 + view.y];
  for (let n = 0, i = 0; n < count; n++, i += 3) {
    const [x, y, z] = [points[i]! / radius, points[i + 1]! / radius, points[i + 2]! / radius];
    const across = x * cos + z * sin;
    const away = z * cos - x * sin;
    const depth = y * up + away * level;
    // What lies far outside of the cloud does not get into the eye.
    const unit = scale / Math.max(0.4, EYE - depth);
    xs[n] = left + across * unit;
    ys[n] = top - (y * level - away * up) * unit;
    near[n] = (depth + 1) / 2;
  }
  return { xs, ys, near };
}

/** The colours of groups, each in 64 shades from the back to the front; `share` of a colour is left of the faint ones. */
export function inks(
  colours: readonly Colour[],
  paper: Colour,
  share: (group: number) => number,
): Uint32Array {
  const found = new Uint32Array(colours.length * SHADES);
  colours.forEach((colour, group) => {
    for (let shade = 0; shade < SHADES; shade++) {
      const left = share(group) * (FARTHEST + ((1 - FARTHEST) * shade) / (SHADES - 1));
      const mixed = [0, 1, 2].map((i) => Math.round(left * colour[i]! + (1 - left) * paper[i]!));
      found[group * SHADES + shade] = pixel([mixed[0]!, mixed[1]!, mixed[2]!, 255]);
    }
  });
  return found;
}

export function blank({ width, height }: Size): Image {
  return { width, height, pixels: new Uint32Array(width * height), depths: new Float32Array(width * height) };
}

/**
 * Paints points as discs of about `side` pixels, the nearer ones larger, over what is farther away; the image is
 * cleared before.
 */
export function paint(
  image: Image,
  seen: Seen,
  groups: ArrayLike<number>,
  inks: Uint32Array,
  side: number,
): void {
  const { width, height, pixels, depths } = image;
  pixels.fill(0);
  depths.fill(-Infinity);
  const most = Math.max(1, Math.round(1.3 * side));
  const discs = Array.from({ length: most + 1 }, (_, n) => disc(n));
  for (let n = 0; n < seen.xs.length; n++) {
    const near = seen.near[n]!;
    const part = near < 0 ? 0 : near > 1 ? 1 : near;
    const own = Math.min(most, Math.max(1, Math.round(side * (0.7 + 0.6 * part))));
    const left = Math.round(seen.xs[n]! - own / 2);
    const top = Math.round(seen.ys[n]! - own / 2);
    if (left >= width || top >= height || left + own <= 0 || top + own <= 0) continue;
    const ink = inks[groups[n]! * SHADES + Math.round(part * (SHADES - 1))]!;
    const rows = discs[own]!;
    for (let row = 0; row < own; row++) {
      const y = top + row;
      if (y < 0 || y >= height) continue;
      const inset = rows[row]!;
      const end = Math.min(width, left + own - inset);
      for (let x = Math.max(0, left + inset); x < end; x++) {
        const at = y * width + x;
        if (depths[at]! >= near) continue;
        depths[at] = near;
        pixels[at] = ink;
      }
    }
  }
}

/** How many pixels each row of a disc leaves free at either side. */
function disc(side: number): number[] {
  return Array.from({ length: side }, (_, row) => {
    const from = row - (side - 1) / 2;
    return Math.floor(side / 2 - Math.sqrt(Math.max(0, (side / 2) ** 2 - from ** 2)) + 0.35);
  });
}
