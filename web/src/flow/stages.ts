import type { Stage } from '../data/wire';
import type { Cell } from '../kit/moves';
import type { Numbered } from '../state/place';

/** Stages of one part in their order: values of the stream itself, and between them what branches off and comes back. */
export type Run = { stream: Stage } | { branch: Stage[] };

export function runs(stages: Stage[]): Run[] {
  const found: Run[] = [];
  for (const stage of stages) {
    const last = found.at(-1);
    if (stage.joint) found.push({ stream: stage });
    else if (last && 'branch' in last) last.branch.push(stage);
    else found.push({ branch: [stage] });
  }
  return found;
}

/**
 * The number that stands in a row and a column of a stage's values: columns are the last dimension, rows the keys or the
 * chosen experts. Columns of heads side by side begin with the chosen one's, those of the vocabulary are words.
 */
export function numberAt(stage: Stage, { row, column }: Cell): Numbered {
  const index = [...stage.index];
  const last = index.length - 1;
  const letter = stage.dims[last];
  if (letter === 'V') index[last] = stage.words[column]!;
  else if (letter === 'HE' || letter === 'KE') index[last]! += column;
  else if (letter !== 'T') index[last] = column;
  const down = stage.dims.findIndex((each, n) => n < last && (each === 'S' || each === 'A'));
  if (down >= 0) index[down] = row;
  return { name: stage.name, index };
}

/** The last part of a value's name; a row of the embedding table is what an id picks of it. */
export function shortName(stage: Stage): string {
  return stage.dims[0] === 'V' ? 'E[id]' : stage.name.slice(stage.name.lastIndexOf('.') + 1);
}

/** How a stage is drawn: one whole number, the names of what was chosen, a line of colours, a cell for each of a few tokens or words, or shares. */
export type Look = 'id' | 'chosen' | 'strip' | 'cells' | 'shares';

/** So many tokens have a cell each; of more only the greatest have. */
export const CELLS = 24;

export function look(stage: Stage): Look {
  if (stage.dims.at(-1) === 'T') return 'id';
  if (stage.total !== null) return 'shares';
  if (stage.dims.at(-1) === 'A') return 'chosen';
  return stage.columns.length > 0 ? 'cells' : 'strip';
}

/**
 * How many of six columns each stage of a branch takes: all where tokens and words stand beside each other, and the norm
 * that stands before the others; of a row of others three take two each, two take three.
 */
export function spans(stages: Stage[]): number[] {
  const found = stages.map((stage, n): number =>
    ['cells', 'shares'].includes(look(stage)) || (n === 0 && shortName(stage) === 'normed') ? 6 : 0,
  );
  for (let n = 0; n < found.length; n++) {
    if (found[n]) continue;
    let end = n;
    while (found[end] === 0) end++;
    const count = end - n;
    const across = count === 4 ? 2 : Math.min(3, count);
    found.fill(6 / across, n, n + across);
  }
  return found;
}

/** Places of the greatest numbers, the greatest first. */
export function greatest(values: ArrayLike<number>, count: number): number[] {
  return Array.from(values, (_, n) => n)
    .sort((a, b) => values[b]! - values[a]!)
    .slice(0, count);
}

/** Shares in their order; those that are too small to be seen are put together with their neighbours. */
export function segments(values: ArrayLike<number>): { at: number | null; share: number }[] {
  const least = Math.min(0.004, 0.5 / values.length);
  const found: { at: number | null; share: number }[] = [];
  for (let at = 0; at < values.length; at++) {
    const share = values[at]!;
    const last = found.at(-1);
    if (share >= least) found.push({ at, share });
    else if (last?.at === null) last.share += share;
    else if (share > 0) found.push({ at: null, share });
  }
  return found;
}
