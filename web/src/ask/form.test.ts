import { describe, expect, it } from 'vitest';
import { en } from '../i18n/answer.en';
import { zh } from '../i18n/answer.zh';
import type { ChangeKind, Option } from '../data/wire';
import { readCommand, shellWords } from './commands';
import { drafts, exampleOf, problemText, read, readValue, writtenValue, type ChangeDraft } from './form';
import { t } from '../i18n/answer';
import { CHANGES, VOCABULARY } from './vocabulary.fixture';

const option = (kind: Option['kind'], more: Partial<Option> = {}): Option => ({
  name: 'x',
  about: '',
  kind,
  default: null,
  required: false,
  positional: false,
  ...more,
});
const there = (kind: Option['kind'], value: unknown, more: Partial<Option> = {}) => {
  const asked = option(kind, more);
  return read([asked], drafts([asked], { x: value }, CHANGES), CHANGES).options.x;
};
const wrong = (asked: Option, text: string) => read([asked], { x: text }, CHANGES).problems.x;

describe('options in a form', () => {
  const cases: [Option['kind'], unknown, Partial<Option>?][] = [
    ['integer', -3],
    ['number', 0.25],
    ['boolean', false, { default: true }],
    ['boolean', true],
    ['string', 'zh'],
    ['choice', 'dot', { choices: ['cosine', 'dot'], default: 'cosine' }],
    ['token', 123],
    ['token', '▁king'],
    ['token', '12'],
    ['tokens', ['▁a', 7, ',', '，']],
    ['list', [0, 3, -1]],
    ['text', '她的妹妹在北京工作。\n第二行'],
    ['text', ' spaces of its own '],
    ['changes', [{ op: 'head', side: 'cross', layer: 3, head: 1 }]],
    [
      'changes',
      [
        { op: 'token', at: 0, ban: ['▁Be', 12] },
        { op: 'attn', layer: '*', head: 0, q: 1, value: 0.5 },
      ],
    ],
  ];
  it.each(cases)('%s %j comes back as it was given', (kind, value, more) => {
    expect(there(kind, value, more)).toEqual(value);
  });

  it('that are as usual are not sent', () => {
    const all = [
      option('integer', { name: 'top', default: 5 }),
      option('boolean', { name: 'writing', default: true }),
      option('choice', { name: 'measure', choices: ['cosine', 'dot'], default: 'cosine' }),
      option('list', { name: 'contexts', default: [] }),
      option('tokens', { name: 'pinned', default: [] }),
      option('token', { name: 'token' }),
      option('changes', { name: 'changes' }),
      option('list', { name: 'occurrences', default: [1, 1] }),
    ];
    expect(read(all, drafts(all, {}, CHANGES), CHANGES)).toEqual({ options: {}, problems: {} });
    const given = { top: 6, writing: false, occurrences: [1, 2] };
    expect(read(all, drafts(all, given, CHANGES), CHANGES).options).toEqual(given);
  });

  it('that are required are sent, and missed', () => {
    const asked = option('token', { required: true });
    expect(read([asked], drafts([asked], {}, CHANGES), CHANGES).problems).toEqual({
      x: { word: 'wrongMissing' },
    });
    const several = option('tokens', { required: true });
    expect(drafts([several], {}, CHANGES).x).toEqual(['']);
    expect(read([several], { x: [' '] }, CHANGES).problems.x).toEqual({ word: 'wrongMissing' });
    const changes = option('changes', { required: true });
    expect(read([changes], { x: [] }, CHANGES).problems.x).toEqual({ word: 'wrongMissing' });
  });

  it('say what is wrong with them, in both languages', () => {
    const cases: [Option, string, string][] = [
      [option('integer'), '1.5', 'wrongInteger'],
      [option('integer', { at_least: 1, at_most: 32 }), '0', 'wrongLow'],
      [option('integer', { at_most: 32 }), '33', 'wrongHigh'],
      [option('number'), 'many', 'wrongNumber'],
      [option('number', { at_least: 0 }), '-0.1', 'wrongLow'],
      [option('choice', { choices: ['a', 'b'] }), 'c', 'wrongChoice'],
      [option('list'), '1,x', 'wrongList'],
      [option('list', { at_least: 0 }), '1,-1', 'wrongLow'],
    ];
    for (const [asked, text, word] of cases) {
      const problem = wrong(asked, text);
      expect(problem?.word, text).toBe(word);
      for (const lang of ['en', 'zh'] as const) expect(problemText(lang, problem!)).not.toMatch(/[{}]/);
    }
    expect(problemText('en', wrong(option('integer', { at_least: 1, at_most: 32 }), '0')!)).toBe(
      '0 is too small; expected 1 to 32.',
    );
  });

  it('take Chinese commas and spaces between numbers', () => {
    expect(read([option('list')], { x: '1，2 3, 4' }, CHANGES).options.x).toEqual([1, 2, 3, 4]);
  });
});

describe('changes', () => {
  it('begin as the example of their kind', () => {
    for (const kind of CHANGES) {
      const asked = option('changes');
      expect(read([asked], { x: [exampleOf(kind)] }, CHANGES).options.x).toEqual([kind.example]);
    }
  });

  it('miss what is required, and JSON that is cut short', () => {
    const asked = option('changes');
    const change: ChangeDraft = { key: 0, op: 'head', fields: { layer: '3' } };
    expect(read([asked], { x: [change] }, CHANGES).problems.x).toEqual({
      word: 'wrongChange',
      values: { place: 1, field: 'head' },
    });
    const cut: ChangeDraft = { key: 0, op: 'head', fields: { layer: '[1', head: '0' } };
    expect(read([asked], { x: [cut] }, CHANGES).problems.x?.word).toBe('wrongJson');
  });

  it('hold any value so that it comes back', () => {
    for (const value of [
      0,
      -1.5,
      '*',
      '12',
      '▁Be',
      '',
      ' a ',
      true,
      'true',
      null,
      [1, 'a'],
      { a: 1 },
      '[x',
      '"',
      '{',
    ])
      expect(readValue(writtenValue(value))).toEqual(value);
  });
});

describe('commands', () => {
  it('are read as a shell reads them', () => {
    expect(shellWords(`a "b \\"c" 'd e'f \\\n  g\\ h ""`)).toEqual(['a', 'b "c', 'd ef', 'g h', '']);
    expect(shellWords(`a 'b`)).toBeNull();
  });

  it('say which question they ask, with which options', () => {
    expect(
      readCommand('cutaway inspect lens "她的" -m translate-zh-en --at -1 --pinned "▁a,#7"', VOCABULARY),
    ).toEqual({
      question: 'lens',
      text: '她的',
      model: 'translate-zh-en',
      options: { at: -1, pinned: ['▁a', 7] },
    });
    expect(readCommand('cutaway inspect "明月" -m poet-zh', VOCABULARY)).toMatchObject({
      question: 'overview',
      text: '明月',
      options: {},
    });
    expect(
      readCommand(
        `cutaway inspect diff "明月" -m poet-zh \\\n  --change '{"op": "head", "layer": 3, "head": 1}' --no-writing`,
        VOCABULARY,
      )?.options,
    ).toEqual({ changes: [{ op: 'head', layer: 3, head: 1 }], writing: false });
    expect(readCommand('cutaway inspect neighbours king -m bert-tiny', VOCABULARY)).toMatchObject({
      text: null,
      options: { token: 'king' },
    });
  });

  it('are left alone where they are not understood', () => {
    for (const line of ['cutaway inspect --help', 'cutaway train x', 'ls', 'cutaway inspect lens a b', ''])
      expect(readCommand(line, VOCABULARY), line).toBeNull();
  });
});

describe('words', () => {
  it('have the same values in both languages', () => {
    const values = (text: string) => [...text.matchAll(/\{(\w+)\}/g)].map((found) => found[1]!).sort();
    for (const word of Object.keys(en) as (keyof typeof en)[]) {
      expect(values(zh[word]), word).toEqual(values(en[word]));
      expect(zh[word], word).not.toBe('');
    }
    expect(t('en', 'progress', { what: 'heads', done: 1, total: 2 })).toBe('heads: 1 of 2');
  });
});

// A vocabulary that lacks a kind of change shows what was given all the same.
describe('a change of an unknown kind', () => {
  it('is kept in the form', () => {
    const held = drafts([option('changes')], { x: [{ op: 'new', a: 1 }] }, [] as ChangeKind[]);
    expect(held.x).toMatchObject([{ op: 'new', fields: { a: '1' } }]);
  });
});
