import { unpack } from '../data/arrays';
import type { Lens, ModelInfo } from '../data/wire';

/** A place for which the model has a distribution: the token that stands there, its probability (0 to 1) and rank. */
export type Spot = {
  at: number;
  piece: string;
  share: number;
  rank: number;
  kind: 'written' | 'gap' | 'given';
};

/**
 * Every place of a text, from the last of the lens' readings, which is the model itself. Of a decoder-only model the
 * first `read` tokens were given, the one that begins the text among them.
 */
export function spots(lens: Lens, family: ModelInfo['family'], read: number): Spot[] {
  const count = lens.outcome.pieces.length;
  const last = (lens.layers.length - 1) * count;
  const logs = unpack(lens.outcome_log_probs).values;
  const ranks = unpack(lens.outcome_ranks).values;
  return lens.outcome.pieces.map((piece, at) => {
    const gap = family === 'encoder-only' && lens.tokens.ids[at] !== lens.outcome.ids[at];
    const given = family === 'encoder-only' || (family === 'decoder-only' && at < read - 1);
    return {
      at,
      piece,
      share: Math.exp(logs[last + at]!),
      rank: ranks[last + at]!,
      kind: gap ? 'gap' : given ? 'given' : 'written',
    };
  });
}

/** The place that is looked at first: the first that the model wrote or filled, else the first word. */
export function usual(places: Spot[]): number {
  return places.find((spot) => spot.kind !== 'given')?.at ?? Math.min(1, places.length - 1);
}

/** What a number of layers says at one place, and what it thinks of the token that stands there and of a pinned one. */
export type Reading = {
  layer: number;
  piece: string;
  share: number;
  rank: number;
  pinned: { share: number; rank: number } | null;
};

export function readings(lens: Lens, at: number): Reading[] {
  const count = lens.outcome.pieces.length;
  const logs = unpack(lens.log_probs);
  const best = logs.shape[2]!;
  const ranks = unpack(lens.outcome_ranks).values;
  const many = lens.pinned.ids.length;
  const pinnedLogs = many ? unpack(lens.pinned_log_probs).values : null;
  const pinnedRanks = many ? unpack(lens.pinned_ranks).values : null;
  return lens.layers.map((layer, row) => {
    const cell = row * count + at;
    return {
      layer,
      piece: lens.pieces[row]![at]![0]!,
      share: Math.exp(logs.values[cell * best]!),
      rank: ranks[cell]!,
      pinned: pinnedLogs &&
        pinnedRanks && { share: Math.exp(pinnedLogs[cell * many]!), rank: pinnedRanks[cell * many]! },
    };
  });
}
