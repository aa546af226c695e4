import type { Block } from '../data/wire';
import { laid } from '../kit/labels';
import { textWidth } from '../kit/display';
import { said } from '../i18n/said';
import type { Locale } from '../i18n/locale';
import { isBar, textOf } from './sorting';

/** Blocks that stand together, each with its place on the page; `across` are the pixels of the widest of them. */
export type Section = { blocks: { block: Block; place: number }[]; across: number };

/** What is broad, if anything, and sections in columns: beside it where there is room, else below it. */
export type Row = { broad: Section | null; columns: Section[] };

/** Pixels that a page has, a column of it, and what stands beside something broad at least. */
export const PAGE = 1150;
const COLUMN = 590;
const BESIDE = 420;

/** A page from top to bottom: its sections, each with its heading, and within one what is broad apart from what is not. */
export function inRows(blocks: readonly Block[], lang: Locale): Row[] {
  const rows: Row[] = [];
  for (const section of sections(blocks, lang)) {
    const last = rows.at(-1);
    if (section.across > COLUMN) rows.push({ broad: section, columns: [] });
    else if (last && (!last.broad || last.broad.across + Math.max(BESIDE, section.across) <= PAGE))
      last.columns.push(section);
    else rows.push({ broad: null, columns: [section] });
  }
  return rows;
}

function sections(blocks: readonly Block[], lang: Locale): Section[] {
  const found: Section[] = [];
  let begun = false;
  blocks.forEach((block, place) => {
    const size = across(block, lang);
    const plain = block.kind === 'Heading' || block.kind === 'Remark';
    const last = found.at(-1);
    const parts = begun && !plain && size > COLUMN !== last!.across > COLUMN;
    if (!last || block.kind === 'Heading' || parts) {
      found.push({ blocks: [{ block, place }], across: size });
      begun = !plain;
      return;
    }
    last.blocks.push({ block, place });
    last.across = Math.max(last.across, size);
    begun ||= !plain;
  });
  return found;
}

/** The pixels that a figure or table takes; 0 for text. */
function across(block: Block, lang: Locale): number {
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
      return block.maps.length ? PAGE : 0;
    case 'Diagram':
      return block.towers.length > 1 ? 680 : 310;
    case 'Points':
      return 640;
    case 'Bars':
      return 16 * block.values.length;
    default:
      return 0;
  }
}
