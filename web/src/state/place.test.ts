import { describe, expect, it } from 'vitest';
import { HOME, read, write, type Place } from './place';

const PLACES: Partial<Place>[] = [
  {},
  { text: '她的妹妹在北京工作。', hide: [4, 5], light: 3 },
  { text: '', model: 'poet-zh' },
  { text: 'a & b = c % d # e + f ? "g" <h>\n\ti\u3000j 👩‍👩‍👧 𠮷', lang: 'zh', theme: 'dark' },
  { view: 'ask' },
  { view: 'learn', tour: { name: 'sentence', step: 11 } },
  { view: 'output', text: '明月', options: { at: 3, top_k: 5, force: 39 } },
  { view: 'flow', options: { side: 'encoder', at: 4 }, number: { name: 'a.b_c.3', index: [0, -1, 5] } },
  { number: { name: 'loss', index: [] } },
  { view: 'search', options: { beam: 4, changes: [{ op: 'token', at: 0, ban: [5] }] } },
  {
    view: 'ask',
    question: 'explain',
    model: './my model',
    options: { name: 'a.b', index: [0, 1], hide: [2], light: null },
  },
  {
    view: 'ask',
    question: 'diff',
    options: { change: [{ op: 'head', side: 'decoder', layer: '*', value: -0.5 }] },
  },
  { options: { to: 'en', beam: 4, __proto__x: true } },
];

describe('a place and its address', () => {
  it.each(PLACES)('%j comes back from its address', (changes) => {
    const place = { ...HOME, ...changes };
    expect(read(write(place))).toEqual({ place, broken: [] });
    expect(read(new URL(write(place), 'http://localhost/proxy/').hash)).toEqual({ place, broken: [] });
  });

  it('names no defaults, and Chinese so that it can be read', () => {
    expect(write(HOME)).toBe('#/');
    expect(write({ ...HOME, text: '明月 松间', hide: [1] })).toBe('#/?text=明月+松间&hide=1');
  });

  it.each([
    ['', HOME, []],
    ['#/?hide=5,4,4', { ...HOME, hide: [4, 5] }, []],
    ['#/?hide=a', HOME, ['hide=a']],
    ['#/?light=-1', HOME, ['light=-1']],
    ['#/?number=a.b[0,]', HOME, ['number=a.b[0,]']],
    ['#/?lang=fr&theme=pink&m=x', { ...HOME, model: 'x' }, ['lang=fr', 'theme=pink']],
    ['#/output/x', HOME, ['#/output/x']],
    ['#/nowhere?text=a', { ...HOME, text: 'a' }, ['#/nowhere']],
    ['#/ask/lens?top={', { ...HOME, view: 'ask', question: 'lens' }, ['top={']],
    ['#/ask/%E0%A4?x=1', { ...HOME, view: 'ask', question: '%E0%A4', options: { x: 1 } }, []],
    ['#/?text=%E0%A4%A', { ...HOME, text: '\ufffd%A' }, []],
  ])('%s', (hash, place, broken) => {
    expect(read(hash)).toEqual({ place, broken });
  });

  it('an option of any name is only an option', () => {
    const { place } = read('#/ask/lens?__proto__={"view":"first"}');
    expect(place.view).toBe('ask');
    expect(Object.keys(place.options)).toEqual(['__proto__']);
    expect(({} as { view?: string }).view).toBeUndefined();
  });
});
