import { clusters, isWide, textWidth, truncate, width } from './display';

/** Columns of a label; what is longer is cut, and told whole with the cell. */
export const LONGEST = 18;

/** Pixels that cells may take at most, and a map with its labels. */
export type Room = { cell: number; across: number; down: number };

/**
 * Where the cells of a heat map lie, and how its columns are labelled: as they are where all of them fit above their
 * columns, else standing where there is Chinese among them, else slanted. `every`: of so many labels one is shown.
 */
export type Laid = {
  left: number;
  top: number;
  cell: number;
  font: number;
  every: number;
  titles: 'flat' | 'upright' | 'slanted';
  titleFont: number;
  titleEvery: number;
  width: number;
  height: number;
  rows: string[];
  columns: string[];
};

/** Cells as large as the room allows, whole pixels each, with their labels at the left and above. */
export function laid(rows: readonly string[], columns: readonly string[], room: Room): Laid {
  const names = rows.map((name) => truncate(name, LONGEST));
  const heads = columns.map((name) => truncate(name, LONGEST));
  const left = Math.ceil(11 + names.reduce((most, name) => Math.max(most, textWidth(name, 12)), 0));
  const tall = room.down / Math.max(1, rows.length);
  const fitted = (room.across - left - 2) / Math.max(1, columns.length);
  let cell = Math.max(2, Math.floor(Math.min(room.cell, fitted, tall)));
  let above = titled(heads, cell);
  // The last label may go beyond its column.
  while (cell > 2 && left + cell * columns.length + 2 + above.over > room.across)
    above = titled(heads, --cell);
  const { titles, top, titleFont, titleEvery, over } = above;
  const font = labelSize(cell);
  return {
    left,
    top,
    cell,
    font,
    every: everyNth(font, cell),
    titles,
    titleFont,
    titleEvery,
    width: left + cell * columns.length + 2 + over,
    height: top + cell * rows.length + 2,
    rows: names,
    columns: heads,
  };
}

type Titled = Pick<Laid, 'titles' | 'top' | 'titleFont' | 'titleEvery'> & { over: number };

/** How labels stand above cells of this size; `over` are the pixels that the last one goes beyond them. */
function titled(heads: readonly string[], cell: number): Titled {
  const font = labelSize(cell);
  const longest = heads.reduce((most, name) => Math.max(most, textWidth(name, font)), 0);
  if (longest <= cell - 2)
    return { titles: 'flat', top: Math.ceil(font + 8), titleFont: font, titleEvery: 1, over: 0 };
  if (heads.some((name) => clusters(name).some(isWide))) {
    const tallest = heads.reduce((most, name) => Math.max(most, standingHeight(name, font)), 0);
    const top = Math.ceil(tallest + 10);
    return { titles: 'upright', top, titleFont: font, titleEvery: everyNth(font, cell), over: 0 };
  }
  // Lines of text at 45° are closer together than their columns.
  const slanted = Math.max(8, Math.min(font, 0.68 * cell));
  const every = Math.max(1, Math.ceil((slanted + 1) / (0.7 * cell) - 0.5));
  const shown = heads.filter((_, n) => n % every === 0);
  const reach = shown.reduce((most, name) => Math.max(most, textWidth(name, slanted)), 0);
  const over = shown.reduce((most, name, n) => {
    const end = (n * every + 0.5) * cell + 0.71 * textWidth(name, slanted) + 4;
    return Math.max(most, end - heads.length * cell);
  }, 0);
  const top = Math.ceil(0.71 * (reach + slanted) + 6);
  return { titles: 'slanted', top, titleFont: slanted, titleEvery: every, over: Math.ceil(over) };
}

/** The characters of a standing label, one under another. */
export function stacked(text: string): string[] {
  return clusters(text).filter((each) => each.trim());
}

/** Whether a label stands rather than lies on its side: one with Chinese in it, or of one character. */
export function stands(name: string): boolean {
  return width(name) > clusters(name).length || clusters(name).length === 1;
}

function standingHeight(name: string, font: number): number {
  return stands(name) ? (font + 1) * stacked(name).length : textWidth(name, font);
}

function everyNth(font: number, cell: number): number {
  return Math.max(1, Math.ceil((font + 1) / cell));
}

function labelSize(cell: number): number {
  return Math.max(9, Math.min(12, cell * 0.9));
}
