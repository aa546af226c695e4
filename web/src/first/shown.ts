import type { Array2 } from '../data/arrays';
import type { Cover, Unit } from '../data/wire';

/** A word of the row that the model wrote: a unit, or one that is gone since something was covered. */
export type Written = { unit: Unit; at: number; changed: boolean } | { gone: string };

/** Below this share a ribbon is left out; the share itself is told all the same. */
const LEAST = 0.004;
const MOST = 2000;

/** What is written now, and between it what was written before and is no more. */
export function written(cover: Cover): Written[] {
  const now = cover.target.map((unit, at) => ({ unit, at }));
  const before = cover.base.target;
  if (!cover.hidden.length) return now.map((word) => ({ ...word, changed: false }));
  const row: Written[] = [];
  let place = 0;
  for (const [kept, at] of common(before, cover.target)) {
    for (; place < kept; place++) row.push({ gone: before[place]!.text });
    for (const word of now.slice(countUnits(row), at)) row.push({ ...word, changed: true });
    if (kept < before.length) row.push({ ...now[at]!, changed: false });
    place = kept + 1;
  }
  return row.filter((word) => !('gone' in word) || word.gone.trim());
}

/** Whether a line of the text ends with this word. */
export function isLineEnd(word: Written): boolean {
  return 'unit' in word && /[⏎␍]$/.test(word.unit.pieces.at(-1) ?? '');
}

function countUnits(row: Written[]): number {
  return row.filter((word) => 'unit' in word).length;
}

/** Pairs of equal units in order (a longest common subsequence), and the two ends as the last pair. */
function common(before: Unit[], now: Unit[]): [number, number][] {
  const lengths = Array.from({ length: before.length + 1 }, () => new Uint16Array(now.length + 1));
  for (let i = before.length - 1; i >= 0; i--)
    for (let j = now.length - 1; j >= 0; j--)
      lengths[i]![j] =
        before[i]!.text === now[j]!.text
          ? lengths[i + 1]![j + 1]! + 1
          : Math.max(lengths[i + 1]![j]!, lengths[i]![j + 1]!);
  const pairs: [number, number][] = [];
  for (let i = 0, j = 0; i < before.length && j < now.length;)
    if (before[i]!.text === now[j]!.text) pairs.push([i++, j++]);
    else if (lengths[i + 1]![j]! >= lengths[i]![j + 1]!) i++;
    else j++;
  return [...pairs, [before.length, now.length]];
}

/** The share of the attention that each source unit had while target unit `at` was written. */
export function shares(weights: Array2, at: number): Float32Array {
  return weights.values.slice(at * weights.columns, (at + 1) * weights.columns);
}

/** The word of a text that got most attention, control tokens and what is covered left out; -1 where there is none. */
export function strongest(cover: Cover, row: Float32Array): number {
  let best = -1;
  cover.source.forEach((unit, at) => {
    if (unit.control || isCovered(cover.hidden, unit) || !/[\p{L}\p{N}]/u.test(unit.text)) return;
    if (best < 0 || row[at]! > row[best]!) best = at;
  });
  return best;
}

export function isCovered(hidden: number[], unit: Unit): boolean {
  const [first, end] = unit.tokens;
  return hidden.some((place) => place >= first && place < end);
}

/** The positions that are covered once this unit is covered, or uncovered where it was. */
export function toggled(hidden: number[], unit: Unit): number[] {
  const [first, end] = unit.tokens;
  const others = hidden.filter((place) => place < first || place >= end);
  if (isCovered(hidden, unit)) return others;
  return [...others, ...Array.from({ length: end - first }, (_, i) => first + i)].sort((a, b) => a - b);
}

export type Place = { left: number; right: number; top: number; bottom: number };
export type Ribbon = { source: number; path: string; share: number };

/**
 * Ribbons from source words down to one written word. Where they arrive they divide the word's upper edge by their
 * shares, in the order of the text; each is as broad where it leaves, so its breadth is its share.
 */
export function ribbons(row: Float32Array, sources: (Place | undefined)[], target: Place): Ribbon[] {
  const breadth = Math.min(target.right - target.left - 8, 150);
  const whole = row.reduce((sum, share) => sum + share, 0);
  const drawn = Array.from(row, (share, source) => ({ share, source, from: sources[source] }))
    .filter((each) => each.from && each.share >= LEAST)
    .sort((a, b) => b.share - a.share)
    .slice(0, MOST)
    .sort((a, b) => a.source - b.source);
  let at = (target.left + target.right - breadth * whole) / 2;
  return drawn.map(({ share, source, from }) => {
    const wide = Math.max(share * breadth, 0.8);
    const middle = (from!.left + from!.right) / 2;
    const path = ribbon(middle - wide / 2, from!.bottom, at, target.top, wide);
    at += share * breadth;
    return { source, path, share };
  });
}

function ribbon(x: number, y: number, toX: number, toY: number, wide: number): string {
  const [high, low] = [y + (toY - y) * 0.55, y + (toY - y) * 0.45].map((n) => n.toFixed(1));
  const [a, b, c, d] = [x, x + wide, toX + wide, toX].map((n) => n.toFixed(1));
  const [top, bottom] = [y.toFixed(1), toY.toFixed(1)];
  return `M${a} ${top}C${a} ${high} ${d} ${low} ${d} ${bottom}L${c} ${bottom}C${c} ${low} ${b} ${high} ${b} ${top}Z`;
}

/** A share as a reader reads it; what would round to nothing is said to be less than one percent. */
export function percent(share: number, locale: string): string {
  const format = new Intl.NumberFormat(locale, { style: 'percent', maximumFractionDigits: 0 });
  return share > 0 && share < 0.005 ? `< ${format.format(0.01)}` : format.format(share);
}
