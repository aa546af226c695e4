import { isLocale, type Locale } from '../i18n/locale';

export type Theme = 'light' | 'dark';
/** Views that an address names by one word. */
const NAMED = ['flow', 'output', 'heads', 'search', 'lab', 'space', 'learn'] as const;
export type View = 'first' | 'ask' | (typeof NAMED)[number];
/** One number of a run: of which value, and where in it. */
export type Numbered = { name: string; index: number[] };
/** What is looked at: a view of one text in one model. Null and empty are the defaults, which no link names. */
export type Place = {
  view: View;
  question: string | null;
  model: string | null;
  text: string | null;
  hide: number[];
  light: number | null;
  options: Record<string, unknown>;
  /** The number that is looked into. */
  number: Numbered | null;
  /** The tour that somebody is on, and its step, from 1. */
  tour: { name: string; step: number } | null;
  lang: Locale | null;
  theme: Theme | null;
};

export const HOME: Place = {
  view: 'first',
  question: null,
  model: null,
  text: null,
  hide: [],
  light: null,
  options: {},
  number: null,
  tour: null,
  lang: null,
  theme: null,
};

/** The place that the hash of an address names, and the parts of it that name nothing. */
export function read(hash: string): { place: Place; broken: string[] } {
  const place: Place = { ...HOME, options: {} };
  const broken: string[] = [];
  const [path = '', query = ''] = split(hash.replace(/^#/, ''), '?');
  const names = path.split('/').filter(Boolean);
  if (names[0] === 'ask' && names.length <= 2) {
    place.view = 'ask';
    place.question = names[1] === undefined ? null : decoded(names[1]);
  } else if (names.length === 1 && NAMED.some((name) => name === names[0])) place.view = names[0] as View;
  else if (names.length) broken.push(`#${path}`);

  for (const [key, value] of new URLSearchParams(query)) {
    if (key === 'm') place.model = value || null;
    else if (key === 'text') place.text = value;
    else if (key === 'tour' && /^[a-z]+\.[1-9]\d?$/.test(value)) {
      const [name = '', step] = value.split('.');
      place.tour = { name, step: Number(step) };
    } else if (key === 'number' && numberIn(value)) place.number = numberIn(value);
    else if (key === 'lang' && isLocale(value)) place.lang = value;
    else if (key === 'theme' && (value === 'light' || value === 'dark')) place.theme = value;
    else if (key === 'hide' && isCovering(place.view) && /^\d{1,6}(,\d{1,6})*$/.test(value))
      place.hide = sorted(value.split(',').map(Number));
    else if (key === 'light' && place.view === 'first' && /^\d{1,6}$/.test(value))
      place.light = Number(value);
    else if (
      ['lang', 'theme', 'tour', 'number'].includes(key) ||
      (isCovering(place.view) && key === 'hide') ||
      (place.view === 'first' && key === 'light')
    )
      broken.push(`${key}=${value}`);
    else
      try {
        Object.defineProperty(place.options, key, { value: JSON.parse(value), ...OPEN });
      } catch {
        broken.push(`${key}=${value}`);
      }
  }
  return { place, broken };
}

/** The hash that names a place, as short as it can be: `read(write(place)).place` is the place again. */
export function write(place: Place): string {
  const path = [
    '/',
    place.view === 'first' ? '' : place.view,
    place.view === 'ask' && place.question !== null ? `/${encodeURIComponent(place.question)}` : '',
  ].join('');
  const query: [string, string][] = [];
  if (place.model) query.push(['m', place.model]);
  if (place.text !== null) query.push(['text', place.text]);
  if (isCovering(place.view) && place.hide.length) query.push(['hide', place.hide.join(',')]);
  if (place.view === 'first' && place.light !== null) query.push(['light', String(place.light)]);
  for (const [key, value] of Object.entries(place.options))
    if (value !== undefined) query.push([key, JSON.stringify(value)]);
  if (place.number) query.push(['number', numberText(place.number)]);
  if (place.tour) query.push(['tour', `${place.tour.name}.${place.tour.step}`]);
  if (place.lang) query.push(['lang', place.lang]);
  if (place.theme) query.push(['theme', place.theme]);
  return `#${path}${query.length ? '?' : ''}${query.map(([key, value]) => `${key}=${legible(value)}`).join('&')}`;
}

/** Whether words of the text are covered in this view. */
function isCovering(view: View): boolean {
  return view === 'first' || view === 'output' || view === 'lab';
}

/** A number's name and index as a reader writes them: `head.logits[0,3,17]`. */
export function numberText({ name, index }: Numbered): string {
  return index.length ? `${name}[${index.join(',')}]` : name;
}

function numberIn(text: string): Numbered | null {
  const found = /^([\w.]+)(?:\[(-?\d{1,9}(?:,-?\d{1,9})*)\])?$/.exec(text);
  return found && { name: found[1]!, index: found[2]?.split(',').map(Number) ?? [] };
}

export function sorted(places: number[]): number[] {
  return [...new Set(places)].sort((a, b) => a - b);
}

const OPEN = { enumerable: true, configurable: true, writable: true };

function split(text: string, at: string): string[] {
  const place = text.indexOf(at);
  return place < 0 ? [text] : [text.slice(0, place), text.slice(place + 1)];
}

function decoded(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

/** Encoded only as far as an address needs it, so that a Chinese sentence can be read in a link. */
function legible(value: string): string {
  return value
    .toWellFormed()
    .replace(/[^\p{L}\p{N}\p{P}]|[%&#+'"<>\\=]/gu, encodeURIComponent)
    .replaceAll('%20', '+');
}
