import type { Locale } from '../i18n/locale';
import { tour, type Tour } from './tour';

const FILES = import.meta.glob<string>('./tours/*.md', { query: '?raw', import: 'default' });
/** The names of all tours, each two files in `tours/`: NAME.en.md and NAME.zh.md. */
export const TOURS = ['sentence', 'hand', 'meaning'];

/** A tour in a reader's language; null where there is none of that name. */
export async function openTour(name: string, locale: Locale): Promise<Tour | null> {
  const [structure, words] = ['en', locale].map((each) => FILES[`./tours/${name}.${each}.md`]);
  return structure && words ? tour(await structure(), await words()) : null;
}
