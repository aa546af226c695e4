import type { HeadEffect, ModelInfo } from '../data/wire';

export type Change = Record<string, unknown>;
/** A change in the list: one that is off stays where it is and is not asked for. */
export type Item = { change: Change; on: boolean };

/** The list that a place names: its changes, and the places of those that are off. */
export function listed(options: Readonly<Record<string, unknown>>): Item[] {
  const { changes, off } = options;
  const places = Array.isArray(off) ? off : [];
  return (Array.isArray(changes) ? changes : [])
    .filter((change): change is Change => typeof change === 'object' && change !== null)
    .map((change, place) => ({ change, on: !places.includes(place) }));
}

/** The options of a place that name a list; what is as usual is not named. */
export function named(items: readonly Item[]): { changes?: Change[]; off?: number[] } {
  const off = items.flatMap((item, place) => (item.on ? [] : [place]));
  return {
    ...(items.length ? { changes: items.map((item) => item.change) } : {}),
    ...(off.length ? { off } : {}),
  };
}

/** The changes that are on, in their order. */
export function active(items: readonly Item[]): Change[] {
  return items.filter((item) => item.on).map((item) => item.change);
}

export function moved(items: readonly Item[], place: number, by: number): Item[] {
  const others = items.toSpliced(place, 1);
  return others.toSpliced(place + by, 0, items[place]!);
}

export function replaced(items: readonly Item[], place: number, change: Partial<Item>): Item[] {
  return items.with(place, { ...items[place]!, ...change });
}

/** Whether these changes are the whole list, and on; no list is none. */
export function isList(items: readonly Item[], changes: readonly Change[] | null): boolean {
  return items.length > 0 && items.every((item) => item.on) && same(active(items), changes);
}

function same(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

/** A change that switches a head off. */
export function headOff({ side, layer, head }: Omit<HeadEffect, 'effect'>): Change {
  return { op: 'head', side, layer, head };
}

/** The list with this change on, which is added where it is not there. */
export function withChange(items: readonly Item[], change: Change): Item[] {
  const place = items.findIndex((item) => same(item.change, change));
  return place < 0 ? [...items, { change, on: true }] : replaced(items, place, { on: true });
}

/** An example of a change in the bounds of a model: one stack needs no name, and the last layer and head are its own. */
export function fitting(example: Change, model: ModelInfo): Change {
  const fitted = { ...example };
  if (model.family !== 'encoder-decoder') delete fitted['side'];
  const last = { layer: model.n_layers - 1, head: model.n_heads - 1 };
  for (const [name, most] of Object.entries(last))
    if (typeof fitted[name] === 'number') fitted[name] = Math.min(fitted[name], most);
  return fitted;
}

/** The place in the list of the change that a refusal is about; -1 where it names none. */
export function refusedPlace(items: readonly Item[], message: string): number {
  const found = /\bchanges\[(\d+)\]/.exec(message);
  if (!found) return -1;
  const on = items.flatMap((item, place) => (item.on ? [place] : []));
  return on[Number(found[1])] ?? -1;
}
