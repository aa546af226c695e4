import { clusters, isWide, textWidth, truncate, width } from '../page/display';

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
  const left = Math.ceil(8 + names.reduce((most, name) => Math.max(most, textWidth(name, 12)), 0));
  const fitted = (room.across - left - 2) / Math.max(1, columns.length);
  const tall = room.down / Math.max(1, rows.length);
  const cell = Math.max(2, Math.floor(Math.min(room.cell, fitted, tall)));
  const font = labelSize(cell);
  const every = Math.max(1, Math.ceil((font + 1) / cell));
  const across = cell * columns.length;
  const size = { left, cell, font, every, rows: names, columns: heads, height: 0 };
  const longest = heads.reduce((most, name) => Math.max(most, textWidth(name, font)), 0);
  const made = (
    titles: Laid['titles'],
    top: number,
    titleFont: number,
    titleEvery: number,
    more = 0,
  ): Laid => {
    const ceiled = Math.ceil(top);
    const height = ceiled + cell * rows.length + 2;
    return { ...size, titles, top: ceiled, titleFont, titleEvery, width: left + across + 2 + more, height };
  };
  if (longest <= cell - 2) return made('flat', font + 8, font, 1);
  if (heads.some((name) => width(name) > name.length)) {
    const tallest = heads.reduce((most, name) => Math.max(most, standingHeight(name, font)), 0);
    return made('upright', tallest + 10, font, every);
  }
  // Lines of text at 45° are closer together than their columns.
  const slanted = Math.max(8, Math.min(font, 0.68 * cell));
  const apart = Math.max(1, Math.ceil((slanted + 1) / (0.7 * cell) - 0.5));
  const shown = heads.filter((_, n) => n % apart === 0);
  const reach = shown.reduce((most, name) => Math.max(most, textWidth(name, slanted)), 0);
  const last = heads.length - 1 - ((heads.length - 1) % apart);
  const over = 0.71 * textWidth(heads[last] ?? '', slanted) - (heads.length - last - 0.5) * cell;
  return made('slanted', 0.71 * (reach + slanted) + 6, slanted, apart, Math.max(0, Math.ceil(over)));
}

/** The characters of a standing label, one under another. */
export function stacked(text: string): string[] {
  return clusters(text).filter((each) => each.trim());
}

/** Whether a label stands rather than lies on its side: one with Chinese in it, or of one character. */
export function stands(name: string): boolean {
  return clusters(name).some(isWide) || clusters(name).length === 1;
}

function standingHeight(name: string, font: number): number {
  return stands(name) ? (font + 1) * stacked(name).length : textWidth(name, font);
}

function labelSize(cell: number): number {
  return Math.max(9, Math.min(12, cell * 0.9));
}
