import type { Operand, Scale } from '../data/wire';
import type { Numbered } from '../state/place';

/**
 * Name and index of a number of an operand by its place among the operand's numbers, whose sizes along the dimensions
 * that it runs over are `sizes`; null for a constant.
 */
export function parent(operand: Operand, sizes: number[], place: number): Numbered | null {
  if (operand.name === null) return null;
  const index = new Array<number>(operand.index.length);
  let rest = place;
  let line = sizes.length;
  for (let n = operand.index.length - 1; n >= 0; n--) {
    const each = operand.index[n]!;
    if (typeof each === 'number') {
      index[n] = each;
      continue;
    }
    const size = sizes[--line]!;
    index[n] = (Number.parseInt(each) || 0) + (rest % size);
    rest = Math.floor(rest / size);
  }
  return { name: operand.name, index };
}

/** How far a number is from another; null is what a mask hides, as far from all others as can be. */
export function apart(one: number | null, other: number | null): number {
  if (one === other) return 0;
  return one === null || other === null ? Infinity : Math.abs(one - other);
}

/** An operand's name with its index, as Python writes it. */
export function operandText({ name, index }: Operand): string {
  return index.length ? `${name}[${index.join(',')}]` : (name ?? '');
}

/** Places of the numbers of an operand that are listed: all of a short line, of others those with labels or the greatest. */
export function listed(operand: Operand, values: Float32Array, most: number): number[] {
  const named = Object.keys(operand.labels).map(Number);
  const all = Array.from(values, (_, n) => n);
  if (named.length === values.length ? values.length <= 2 * most : values.length <= most) return all;
  const bySize = (a: number, b: number): number => Math.abs(values[b]!) - Math.abs(values[a]!);
  const byValue = (a: number, b: number): number => values[b]! - values[a]!;
  const best = named.length
    ? named.sort(byValue).slice(0, most)
    : all
        .filter((n) => Number.isFinite(values[n]))
        .sort(bySize)
        .slice(0, 3);
  const taken = operand.element?.[1];
  return taken === undefined || best.includes(taken) ? best : [taken, ...best];
}

/** Weights are shown as weights, all else with its sign. */
export function scaleOf(operand: Operand): Scale {
  return /(^|\.)(pattern|probabilities|expert_weight)$/.test(operand.name ?? '') ? 'weight' : 'signed';
}
