import type { Scale } from '../data/wire';

/** Hundredths of the strongest tint: text has a contrast of 4.5 on it, on light and on dark paper. */
export const STRONGEST = 75;

/**
 * A colour of CSS that text can be read on: a weight from 0 to 1 by its square root, as in a heat map, or a signed
 * value from -1 to 1. Nothing for what is no number.
 */
export function tint(value: number | null, scale: Scale): string {
  if (value === null || Number.isNaN(value)) return 'transparent';
  if (scale === 'weight') return mixed('--weight', STRONGEST * Math.sqrt(Math.min(1, Math.max(0, value))));
  return mixed(value > 0 ? '--above' : '--below', STRONGEST * Math.min(1, Math.abs(value)));
}

/** So many hundredths of a colour of the palette on the paper. */
export function mixed(name: string, share: number): string {
  return `color-mix(in srgb, var(${name}) ${share.toFixed(1)}%, transparent)`;
}

/** The colours that stand for values in a row, the least first, as an image of CSS; `most` is the last one's share. */
export function gradient(scale: Scale, most = 100): string {
  const last = (name: string) => mixed(name, most);
  if (scale === 'weight') return `linear-gradient(90deg, transparent, ${last('--weight')})`;
  return `linear-gradient(90deg, ${last('--below')}, transparent, ${last('--above')})`;
}
