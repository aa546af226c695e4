import type { Scale } from '../../data/wire';

/** Red, green, blue, opacity, each 0 to 255. */
export type Colour = readonly [number, number, number, number];

/** The colours of values, out of the server's `palette.css`. */
export type Palette = {
  weight: Colour;
  above: Colour;
  below: Colour;
  hidden: Colour;
  nan: Colour;
  paper: Colour;
  ink: Colour;
};

export const HIDDEN = 254;
export const NOT_A_NUMBER = 255;
const LAST = 253;
const MIDDLE = 126;

/** A colour as CSS writes it: `#rgb`, `#rrggbb`, `#rrggbbaa`, `rgb(…)`, `rgba(…)`. Error for anything else. */
export function parseColour(css: string): Colour {
  const text = css.trim();
  const hex = /^#([0-9a-f]{3,8})$/i.exec(text)?.[1];
  if (hex && [3, 4, 6, 8].includes(hex.length)) {
    const digits = hex.length < 5 ? [...hex].map((each) => each + each) : hex.match(/../g)!;
    const [red, green, blue, opacity = 255] = digits.map((each) => parseInt(each, 16));
    return [red!, green!, blue!, opacity];
  }
  const inside = /^rgba?\(([^)]*)\)$/i.exec(text)?.[1];
  const parts = inside?.split(/[\s,/]+/).filter(Boolean) ?? [];
  const numbers = parts.map((part, n) => {
    const number = parseFloat(part);
    return part.endsWith('%') ? (number * 255) / 100 : n === 3 ? number * 255 : number;
  });
  if (numbers.length < 3 || numbers.length > 4 || numbers.some(Number.isNaN))
    throw new Error(`no colour: ${css}`);
  const [red, green, blue, opacity = 255] = numbers.map((each) => Math.round(each));
  return [red!, green!, blue!, opacity];
}

/** The palette that an element sees; what its style sheet leaves out is transparent. */
export function readPalette(element: Element): Palette {
  const style = getComputedStyle(element);
  const read = (name: string): Colour => {
    const value = style.getPropertyValue(name).trim();
    return value ? parseColour(value) : [0, 0, 0, 0];
  };
  return {
    weight: read('--weight'),
    above: read('--above'),
    below: read('--below'),
    hidden: read('--hidden'),
    nan: read('--nan'),
    paper: read('--paper'),
    ink: read('--ink'),
  };
}

/** A pixel of ImageData: in memory red, green, blue, opacity. */
export function pixel([red, green, blue, opacity]: Colour): number {
  return ((opacity << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/**
 * 256 pixels: weights by opacity of one colour (entries 0 to 253), signed values by opacity of two, 0 in the middle
 * (entry 126 of 0 to 252); then what a mask hides, and what is no number.
 */
export function shades(palette: Palette, scale: Scale): Uint32Array {
  const found = new Uint32Array(256);
  const faint = ([red, green, blue]: Colour, share: number) =>
    pixel([red, green, blue, Math.round(255 * share)]);
  for (let n = 0; n <= LAST; n++) {
    if (scale === 'weight') found[n] = faint(palette.weight, n / LAST);
    else if (n < MIDDLE) found[n] = faint(palette.below, (MIDDLE - n) / MIDDLE);
    else found[n] = faint(palette.above, Math.min(1, (n - MIDDLE) / MIDDLE));
  }
  found[HIDDEN] = pixel(palette.hidden);
  found[NOT_A_NUMBER] = pixel(palette.nan);
  return found;
}

/**
 * The entry of a value: weights by their square root, so that small ones can be told from none; signed values in
 * proportion. What lies beyond `greatest` has the strongest colour.
 */
export function entry(value: number, scale: Scale, greatest: number): number {
  if (Number.isNaN(value)) return NOT_A_NUMBER;
  if (value === -Infinity) return HIDDEN;
  const part = value / greatest;
  if (scale === 'weight') return Math.round(Math.sqrt(Math.min(1, Math.max(0, part))) * LAST);
  return Math.round(MIDDLE + Math.min(1, Math.max(-1, part)) * MIDDLE);
}

/** The value of the strongest colour: 1 for weights, else the greatest magnitude (1 where all are 0). */
export function reach(values: ArrayLike<number>, scale: Scale): number {
  if (scale === 'weight') return 1;
  let most = 0;
  for (let i = 0; i < values.length; i++) {
    const size = Math.abs(values[i]!);
    if (size > most && size < Infinity) most = size;
  }
  return most || 1;
}

/** Whether a text on a cell of this value stands out better in the colour of the paper than in that of the ink. */
export function wantsPaper(value: number, scale: Scale, greatest: number, palette: Palette): boolean {
  const n = entry(value, scale, greatest);
  const colour = scale === 'weight' ? palette.weight : n < MIDDLE ? palette.below : palette.above;
  const share = n > LAST ? 0 : scale === 'weight' ? n / LAST : Math.abs(n - MIDDLE) / MIDDLE;
  const under = [0, 1, 2].map((i) => share * colour[i]! + (1 - share) * palette.paper[i]!);
  return contrast(under, palette.paper) > contrast(under, palette.ink);
}

/** The contrast of two colours without opacity, 1 to 21 (WCAG 2.2). */
export function contrast(one: ArrayLike<number>, other: ArrayLike<number>): number {
  const [a, b] = [luminance(one), luminance(other)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}

function luminance(colour: ArrayLike<number>): number {
  const [red, green, blue] = [0, 1, 2].map((i) => {
    const part = colour[i]! / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
}
