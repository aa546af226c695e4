import type { Block } from '../data/wire';
import { laid } from '../kit/labels';
import { textWidth } from './display';
import { said, type Lang } from './said';
import { isBar, textOf } from './sorting';

/** Blocks that stand together, each with its place on the page; a broad one takes the whole width. */
export type Section = { blocks: { block: Block; place: number }[]; broad: boolean };

/** Pixels that a column has. */
const COLUMN = 600;

/** The sections of a page in order, each with its heading, and within one what is broad apart from what is not. */
export function sections(blocks: readonly Block[], lang: Lang): Section[] {
  const found: Section[] = [];
  let begun = false;
  blocks.forEach((block, place) => {
    const broad = across(block, lang) > COLUMN;
    const plain = block.kind === 'Heading' || block.kind === 'Remark';
    const last = found.at(-1);
    if (!last || block.kind === 'Heading' || (begun && !plain && broad !== last.broad)) {
      found.push({ blocks: [{ block, place }], broad });
      begun = !plain;
      return;
    }
    last.blocks.push({ block, place });
    if (!plain) {
      last.broad ||= broad;
      begun = true;
    }
  });
  return found;
}

/** Sections in rows: a broad one alone, others beside one another. */
export function inRows(found: readonly Section[]): Section[][] {
  const rows: Section[][] = [];
  for (const section of found) {
    const last = rows.at(-1);
    if (section.broad || !last || last[0]!.broad) rows.push([section]);
    else last.push(section);
  }
  return rows;
}

/** The pixels that a figure or table takes; 0 for text. */
function across(block: Block, lang: Lang): number {
  switch (block.kind) {
    case 'Table':
      return block.columns.reduce((sum, column, n) => {
        const texts = block.rows.map((row) => (isBar(row[n]!) ? 110 : textWidth(textOf(row[n]!, lang), 13)));
        return sum + Math.max(textWidth(said(column.title, lang), 13) + 14, ...texts) + 22;
      }, 0);
    case 'Matrix': {
      const names = [block.rows, block.columns].map((each) => each.map((name) => said(name, lang)));
      return laid(names[0]!, names[1]!, { cell: 24, across: Infinity, down: Infinity }).width;
    }
    case 'Atlas':
      return block.maps.length ? Infinity : 0;
    case 'Diagram':
      return block.towers.length > 1 ? Infinity : 320;
    case 'Points':
      return COLUMN + 1;
    case 'Bars':
      return 16 * block.values.length;
    default:
      return 0;
  }
}
