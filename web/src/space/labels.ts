import type { Seen, Size } from '../kit/paint/cloud';
import { textWidth, truncate } from '../kit/display';
import { placed, type Place } from '../kit/placement';

export type Label = { id: number; text: string; at: Place; point: Place; rank: number };

const TYPE = 13;
const COLUMNS = 18;

/**
 * The labels of points that fit into a picture, the first ones first; none covers another one. `ids` come in groups,
 * the most important first, and a label knows the place of its group. Labels keep off `lines` where they can.
 */
export function labels(
  seen: Seen,
  pieces: readonly string[],
  ids: readonly (readonly number[])[],
  size: Size,
  lines: readonly (readonly [Place, Place])[],
): Label[] {
  const known = new Set<number>();
  const wanted: { id: number; rank: number; text: string; point: Place }[] = [];
  ids.forEach((group, rank) => {
    for (const id of group) {
      const point = { x: seen.xs[id] ?? NaN, y: seen.ys[id] ?? NaN };
      if (known.has(id) || !inside(point, size)) continue;
      known.add(id);
      wanted.push({ id, rank, point, text: truncate(pieces[id] ?? '', COLUMNS) });
    }
  });
  const places = placed(
    wanted.map((each) => each.point),
    wanted.map((each) => textWidth(each.text, TYPE + 1)),
    TYPE,
    lines,
    size.width,
  );
  return wanted.flatMap((each, n) => (places[n] ? [{ ...each, at: places[n]! }] : []));
}

/** The first points, by id, that are seen in the front half of a picture. */
export function inFront(seen: Seen, size: Size, most: number): number[] {
  const found: number[] = [];
  for (let id = 0; id < seen.xs.length && found.length < most; id++)
    if (seen.near[id]! > 0.5 && inside({ x: seen.xs[id]!, y: seen.ys[id]! }, size)) found.push(id);
  return found;
}

function inside({ x, y }: Place, { width, height }: Size): boolean {
  return x > 0 && y > TYPE && x < width && y < height - 4;
}
