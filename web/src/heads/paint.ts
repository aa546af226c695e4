import { HIDDEN, entry, shades, wantsPaper, type Palette } from '../kit/paint/palette';
import { pooled, put } from '../kit/paint/heat';
import { corner, mapOf, type Measured, type Small, type Tiling } from './heads';

/** The pixels of all small maps one above another, each `down` × `across` at most: a map has `rows` of `columns`. */
export function stacked(
  small: Small,
  count: number,
  most: { rows: number; columns: number },
  palette: Palette,
): { pixels: Uint32Array; rows: number; columns: number } {
  const rows = Math.min(small.rows, most.rows);
  const columns = Math.min(small.columns, most.columns);
  const colours = shades(palette, 'weight');
  const pixels = new Uint32Array(count * rows * columns);
  let at = 0;
  for (let place = 0; place < count; place++)
    for (const value of pooled(mapOf(small, place), { rows, columns }).map.values)
      pixels[at++] = colours[entry(value, 'weight', 1)]!;
  return { pixels, rows, columns };
}

export type Inks = { palette: Palette; faint: string; line: string; ink: string; paper: string };
export type Sheet = {
  tiling: Tiling;
  /** The places of the heads, as the tiles have them. */
  order: readonly number[];
  small: Small | null;
  measured: Measured | null;
  captions: readonly string[];
  font: string;
};

/** All tiles on a canvas of so many pixels for one of the page. */
export function paint(
  canvas: HTMLCanvasElement,
  sheet: Sheet,
  size: { width: number; height: number },
  ratio: number,
  inks: Inks,
): void {
  canvas.width = Math.round(size.width * ratio);
  canvas.height = Math.round(size.height * ratio);
  const context = canvas.getContext('2d');
  if (!context || !canvas.width || !canvas.height) return;
  context.scale(ratio, ratio);
  context.imageSmoothingEnabled = false;
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  const { tiling, order, measured } = sheet;
  const maps =
    sheet.small && order.length ? drawn(sheet.small, order.length, tiling, ratio, inks.palette) : null;
  const colours = measured ? shades(inks.palette, measured.scale) : null;
  context.strokeStyle = inks.line;
  order.forEach((place, at) => {
    const { x, y } = corner(tiling, at);
    if (maps)
      context.drawImage(
        maps.images[Math.floor(place / CHUNK)]!,
        0,
        (place % CHUNK) * maps.rows,
        maps.columns,
        maps.rows,
        x,
        y,
        tiling.across,
        tiling.down,
      );
    else if (measured && colours) {
      const value = measured.values[place]!;
      context.fillStyle = css(
        colours[Math.min(HIDDEN - 1, entry(value, measured.scale, measured.greatest))]!,
      );
      context.fillRect(x, y, tiling.width, tiling.height);
    }
    context.strokeRect(x - 0.5, y - 0.5, tiling.width + 1, tiling.height + 1);
    const caption = sheet.captions[place];
    if (!caption) return;
    if (maps && tiling.caption) {
      context.fillStyle = inks.faint;
      context.font = `11px ${sheet.font}`;
      context.fillText(caption, x + tiling.width / 2, y + tiling.height + 10);
    } else if (!maps && measured) {
      const value = measured.values[place]!;
      context.fillStyle = wantsPaper(value, measured.scale, measured.greatest, inks.palette)
        ? inks.paper
        : inks.ink;
      const fitting = Math.min(13, (tiling.width - 4) / (0.58 * caption.length));
      if (fitting < 8) return;
      context.font = `${fitting}px ${sheet.font}`;
      context.fillText(caption, x + tiling.width / 2, y + tiling.height / 2 + 0.5);
    }
  });
}

/** Maps on one canvas: browsers draw none that is taller than some 16,000 pixels. */
const CHUNK = 256;

/** The small maps on canvases of their own, from which they are stretched. */
function drawn(small: Small, count: number, tiling: Tiling, ratio: number, palette: Palette) {
  const most = { rows: Math.ceil(tiling.down * ratio), columns: Math.ceil(tiling.across * ratio) };
  const { pixels, rows, columns } = stacked(small, count, most, palette);
  const size = rows * columns;
  const images = Array.from({ length: Math.ceil(count / CHUNK) }, (_, n) => {
    const image = document.createElement('canvas');
    const part = pixels.subarray(n * CHUNK * size, (n + 1) * CHUNK * size);
    put(image, columns, part.length / columns, part);
    return image;
  });
  return { images, rows, columns };
}

function css(pixel: number): string {
  const [red, green, blue, opacity] = [0, 8, 16, 24].map((shift) => (pixel >>> shift) & 255);
  return `rgb(${red} ${green} ${blue} / ${(opacity! / 255).toFixed(3)})`;
}
