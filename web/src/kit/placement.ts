/** Half the side of a mark, in pixels. */
export const MARK = 5;
const GAP = 7;
const STEP = 4;

export type Place = { x: number; y: number };
type Box = { left: number; top: number; right: number; bottom: number };

/**
 * For each mark the left end of its label's baseline: at its right, at its left, above or below it, where it covers
 * none of `lines` if there is such a place. Null where the label would cover another one or a mark everywhere, and
 * where it is empty (size 0). The first marks come first. `height` is the size of the type, in pixels.
 */
export function placed(
  marks: readonly Place[],
  sizes: readonly number[],
  height: number,
  lines: readonly (readonly [Place, Place])[] = [],
  room = Infinity,
): (Place | null)[] {
  const taken = new Boxes(
    marks.map(({ x, y }) => ({ left: x - MARK, top: y - MARK, right: x + MARK, bottom: y + MARK })),
  );
  const drawn = new Boxes(along(lines));
  return marks.map((mark, n) => {
    const size = sizes[n]!;
    if (!size) return null;
    let best: { place: Place; box: Box } | null = null;
    for (const place of candidates(mark, size, height)) {
      const box = {
        left: place.x,
        top: place.y - 0.8 * height,
        right: place.x + size,
        bottom: place.y + 0.2 * height,
      };
      if (box.left < 0 || box.top < 0 || box.right > room || taken.meets(box)) continue;
      best ??= { place, box };
      if (!drawn.meets(box)) {
        best = { place, box };
        break;
      }
    }
    if (!best) return null;
    taken.add(best.box);
    return best.place;
  });
}

/** Boxes by the squares of a coarse grid that they lie in, so that many labels are placed in little time. */
class Boxes {
  private readonly squares = new Map<string, Box[]>();

  constructor(boxes: readonly Box[]) {
    for (const box of boxes) this.add(box);
  }

  add(box: Box): void {
    for (const key of keys(box)) {
      const there = this.squares.get(key);
      if (there) there.push(box);
      else this.squares.set(key, [box]);
    }
  }

  meets(box: Box): boolean {
    for (const key of keys(box))
      for (const each of this.squares.get(key) ?? [])
        if (each.left < box.right && each.right > box.left && each.top < box.bottom && each.bottom > box.top)
          return true;
    return false;
  }
}

function* keys({ left, top, right, bottom }: Box): Iterable<string> {
  for (let x = Math.floor(left / 64); x <= Math.floor(right / 64); x++)
    for (let y = Math.floor(top / 64); y <= Math.floor(bottom / 64); y++) yield `${x},${y}`;
}

function* candidates({ x, y }: Place, size: number, height: number): Iterable<Place> {
  const middle = y + 0.35 * height;
  const above = y - GAP;
  const below = y + GAP + 0.8 * height;
  yield* [
    { x: x + GAP, y: middle },
    { x: x - GAP - size, y: middle },
  ];
  for (const left of [x - size / 2, x + 4, x - 4 - size]) {
    yield { x: left, y: above };
    yield { x: left, y: below };
  }
}

/** Boxes of no size that stand close together on the lines. */
function along(lines: readonly (readonly [Place, Place])[]): Box[] {
  return lines.flatMap(([a, b]) => {
    const steps = 1 + Math.floor(Math.hypot(b.x - a.x, b.y - a.y) / STEP);
    return Array.from({ length: steps + 1 }, (_, n) => {
      const x = a.x + ((b.x - a.x) * n) / steps;
      const y = a.y + ((b.y - a.y) * n) / steps;
      return { left: x, top: y, right: x, bottom: y };
    });
  });
}
