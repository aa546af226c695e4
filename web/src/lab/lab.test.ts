import { describe, expect, it } from 'vitest';
import type { ModelInfo } from '../data/wire';
import {
  active,
  fitting,
  headOff,
  isList,
  listed,
  moved,
  named,
  refusedPlace,
  withChange,
  type Item,
} from './list';
import { redone, stepped, undone, type Steps } from './undo';

const change = (n: number): Item => ({ change: { op: 'scale', layer: n }, on: true });
const [a, b, c] = [change(0), change(1), change(2)];
const off = (item: Item): Item => ({ ...item, on: false });

describe('the list of changes', () => {
  it('stands in the options of a place, what is off in its place', () => {
    const items = [a, off(b), c, off(change(3))];
    expect(named(items)).toEqual({ changes: items.map((item) => item.change), off: [1, 3] });
    expect(listed(named(items))).toEqual(items);
    expect(named([])).toEqual({});
    expect(listed({ changes: 'x', off: 3 })).toEqual([]);
    expect(listed({ changes: [null, 5, a.change] })).toEqual([a]);
    expect(active(items)).toEqual([a.change, c.change]);
  });

  it('keeps what is off off while it is moved', () => {
    expect(moved([a, off(b), c], 1, 1)).toEqual([a, c, off(b)]);
    expect(moved([a, off(b), c], 2, -1)).toEqual([a, c, off(b)]);
  });

  it('knows the changes that are the whole of it', () => {
    expect(isList([a, b], [a.change, b.change])).toBe(true);
    expect(isList([b, a], [a.change, b.change])).toBe(false);
    expect(isList([a, off(b)], [a.change])).toBe(false);
    expect(isList([], null)).toBe(false);
    expect(isList([], [])).toBe(false);
  });

  it('has a head off once', () => {
    const head = headOff({ side: 'cross', layer: 3, head: 1 });
    const once = withChange([a], head);
    expect(once).toEqual([a, { change: head, on: true }]);
    expect(withChange(once, head)).toEqual(once);
    expect(withChange([a, { change: head, on: false }], head)).toEqual(once);
  });

  it('finds the change that was refused among those that are on', () => {
    expect(refusedPlace([off(a), b, c], 'changes[1] (scale): no')).toBe(2);
    expect(refusedPlace([off(a), b], 'changes[1] (scale): no')).toBe(-1);
    expect(refusedPlace([a], 'the text is empty')).toBe(-1);
  });
});

it('an example is brought within the bounds of a model', () => {
  const model = { family: 'encoder-only', n_layers: 2, n_heads: 2 } as ModelInfo;
  const example = { op: 'head', side: 'cross', layer: 3, head: 1 };
  expect(fitting(example, model)).toEqual({ op: 'head', layer: 1, head: 1 });
  expect(fitting({ op: 'x', layer: '*', head: -1 }, model)).toEqual({ op: 'x', layer: '*', head: -1 });
  const pair = { ...model, family: 'encoder-decoder', n_layers: 4 } as ModelInfo;
  expect(fitting(example, pair)).toEqual(example);
});

it('twenty steps are taken back and done again (B29)', () => {
  let steps: Steps<Item[]> = { past: [], now: [], future: [] };
  const lists = Array.from({ length: 20 }, (_, n) => Array.from({ length: n + 1 }, (_, k) => change(k)));
  for (const list of lists) steps = stepped(steps, list);
  expect(stepped(steps, [...lists[19]!])).toBe(steps);
  for (let n = 18; n >= 0; n--) expect((steps = undone(steps)!).now).toEqual(lists[n]);
  expect((steps = undone(steps)!).now).toEqual([]);
  expect(undone(steps)).toBeNull();
  for (const list of lists) expect((steps = redone(steps)!).now).toEqual(list);
  expect(redone(steps)).toBeNull();
  // A step of another kind ends what could be done again.
  const other = stepped(undone(steps)!, [off(a)]);
  expect(redone(other)).toBeNull();
  expect(undone(other)!.now).toEqual(lists[18]);
});
