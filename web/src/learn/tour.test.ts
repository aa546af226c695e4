import { describe, expect, it } from 'vitest';
import { HOME, read, write } from '../state/place';
import { isDone, placeOf, tour } from './tour';
import { openTour, TOURS } from './tours';

const ENGLISH =
  '# A\n\nall _of_ it\n\n## B\n\n@ go: #/?hide=1\n@ mark: p, i #2\n@ try: hide=1,2\n\none\n\ntwo **x** `y`\n';

describe('a tour', () => {
  it('has the structure of one file and the words of another', () => {
    const found = tour(ENGLISH, '# 甲\n\n全部\n\n## 乙\n\n一\n');
    expect(found.title).toBe('甲');
    expect(found.about).toEqual([{ kind: 'plain', text: '全部' }]);
    expect(found.steps).toEqual([
      {
        title: '乙',
        paragraphs: [[{ kind: 'plain', text: '一' }]],
        go: '#/?hide=1',
        mark: 'p, i',
        nth: 2,
        attempt: 'hide=1,2',
      },
    ]);
    expect(tour(ENGLISH, ENGLISH).steps[0]!.paragraphs[1]!.map((run) => [run.kind, run.text])).toEqual([
      ['plain', 'two '],
      ['strong', 'x'],
      ['plain', ' '],
      ['code', 'y'],
    ]);
    expect(tour(ENGLISH, ENGLISH).about[1]).toEqual({ kind: 'em', text: 'of' });
    expect(() => tour(ENGLISH, '# 甲\n')).toThrow('0 steps, expected the 1');
  });

  it('leads to places, and knows what was done there', () => {
    const [step] = tour(ENGLISH, ENGLISH).steps;
    const from = { ...HOME, lang: 'zh' as const, tour: { name: 'a', step: 1 } };
    expect(placeOf(step!, from)).toEqual({ ...from, hide: [1] });
    expect(isDone(step!, '#/?hide=1')).toBe(false);
    expect(isDone(step!, '#/?m=x&hide=1,2')).toBe(true);
    expect(isDone({ ...step!, attempt: '' }, '#/?hide=1')).toBe(false);
  });
});

describe.each(TOURS)('the tour %s', (name) => {
  it('is whole in both languages, and every step resolves', async () => {
    for (const locale of ['en', 'zh'] as const) {
      const opened = await openTour(name, locale);
      for (const step of opened!.steps) {
        const { place, broken } = read(step.go);
        expect(broken, step.title).toEqual([]);
        expect(read(write(place)).place).toEqual(place);
        expect(step.paragraphs.length, step.title).toBeGreaterThan(0);
        expect(() => document.querySelector(`main :is(${step.mark})`), step.mark).not.toThrow();
      }
    }
  });
});
