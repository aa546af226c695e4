/** A cell of a grid, from 0. */
export type Cell = { row: number; column: number };

const PAGE = 10;

/**
 * Where a key leads from a cell: arrows to its neighbours, Home and End to the ends of its row (with Ctrl of the whole
 * grid), PgUp and PgDn ten rows up and down. Null for a key that leads nowhere.
 */
export function move(
  from: Cell,
  key: string,
  size: { rows: number; columns: number },
  ctrl = false,
): Cell | null {
  const last = { row: size.rows - 1, column: size.columns - 1 };
  const at = (row: number, column: number): Cell => ({
    row: Math.min(last.row, Math.max(0, row)),
    column: Math.min(last.column, Math.max(0, column)),
  });
  switch (key) {
    case 'ArrowUp':
      return at(from.row - 1, from.column);
    case 'ArrowDown':
      return at(from.row + 1, from.column);
    case 'ArrowLeft':
      return at(from.row, from.column - 1);
    case 'ArrowRight':
      return at(from.row, from.column + 1);
    case 'Home':
      return at(ctrl ? 0 : from.row, 0);
    case 'End':
      return at(ctrl ? last.row : from.row, last.column);
    case 'PageUp':
      return at(from.row - PAGE, from.column);
    case 'PageDown':
      return at(from.row + PAGE, from.column);
    default:
      return null;
  }
}
