import { textWidth, truncate } from '../kit/display';
import type { Node } from '../data/wire';

/** Lines and boxes that one drawing may have. */
export const MOST = 2000;
export const ROW = 34;
export const TOP = 24;
const [BOX, BETWEEN, PAD, COLUMNS, FONT, SMALL] = [28, 40, 9, 14, 14, 11];

/** A node's box: its left upper corner, what stands in it, and the line that leads to it from its parent. */
export type Placed = {
  node: number;
  x: number;
  y: number;
  width: number;
  height: number;
  label: string;
  chance: string;
  line: string;
};
export type Drawing = {
  placed: Placed[];
  columns: { step: number; x: number }[];
  width: number;
  height: number;
  /** How many dropped nodes have no room. */
  left: number;
};

/**
 * A column for each step, its nodes in their order, the best at the top; a line from each to its parent. Where there
 * are too many marks, each step's last dropped nodes are left out.
 */
export function drawing(nodes: readonly Node[], chance: (node: Node) => string): Drawing {
  const steps = Math.max(0, ...nodes.map((node) => node.step));
  const kept = nodes.filter((node) => node.fate !== 'dropped').length;
  const each = steps ? Math.max(0, Math.floor((MOST / 2 - kept) / steps)) : 0;
  const placed: Placed[] = [];
  const at = new Map<number, Placed>();
  const columns: Drawing['columns'] = [];
  let x = 18;
  let left = 0;
  let rows = 0;
  for (let step = 1; step <= steps; step++) {
    const column = nodes.map((node, place) => ({ node, place })).filter(({ node }) => node.step === step);
    let dropped = 0;
    const drawn = column.filter(({ node }) => node.fate !== 'dropped' || ++dropped <= each);
    left += column.length - drawn.length;
    rows = Math.max(rows, drawn.length);
    const boxes = drawn.map(({ node, place }, row) => {
      const [label, share] = [truncate(node.piece, COLUMNS), chance(node)];
      const width = Math.ceil(2 * PAD + textWidth(label, FONT) + 8 + textWidth(share, SMALL));
      return { node: place, x, y: TOP + row * ROW, width, height: BOX, label, chance: share, line: '' };
    });
    const wide = Math.max(0, ...boxes.map((box) => box.width));
    for (const box of boxes) {
      const parent = nodes[box.node]!.parent;
      const from = parent === null ? undefined : at.get(parent);
      box.width = wide;
      box.line = curve(from ? from.x + from.width : 6, (from?.y ?? TOP) + BOX / 2, x, box.y + BOX / 2);
      at.set(box.node, box);
    }
    columns.push({ step, x });
    placed.push(...boxes);
    x += wide + BETWEEN;
  }
  return { placed, columns, width: x - BETWEEN + 18, height: TOP + rows * ROW, left };
}

function curve(x: number, y: number, toX: number, toY: number): string {
  const middle = ((x + toX) / 2).toFixed(1);
  return `M${x} ${y}C${middle} ${y} ${middle} ${toY} ${toX} ${toY}`;
}

/** The nodes from the first token of a hypothesis to its last, `node`. */
export function way(nodes: readonly Node[], node: number): number[] {
  const found: number[] = [];
  for (let at: number | null = node; at !== null; at = nodes[at]!.parent) found.unshift(at);
  return found;
}

/**
 * Where an arrow leads from a node: to its parent, to its best continuation (on the way to `best` to the winner's), to
 * its neighbours in the same step; Home and End to the first step and to the winner. Null for another key.
 */
export function step(
  nodes: readonly Node[],
  drawn: readonly number[],
  from: number,
  key: string,
  best: number,
): number | null {
  const here = nodes[from]!;
  const column = drawn.filter((at) => nodes[at]!.step === here.step);
  const place = column.indexOf(from);
  switch (key) {
    case 'ArrowLeft':
      return here.parent ?? from;
    case 'ArrowRight': {
      const winners = way(nodes, best);
      const children = drawn.filter((at) => nodes[at]!.parent === from);
      return children.find((at) => winners.includes(at)) ?? children[0] ?? from;
    }
    case 'ArrowUp':
      return column[place - 1] ?? from;
    case 'ArrowDown':
      return column[place + 1] ?? from;
    case 'Home':
      return way(nodes, from)[0]!;
    case 'End':
      return best;
    default:
      return null;
  }
}
