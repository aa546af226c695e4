import type { Array2 } from '../../data/arrays';

/** A link between two places: column `from` of row `to`. */
export type Link = { from: number; to: number; weight: number };

/**
 * The strongest links of each row until `share` of the row's mass is drawn, at most `most` of all, the strongest
 * first. What is hidden, is no number or is not above 0 is no link.
 */
export function links(weights: Array2, share = 0.8, most = 2000): Link[] {
  const found: Link[] = [];
  for (let to = 0; to < weights.rows; to++) {
    const row: Link[] = [];
    let mass = 0;
    for (let from = 0; from < weights.columns; from++) {
      const weight = weights.values[to * weights.columns + from]!;
      if (!(weight > 0) || weight === Infinity) continue;
      row.push({ from, to, weight });
      mass += weight;
    }
    row.sort((a, b) => b.weight - a.weight || a.from - b.from);
    let drawn = 0;
    for (const link of row) {
      if (drawn >= share * mass) break;
      found.push(link);
      drawn += link.weight;
    }
  }
  found.sort((a, b) => b.weight - a.weight || a.to - b.to || a.from - b.from);
  return found.slice(0, most);
}
