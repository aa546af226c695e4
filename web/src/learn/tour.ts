import { read, type Place } from '../state/place';

/** A run of text, told by how it is set. */
export type Run = { kind: 'plain' | 'strong' | 'em' | 'code'; text: string };

/**
 * One step of a tour: where it leads, what of the page it points at (a CSS selector, and `nth`, of several the one, from
 * 1, or 0 for all), and what its reader is asked to do, as a part of the address (`hide=4`) that is there once it was done.
 */
export type Step = {
  title: string;
  paragraphs: Run[][];
  go: string;
  mark: string;
  nth: number;
  attempt: string;
};
export type Tour = { title: string; about: Run[]; steps: Step[] };

const MARKED = /\*\*(?<strong>.+?)\*\*|\b_(?<em>.+?)_\b|`(?<code>.+?)`/gu;

/**
 * A tour from its two files: the English one has the structure, lines `@ go:`, `@ mark:` and `@ try:` below a step's
 * heading; the one in the reader's language has its words. Throws Error where the two have not the same steps.
 */
export function tour(structure: string, words: string): Tour {
  const [, ...plan] = sections(structure);
  const [head, ...steps] = sections(words);
  if (!head || plan.length !== steps.length)
    throw new Error(`${steps.length} steps, expected the ${plan.length} of the English tour`);
  return {
    title: head.title,
    about: head.paragraphs.flat(),
    steps: steps.map(({ title, paragraphs }, at) => {
      const { go = '#/', mark = '', try: attempt = '' } = plan[at]!.orders;
      const [selector = '', nth] = mark.split(' #');
      return { title, paragraphs, go, mark: selector, nth: Number(nth ?? 0), attempt };
    }),
  };
}

type Section = { title: string; paragraphs: Run[][]; orders: Record<string, string> };

function sections(markdown: string): Section[] {
  return markdown
    .split(/^#{1,2} /mu)
    .slice(1)
    .map((part) => {
      const [title = '', ...rest] = part.split('\n');
      const orders = rest.flatMap((line) => /^@ (\w+): (.+)$/u.exec(line)?.slice(1, 3) ?? []);
      const text = rest.filter((line) => !line.startsWith('@ ')).join('\n');
      return {
        title: title.trim(),
        paragraphs: text.split(/\n{2,}/u).flatMap((each) => (each.trim() ? [runs(each.trim())] : [])),
        orders: Object.fromEntries(orders.flatMap((name, at) => (at % 2 ? [] : [[name, orders[at + 1]!]]))),
      };
    });
}

function runs(text: string): Run[] {
  const found: Run[] = [];
  let end = 0;
  for (const match of text.matchAll(MARKED)) {
    if (match.index > end) found.push({ kind: 'plain', text: text.slice(end, match.index) });
    for (const kind of ['strong', 'em', 'code'] as const) {
      const inner = match.groups?.[kind];
      if (inner !== undefined) found.push({ kind, text: inner });
    }
    end = match.index + match[0].length;
  }
  if (end < text.length) found.push({ kind: 'plain', text: text.slice(end) });
  return found;
}

/** The place of a step; the reader's own language and colours stay. */
export function placeOf(step: Step, from: Place): Place {
  const { place } = read(step.go);
  return { ...place, lang: from.lang, theme: from.theme, tour: from.tour };
}

/** Whether the reader has done what a step asks for. */
export function isDone(step: Step, hash: string): boolean {
  const [name = '', value] = step.attempt.split('=');
  const query = new URLSearchParams(hash.slice(hash.indexOf('?') + 1));
  return name !== '' && query.get(name) === value;
}
