import { unpack2, type Array2 } from '../data/arrays';
import type { Atlas, Matrix } from '../data/wire';
import { reach } from '../kit/paint/palette';

const READ = new WeakMap<Matrix, Array2>();

/** The numbers of a matrix, unpacked once. Error where they are not as many as its rows and columns say. */
export function numbersOf(matrix: Matrix): Array2 {
  let found = READ.get(matrix);
  if (!found) {
    found = unpack2(matrix.values);
    if (found.rows !== matrix.rows.length || found.columns !== matrix.columns.length)
      throw new Error(
        `${found.rows} × ${found.columns} numbers for ${matrix.rows.length} × ${matrix.columns.length} cells`,
      );
    READ.set(matrix, found);
  }
  return found;
}

/** The value of the strongest colour of a map. */
export function strongest(matrix: Matrix): number {
  return matrix.greatest || reach(numbersOf(matrix).values, matrix.scale);
}

/** The value of the strongest colour of all maps of an atlas. */
export function strongestOf(atlas: Atlas): number {
  return atlas.maps.reduce((most, each) => Math.max(most, strongest(each)), 0) || 1;
}
