import type { Component } from 'svelte';
import type { Key } from '../i18n/words.svelte';
import type { ModelInfo } from '../data/wire';
import { labHref } from '../lab/link';
import { selection } from '../state/selection.svelte';
import type { View } from '../state/place';

type Model = ModelInfo | undefined;
export type Drawn = Component<{ model: Model }>;

/** A view as the head of the page, the keys and their sheet know it. */
export type Listed = {
  view: View;
  word: Key;
  /** The letters that lead there, and what the sheet of keys says of them. */
  keys: string;
  told: Key;
  /** Whether it has something to show of a model. */
  has(model: Model): boolean;
  href(model: Model): string;
  /** Its code, where that is fetched once somebody goes there. */
  load?: () => Promise<{ default: Drawn }>;
};

const asked = (question: string) => (model: Model) => model?.questions.includes(question) ?? false;
const anything = (): boolean => true;
/** Word vectors read no sentence: their space is what they open with. */
const isVectors = (model: Model): boolean => model?.family === 'word2vec';
const gaps = (model: Model): number[] => (model?.family === 'encoder-only' ? selection.place.hide : []);

export const VIEWS: Listed[] = [
  {
    view: 'first',
    word: 'nav.first',
    keys: 'g f',
    told: 'key.first',
    has: (model) => !isVectors(model),
    href: () => selection.link({ view: 'first', question: null, options: {} }),
  },
  {
    view: 'flow',
    word: 'nav.flow',
    keys: 'g w',
    told: 'key.flow',
    has: asked('flow'),
    href: () => selection.viewing('flow'),
    load: () => import('../flow/FlowView.svelte'),
  },
  {
    view: 'output',
    word: 'nav.output',
    keys: 'g o',
    told: 'key.output',
    has: asked('candidates'),
    href: (model) => selection.viewing('output', {}, gaps(model)),
    load: () => import('../output/OutputView.svelte'),
  },
  {
    view: 'heads',
    word: 'nav.heads',
    keys: 'g h',
    told: 'key.heads',
    has: asked('heads'),
    href: () => selection.viewing('heads'),
    load: () => import('../heads/HeadsView.svelte'),
  },
  {
    view: 'search',
    word: 'nav.search',
    keys: 'g t',
    told: 'key.search',
    has: asked('tree'),
    href: () => selection.viewing('search'),
    load: () => import('../search/SearchView.svelte'),
  },
  {
    view: 'lab',
    word: 'nav.lab',
    keys: 'g x',
    told: 'key.lab',
    has: asked('diff'),
    href: labHref,
    load: () => import('../lab/LabView.svelte'),
  },
  {
    view: 'space',
    word: 'nav.space',
    keys: 'g s',
    told: 'key.space',
    has: asked('cloud'),
    href: () => selection.viewing('space'),
    load: () => import('../space/SpaceView.svelte'),
  },
  {
    view: 'ask',
    word: 'questions',
    keys: 'g q',
    told: 'key.ask',
    has: anything,
    href: () => selection.asking(null),
  },
  {
    view: 'learn',
    word: 'nav.learn',
    keys: 'g l',
    told: 'key.learn',
    has: anything,
    href: () => selection.viewing('learn'),
  },
];

/** The view that a place shows of a model. */
export function shown(view: View, model: Model): Listed {
  const name = view === 'first' && isVectors(model) ? 'space' : view;
  return VIEWS.find((each) => each.view === name)!;
}
