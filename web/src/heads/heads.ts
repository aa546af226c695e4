import { unpack, type Array2 } from '../data/arrays';
import type { HeadSheet, MeasuredHeads, Scale, Side } from '../data/wire';

/** A head of a model. */
export type Head = { side: Side; layer: number; head: number };
/** A step of attention, or the last one times how long each value is. */
export const STAGES = ['scores', 'scaled', 'masked', 'pattern', 'values'] as const;
export type Stage = (typeof STAGES)[number];
/** How the heads of a sheet stand: layer by layer, or by a measure. */
export const ORDERS = ['layers', 'most', 'least'] as const;
export type Order = (typeof ORDERS)[number];
/** Heads that are pinned at most. */
export const PINS = 8;

/** A head in an address: `cross.3.0`. */
export function named({ side, layer, head }: Head): string {
  return `${side}.${layer}.${head}`;
}

/** The heads that an address has pinned, each once, at most `PINS`; what names none is left out. */
export function pinned(value: unknown): Head[] {
  const found = new Map<string, Head>();
  for (const each of Array.isArray(value) ? value : []) {
    const parts =
      typeof each === 'string' ? /^(encoder|decoder|cross)\.(\d{1,4})\.(\d{1,4})$/.exec(each) : null;
    if (parts) found.set(each, { side: parts[1] as Side, layer: Number(parts[2]), head: Number(parts[3]) });
  }
  return [...found.values()].slice(0, PINS);
}

/** Where a number of a head stands: the full name of its value, and the index in it. Null for what is no value of a run. */
export function placeOf(
  { side, layer, head }: Head,
  stage: Stage,
  { row, column }: { row: number; column: number },
): { name: string; index: number[] } | null {
  if (stage === 'values') return null;
  const stack = side === 'encoder' ? 'encoder' : 'decoder';
  const attention = side === 'cross' ? 'cross_attn' : 'self_attn';
  return { name: `${stack}.layers.${layer}.${attention}.${stage}`, index: [0, head, row, column] };
}

/** The measure that is no weight: what the output loses without the head. */
export const EFFECT = 'effect';

/** A measure of all heads of a sheet, layer by layer, with the value of the strongest tint. */
export type Measured = { values: Float32Array; scale: Scale; greatest: number };

export function measuredIn({ values, uniform }: MeasuredHeads): Measured {
  const found = unpack(values).values;
  return { values: found, scale: 'weight', greatest: Math.max(...found, ...unpack(uniform).values) || 1 };
}

/** Numbers around 0, such as what the output loses without each head. */
export function signedOf(values: Float32Array): Measured {
  return { values, scale: 'signed', greatest: Math.max(...values.map(Math.abs)) || 1 };
}

/** The places of heads on a sheet in an order; equal ones stay layer by layer. */
export function ordered(count: number, values: Float32Array | null, order: Order): number[] {
  const places = Array.from({ length: count }, (_, n) => n);
  if (order === 'layers' || !values) return places;
  const sign = order === 'most' ? -1 : 1;
  return places.sort((a, b) => sign * (values[a]! - values[b]!) || a - b);
}

/** How many heads have more of a measure, and one: 1 is the head that has most. */
export function rank(values: Float32Array, place: number): number {
  return 1 + values.reduce((more, value) => more + (value > values[place]! ? 1 : 0), 0);
}

/** The small maps of a sheet, each as it was sent. */
export type Small = { maps: Float32Array; rows: number; columns: number };

export function smallOf(sheet: HeadSheet): Small {
  const { values, shape } = unpack(sheet.maps);
  return { maps: values, rows: shape[2]!, columns: shape[3]! };
}

export function mapOf({ maps, rows, columns }: Small, place: number): Array2 {
  const size = rows * columns;
  return { rows, columns, values: maps.subarray(place * size, (place + 1) * size) };
}

/** A small map in the size of the whole one: every cell as often as it stands for tokens. */
export function spread(map: Array2, cell: number, rows: number, columns: number): Array2 {
  if (cell === 1) return map;
  const values = new Float32Array(rows * columns);
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < columns; c++)
      values[r * columns + c] = map.values[Math.floor(r / cell) * map.columns + Math.floor(c / cell)]!;
  return { rows, columns, values };
}

/** Where the tiles of a sheet lie, in pixels. */
export type Tiling = {
  columns: number;
  rows: number;
  /** A tile's sides, and those of the map in it. */
  width: number;
  height: number;
  across: number;
  down: number;
  gap: number;
  left: number;
  top: number;
  /** Pixels under a tile for its name or number; 0 where there is no room. */
  caption: number;
};

const LARGEST = 132;
const LEAST = 12;
const FLAT = 34;

/**
 * Tiles as large as the room allows, so many in a row; as maps of that shape, or (`map` is null) flat with a number in
 * them. `labels` are the pixels that names of rows take at the left.
 */
export function tiled(
  room: number,
  count: number,
  columns: number,
  map: { rows: number; columns: number } | null,
  labels: number,
): Tiling {
  const pitch = (room - labels) / columns;
  const gap = pitch > 60 ? 10 : pitch > 30 ? 5 : 2;
  const side = Math.max(LEAST, Math.min(LARGEST, Math.floor(pitch - gap)));
  let [across, down] = [side, Math.min(side, FLAT)];
  if (map) {
    const longest = Math.max(map.rows, map.columns);
    const each = side / longest;
    // whole pixels a cell, where that costs little room
    const unit = each >= 4 ? Math.floor(each) : each;
    [across, down] = [Math.max(2, Math.round(unit * map.columns)), Math.max(2, Math.round(unit * map.rows))];
  }
  return {
    columns,
    rows: Math.ceil(count / columns),
    width: map ? across : side,
    height: down,
    across,
    down,
    gap,
    left: labels,
    top: labels ? 18 : 2,
    caption: map && across >= 40 ? 17 : 0,
  };
}

/** The left upper corner of a tile. */
export function corner(tiling: Tiling, at: number): { x: number; y: number } {
  return {
    x: tiling.left + (at % tiling.columns) * (tiling.width + tiling.gap),
    y: tiling.top + Math.floor(at / tiling.columns) * (tiling.height + tiling.caption + tiling.gap),
  };
}

/** The tile under a place, -1 where there is none. */
export function under(tiling: Tiling, count: number, x: number, y: number): number {
  const column = Math.floor((x - tiling.left) / (tiling.width + tiling.gap));
  const row = Math.floor((y - tiling.top) / (tiling.height + tiling.caption + tiling.gap));
  const at = row * tiling.columns + column;
  return column >= 0 && column < tiling.columns && row >= 0 && at < count ? at : -1;
}
