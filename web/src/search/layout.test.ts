import { describe, expect, it } from 'vitest';
import type { Node } from '../data/wire';
import { drawing, MOST, ROW, step, TOP, way } from './layout';

function node(step: number, parent: number | null, fate: Node['fate'], piece = 'a'): Node {
  return {
    step,
    parent,
    id: 7,
    piece,
    log_prob: -1,
    total: -step,
    divisor: 1,
    score: -step,
    fate,
    text: piece,
  };
}
// Three steps: 0 goes on to 3 and 3 to the winner, 6; 1 to 4, which ended, and to 5.
const NODES = [
  node(1, null, 'live', '▁Her'),
  node(1, null, 'live', '▁She'),
  node(1, null, 'dropped', '▁A'),
  node(2, 0, 'live', '▁sister'),
  node(2, 1, 'stop', '</s>'),
  node(2, 1, 'dropped', '▁is'),
  node(3, 3, 'stop', '</s>'),
];
const ALL = NODES.map((_, at) => at);

describe('a drawing of a search', () => {
  const { placed, columns, width, height, left } = drawing(NODES, () => '5%');

  it('has a column for each step and a row for each rank, none over another', () => {
    expect(left).toBe(0);
    expect(columns.map((column) => column.step)).toEqual([1, 2, 3]);
    expect(placed.map((box) => box.node)).toEqual(ALL);
    expect(placed.map((box) => (box.y - TOP) / ROW)).toEqual([0, 1, 2, 0, 1, 2, 0]);
    for (const box of placed)
      for (const other of placed)
        if (other !== box && other.y === box.y && other.x >= box.x)
          expect(other.x).toBeGreaterThan(box.x + box.width);
    expect(Math.max(...placed.map((box) => box.x + box.width))).toBeLessThan(width);
    expect(Math.max(...placed.map((box) => box.y + box.height))).toBeLessThanOrEqual(height);
  });

  it('leads every line from the right edge of the parent to the left edge of the node', () => {
    for (const box of placed) {
      const numbers = box.line.match(/-?[\d.]+/g)!.map(Number);
      const parent = placed.find((each) => each.node === NODES[box.node]!.parent);
      expect(numbers.slice(-2)).toEqual([box.x, box.y + box.height / 2]);
      if (parent)
        expect(numbers.slice(0, 2)).toEqual([parent.x + parent.width, parent.y + parent.height / 2]);
    }
  });

  it('leaves out dropped ones where there are too many marks, and tells how many', () => {
    const many: Node[] = [];
    for (let at = 0; at < 50; at++) {
      many.push(node(at + 1, at ? (at - 1) * 41 : null, 'live'));
      for (let other = 0; other < 40; other++) many.push(node(at + 1, at ? (at - 1) * 41 : null, 'dropped'));
    }
    const large = drawing(many, () => '');
    expect(large.placed.length * 2).toBeLessThanOrEqual(MOST);
    expect(large.placed.length + large.left).toBe(many.length);
    expect(large.placed.filter((box) => many[box.node]!.fate === 'live')).toHaveLength(50);
  });

  it('is empty of nothing', () => {
    expect(drawing([], () => '').placed).toEqual([]);
  });
});

it('knows the way to a node', () => {
  expect(way(NODES, 6)).toEqual([0, 3, 6]);
  expect(way(NODES, 1)).toEqual([1]);
});

it.each([
  [0, 'ArrowRight', 3],
  [1, 'ArrowRight', 4],
  [6, 'ArrowRight', 6],
  [6, 'ArrowLeft', 3],
  [0, 'ArrowLeft', 0],
  [0, 'ArrowDown', 1],
  [2, 'ArrowDown', 2],
  [1, 'ArrowUp', 0],
  [6, 'Home', 0],
  [2, 'End', 6],
  [2, 'x', null],
])('from %i by %s to %j', (from, key, to) => {
  expect(step(NODES, ALL, from, key, 6)).toBe(to);
});
