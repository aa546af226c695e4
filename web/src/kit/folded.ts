import type { Array2 } from '../data/arrays';

const ACROSS = 32;

/** One line of numbers in rows, so that a long one has room; what the last row lacks is no number. */
export function folded(values: Float32Array): Array2 {
  const columns = Math.min(ACROSS, values.length);
  const rows = Math.ceil(values.length / columns);
  const all = new Float32Array(rows * columns).fill(NaN);
  all.set(values);
  return { rows, columns, values: all };
}

/** `0`, `step`, `2 step` and so on, as labels. */
export function places(count: number, step = 1): string[] {
  return Array.from({ length: count }, (_, n) => String(n * step));
}
