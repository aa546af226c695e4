import type { Bar, Table, Text, Tinted } from '../data/wire';
import { numeric } from '../kit/numbers';
import { said } from '../i18n/said';
import type { Locale } from '../i18n/locale';

export type TableCell = Text | Bar | Tinted;

export function isBar(cell: TableCell): cell is Bar {
  return typeof cell === 'object' && 'kind' in cell && cell.kind === 'Bar';
}

export function isTinted(cell: TableCell): cell is Tinted {
  return typeof cell === 'object' && 'kind' in cell && cell.kind === 'Tinted';
}

/** What a cell says; '' for a bar. */
export function textOf(cell: TableCell, lang: Locale): string {
  if (isBar(cell)) return '';
  return said(isTinted(cell) ? cell.text : cell, lang);
}

/** What a cell counts as in sorting; null for one that is no number, NaN for an empty one. */
export function sortValue(cell: TableCell, lang: Locale): number | null {
  if (isBar(cell)) return cell.value ?? NaN;
  const text = textOf(cell, lang).trim();
  return text === '' || text === '–' || text === '—' ? NaN : numeric(text);
}

/** Whether each column can be sorted: it has a title, numbers that differ, and nothing but numbers. */
export function sortable(table: Table, lang: Locale): boolean[] {
  return table.columns.map(({ title }, column) => {
    if (!said(title, lang).trim()) return false;
    const values = table.rows.map((row) => sortValue(row[column]!, lang));
    const numbers = values.filter((value): value is number => value !== null && !Number.isNaN(value));
    return !values.includes(null) && new Set(numbers).size > 1;
  });
}

/** The places of the rows in order of a column, those without a number last; equal ones stay in their order. */
export function sorted(table: Table, column: number, rising: boolean, lang: Locale): number[] {
  const places = headPlaces(table.rows.map((row) => textOf(row[column]!, lang)));
  const values = places ?? table.rows.map((row) => sortValue(row[column]!, lang) ?? NaN);
  return values
    .map((_, place) => place)
    .sort((a, b) => {
      const [one, other] = [values[a]!, values[b]!];
      if (Number.isNaN(one) || Number.isNaN(other))
        return Number(Number.isNaN(one)) - Number(Number.isNaN(other));
      return (rising ? one - other : other - one) || a - b;
    });
}

/**
 * Numbers of heads as `layer.head` in their order, 0.2 before 0.10; null where these are none. Decimals of one column
 * are alike long, or have more than two digits.
 */
function headPlaces(texts: readonly string[]): number[] | null {
  const parts = texts.map((text) => /^(\d+)\.(\d{1,2})$/.exec(text.trim()));
  const lengths = new Set(parts.map((part) => part?.[2]?.length));
  if (lengths.size < 2 || lengths.has(undefined)) return null;
  return parts.map((part) => Number(part![1]) * 100 + Number(part![2]));
}
