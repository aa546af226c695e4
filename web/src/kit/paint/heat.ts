import type { Array2 } from '../../data/arrays';
import type { Scale } from '../../data/wire';
import { entry, shades, type Palette } from './palette';

/** Values as pixels, one a cell: `pixels[r * columns + c]`. */
export function heat(map: Array2, scale: Scale, greatest: number, palette: Palette): Uint32Array {
  const colours = shades(palette, scale);
  const { values } = map;
  const pixels = new Uint32Array(values.length);
  for (let i = 0; i < values.length; i++) pixels[i] = colours[entry(values[i]!, scale, greatest)]!;
  return pixels;
}

/**
 * A map of at most so many rows and columns: in the place of several cells the one of the greatest magnitude, so that
 * a thin line is not lost. Hidden cells and those without a value count where there are no others. `places` are those of
 * the cells in the map, row by row.
 */
export function pooled(
  map: Array2,
  most: { rows: number; columns: number },
): { map: Array2; places: Uint32Array } {
  const rows = Math.min(map.rows, most.rows);
  const columns = Math.min(map.columns, most.columns);
  const values = new Float32Array(rows * columns);
  const places = new Uint32Array(rows * columns);
  for (let r = 0; r < rows; r++) {
    const [top, bottom] = span(r, rows, map.rows);
    for (let c = 0; c < columns; c++) {
      const [left, right] = span(c, columns, map.columns);
      let place = top * map.columns + left;
      let best = map.values[place]!;
      for (let y = top; y < bottom; y++)
        for (let x = left; x < right; x++) {
          const value = map.values[y * map.columns + x]!;
          if (Number.isFinite(value) && !(Number.isFinite(best) && Math.abs(best) >= Math.abs(value)))
            [best, place] = [value, y * map.columns + x];
        }
      values[r * columns + c] = best;
      places[r * columns + c] = place;
    }
  }
  return { map: { rows, columns, values }, places };
}

function span(place: number, parts: number, whole: number): [number, number] {
  return [Math.floor((place * whole) / parts), Math.floor(((place + 1) * whole) / parts)];
}

/** Puts pixels on a canvas, one a cell; it is stretched by its style. */
export function put(canvas: HTMLCanvasElement, columns: number, rows: number, pixels: Uint32Array): void {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext('2d');
  if (!context || !columns || !rows) return;
  const bytes = new Uint8ClampedArray(pixels.buffer as ArrayBuffer, pixels.byteOffset, pixels.byteLength);
  context.putImageData(new ImageData(bytes, columns, rows), 0, 0);
}
