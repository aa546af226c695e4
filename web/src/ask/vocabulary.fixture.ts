import type { ChangeKind, Option, Vocabulary } from '../data/wire';

const both = (text: string) => ({ en: text, zh: `${text}（中文）` });
const option = (name: string, kind: Option['kind'], more: Partial<Option> = {}): Option => ({
  name,
  about: both(`what ${name} means`),
  kind,
  default: null,
  required: false,
  positional: false,
  ...more,
});
const field = (name: string, required = true) => ({
  name,
  about: both(`what ${name} means`),
  required,
  all: false,
  ...(required ? {} : { default: null }),
});

export const CHANGES: ChangeKind[] = [
  {
    op: 'head',
    name: both('head off'),
    about: both('A head writes nothing.'),
    title: both('Attention'),
    example: { op: 'head', side: 'cross', layer: 3, head: 1 },
    fields: [field('side', false), field('layer'), field('head')],
  },
  {
    op: 'attn',
    name: both('one weight set'),
    about: both('A query gives one key another weight.'),
    title: both('Attention'),
    example: { op: 'attn', layer: '*', head: '*', q: 1, value: 1 },
    fields: [field('layer'), field('head'), field('q'), field('value', false)],
  },
  {
    op: 'token',
    name: both('token banned'),
    about: both('A position may not be some tokens.'),
    title: both('Tokens and output'),
    example: { op: 'token', at: 0, ban: ['▁He'] },
    fields: [field('at', false), field('ban', false)],
  },
];

/** A small part of what the server says, by the shapes of all of it. */
export const VOCABULARY: Vocabulary = {
  groups: [
    { name: 'text', title: both('The whole text') },
    { name: 'layers', title: both('Layers') },
    { name: 'changes', title: both('Changes') },
  ],
  questions: [
    {
      name: 'overview',
      about: both('A text at a glance.'),
      group: 'text',
      subject: 'text',
      needs: [],
      options: [option('top', 'integer', { default: 5, at_least: 1 })],
    },
    {
      name: 'lens',
      about: both('What each layer would say.'),
      group: 'layers',
      subject: 'text',
      needs: [both('an output head')],
      options: [
        option('at', 'integer'),
        option('top', 'integer', { default: 5, at_least: 1 }),
        option('pinned', 'tokens', { default: [] }),
      ],
    },
    {
      name: 'experts',
      about: both('Which expert saw which token.'),
      group: 'layers',
      subject: 'text',
      needs: [both('a mixture of experts')],
      options: [],
    },
    {
      name: 'neighbours',
      about: both('The tokens nearest to one.'),
      group: 'text',
      subject: 'model',
      needs: [],
      options: [
        option('token', 'token', { required: true, positional: true }),
        option('measure', 'choice', { choices: ['cosine', 'dot'], default: 'cosine' }),
      ],
    },
    {
      name: 'diff',
      about: both('The same text with changes.'),
      group: 'changes',
      subject: 'text',
      needs: [],
      options: [
        option('changes', 'changes', { required: true }),
        option('other', 'text'),
        option('writing', 'boolean', { default: true }),
      ],
    },
  ],
  run_options: [option('to', 'string'), option('beam', 'integer', { at_least: 1, at_most: 32 })],
  changes: CHANGES,
  glossary: [],
  taps: [],
};
