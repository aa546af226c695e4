const SEGMENTER = new Intl.Segmenter(undefined, { granularity: 'grapheme' });
const ASCII = /^[\x20-\x7e]*$/;
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u;

/** What a reader takes for one character. */
export function clusters(text: string): string[] {
  return Array.from(SEGMENTER.segment(text), (each) => each.segment);
}

export function isWide(cluster: string): boolean {
  return WIDE.test(cluster);
}

/** Columns of type of one width: 2 for wide characters, 1 for others. */
export function width(text: string): number {
  if (ASCII.test(text)) return text.length;
  return clusters(text).reduce((sum, each) => sum + (isWide(each) ? 2 : 1), 0);
}

/** The longest beginning that fits in so many columns, with `…` where something was cut. */
export function truncate(text: string, columns: number): string {
  if (width(text) <= columns) return text;
  let room = columns - 1;
  let kept = '';
  for (const each of clusters(text)) {
    room -= isWide(each) ? 2 : 1;
    if (room < 0) break;
    kept += each;
  }
  return `${kept}…`;
}

/** Pixels that a text takes: wide characters an em, others 0.6 of it, as monospaced fonts have them. */
export function textWidth(text: string, size: number): number {
  if (ASCII.test(text)) return 0.6 * size * text.length;
  return clusters(text).reduce((sum, each) => sum + (isWide(each) ? size : 0.6 * size), 0);
}
