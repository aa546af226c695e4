import { flushSync, mount, unmount } from 'svelte';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Block, Matrix, Page, Text } from '../data/wire';
import PageView from './PageView.svelte';
import type { Locale } from '../i18n/locale';

const both = (text: string): Text => ({ en: text, zh: `${text}字` });
const singles = (values: number[]) =>
  btoa(String.fromCharCode(...new Uint8Array(Float32Array.from(values).buffer)));
const matrix = (more: Partial<Matrix> = {}): Matrix => ({
  kind: 'Matrix',
  values: { shape: [2, 3], f32: singles([0, 0.25, 1, -Infinity, NaN, 0.5]) },
  rows: ['▁Her', both('row one')],
  columns: ['她的', '妹妹', both('column two')],
  down: both('query'),
  across: both('key'),
  unit: both('weight'),
  scale: 'weight',
  drawn: false,
  greatest: null,
  ...more,
});

const BLOCKS: Block[] = [
  { kind: 'Heading', text: both('a heading') },
  { kind: 'Remark', text: both('a remark') },
  {
    kind: 'Line',
    label: both('line label'),
    words: ['▁word ', { kind: 'Tinted', text: both('tinted'), value: 0.5, scale: 'weight', hint: '0.500' }],
    tint: both('probability'),
  },
  { kind: 'Prose', label: both('prose label'), text: both('prose text') },
  { kind: 'Code', about: both('what the code is for'), lines: 'cutaway inspect lens "a"', drawn: false },
  {
    kind: 'Table',
    columns: [
      { kind: 'Column', title: both('token column'), align: 'left' },
      { kind: 'Column', title: both('effect column'), align: 'right' },
      { kind: 'Column', title: '', align: 'left' },
    ],
    rows: [
      [
        'first cell',
        { kind: 'Tinted', text: '-0.37', value: -0.4, scale: 'signed', hint: both('hint of a cell') },
        { kind: 'Bar', value: 0.25 },
      ],
      [both('second cell'), '+1.50', { kind: 'Bar', value: 1 }],
    ],
    tint: both('table tint'),
    keep: 1,
  },
  { kind: 'Bars', values: [3, 2, 1], across: both('direction'), unit: both('singular value') },
  matrix(),
  {
    kind: 'Atlas',
    names: ['0.0', both('map one')],
    maps: [matrix(), matrix()],
    per_row: 2,
    opened: 0,
  },
  {
    kind: 'Points',
    points: [
      { kind: 'Point', x: 0, y: 0, label: both('point a'), group: 0 },
      { kind: 'Point', x: 3, y: 4, label: 'point b', group: 1 },
    ],
    across: both('axis 1'),
    down: both('axis 2'),
    paths: [[0, 1]],
    groups: [both('group one'), both('group two')],
    arrows: true,
  },
  {
    kind: 'Shaded',
    label: both('shaded label'),
    tokens: ['▁sh', 'aded'],
    values: [2, -1],
    unit: both('nats'),
    drawn: false,
    greatest: null,
  },
  {
    kind: 'Edited',
    parts: [
      ['equal', ['same'], ['same']],
      ['replace', ['old'], ['new']],
      ['delete', ['gone'], []],
      ['insert', [], ['come']],
    ],
  },
  {
    kind: 'Diagram',
    towers: [
      {
        kind: 'Tower',
        top: both('logits'),
        above: [{ kind: 'Box', lines: [both('a norm')], of: 'norm' }],
        repeated: [{ kind: 'Box', lines: [both('an attention'), '4×64'], of: 'attention' }],
        times: 4,
        below: [{ kind: 'Box', lines: [both('an embedding')], of: 'embedding' }],
        bottom: both('ids'),
      },
      { kind: 'Tower', top: both('out'), above: [], repeated: [], times: 2, below: [], bottom: both('in') },
    ],
    memory: both('the memory'),
    enters: 0,
  },
];
const page = (blocks: Block[], more: Partial<Page> = {}): Page => ({
  title: both('the title'),
  blocks,
  caption: {
    model: 'translate-zh-en',
    text: '她的妹妹在北京工作。',
    output: 'Her sister works in Beijing.',
    command: 'cutaway inspect "她的妹妹在北京工作。"',
    python: 'from cutaway import load\nresult = 1',
    date: '2026-11-30',
  },
  terms: [[both('a term'), both('its meaning')]],
  ...more,
});

let shown: Record<string, unknown> | null = null;
function show(page: Page, lang: Locale = 'en'): HTMLElement {
  document.body.innerHTML = '<div id="app"></div>';
  const target = document.getElementById('app')!;
  shown = mount(PageView, { target, props: { page, lang } });
  flushSync();
  return target;
}
afterEach(async () => {
  if (shown) await unmount(shown);
  shown = null;
  vi.restoreAllMocks();
});

/** Every text in a block: those of its fields that are words of the page. */
function texts(value: unknown, lang: Locale): string[] {
  if (Array.isArray(value)) return value.flatMap((each) => texts(each, lang));
  if (typeof value !== 'object' || value === null) return [];
  if ('en' in value && 'zh' in value) return [(value as { en: string; zh: string })[lang]];
  return Object.values(value).flatMap((each) => texts(each, lang));
}
const spoken = (element: HTMLElement) => {
  const labels = Array.from(element.querySelectorAll('[aria-label], [title]'), (each) =>
    [each.getAttribute('aria-label'), each.getAttribute('title')].join(' '),
  );
  return [element.textContent ?? '', ...labels].join(' ').replace(/\s+/g, ' ');
};

describe('a page', () => {
  for (const lang of ['en', 'zh'] as const)
    it.each(BLOCKS.map((block) => [block.kind, block] as const))(
      `has all words of a %s, ${lang}`,
      (kind, block) => {
        const words = texts(block, lang);
        const found = show(page([block]), lang);
        expect(found.querySelector('.problem')).toBeNull();
        for (const word of words) expect(spoken(found), `${kind}: ${word}`).toContain(word);
        // What belongs to one language is not there in the other.
        if (lang === 'zh')
          for (const word of texts(block, 'en')) expect(spoken(found)).not.toMatch(`${word}(?!字)`);
      },
    );

  it('has its title, where it comes from, the command, the Python and its terms', () => {
    const found = spoken(show(page([]), 'zh'));
    for (const word of [
      'the title字',
      '模型',
      'translate-zh-en',
      '她的妹妹在北京工作。',
      '日期',
      '2026-11-30',
      'Her sister works in Beijing.',
      'cutaway inspect',
      'from cutaway import load',
      'a term字',
      'its meaning字',
    ])
      expect(found).toContain(word);
  });

  it('does without what is not known', () => {
    const found = show(page([], { caption: null, terms: [] }));
    expect(found.querySelector('footer')).toBeNull();
    expect(found.querySelector('dl')).toBeNull();
  });

  it('says plainly that it does not know a kind', () => {
    const unknown = { kind: 'Hologram' } as unknown as Block;
    const found = show(page([unknown, BLOCKS[0]!]));
    expect(found.querySelector('.problem')?.textContent).toContain('Hologram');
    expect(found.textContent).toContain('a heading');
  });

  it('says plainly that a part is broken, and shows the others', () => {
    vi.spyOn(console, 'error').mockImplementation(() => undefined);
    const found = show(page([matrix({ rows: ['one'] }), BLOCKS[1]!]));
    expect(found.querySelector('.problem')?.textContent).toContain('2 × 3 numbers for 1 × 3 cells');
    expect(found.textContent).toContain('a remark');
  });

  it('shows hostile text as text', () => {
    const hostile = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>\u202e\u0000';
    const blocks = JSON.parse(
      JSON.stringify(BLOCKS, (key, value: unknown) =>
        typeof value === 'object' && value !== null && 'en' in value
          ? hostile
          : ['text', 'label', 'lines'].includes(key) && typeof value === 'string'
            ? hostile
            : value,
      ),
    ) as Block[];
    const found = show(page(blocks, { title: hostile, terms: [[hostile, hostile]] }));
    expect(found.querySelectorAll('img, script, iframe')).toHaveLength(0);
    expect(found.textContent).toContain('<img src=x onerror="window.hit=1">');
    expect(found.textContent).toContain('⟨U+202E⟩⟨U+0000⟩');
    expect(found.innerHTML).not.toMatch(/[\u202e\u0000]/);
    expect('hit' in window).toBe(false);
  });

  it('keeps pieces apart from the text around them, and from translation', () => {
    const found = show(page([BLOCKS[2]!, BLOCKS[10]!]));
    const pieces = [...found.querySelectorAll('bdi.token')];
    expect(pieces.map((each) => each.textContent)).toEqual(['▁word', 'tinted', '▁sh', 'aded']);
    for (const each of pieces) {
      expect(each.getAttribute('dir')).toBe('auto');
      expect(each.getAttribute('translate')).toBe('no');
    }
  });
});

describe('a matrix', () => {
  const grid = () => document.querySelector<HTMLElement>('[role=grid]')!;
  const press = (key: string, more: KeyboardEventInit = {}) => {
    const event = new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true, ...more });
    grid().dispatchEvent(event);
    flushSync();
    return event;
  };
  const readout = () => document.querySelector('.readout')!.textContent!.trim();

  it('is one stop of the tab key, with its size', () => {
    show(page([matrix()]));
    expect(grid().tabIndex).toBe(0);
    expect([grid().getAttribute('aria-rowcount'), grid().getAttribute('aria-colcount')]).toEqual(['2', '3']);
    expect(grid().getAttribute('aria-label')).toContain('query down, key across');
  });

  it('tells its cells by keyboard', () => {
    show(page([matrix()]));
    press('ArrowDown');
    expect(readout()).toBe('query ▁Her (0), key 她的 (0): 0.000');
    press('End');
    expect(readout()).toBe('query ▁Her (0), key column two (2): 1.000');
    press('ArrowDown');
    expect(readout()).toBe('query row one (1), key column two (2): 0.500');
    press('ArrowLeft');
    expect(readout()).toContain('no value');
    press('Home', { ctrlKey: true });
    expect(readout()).toContain('▁Her (0), key 她的 (0)');
    press('PageDown');
    expect(readout()).toContain('hidden by the mask');
    const cell = document.querySelector('[role=gridcell]')!;
    expect(cell.textContent).toBe(readout());
    expect(grid().getAttribute('aria-activedescendant')).toBe(cell.id);
    expect(cell.parentElement!.getAttribute('aria-rowindex')).toBe('2');
    expect(document.querySelector('[aria-live=polite]')!.textContent).not.toBe('');
    press('Escape');
    expect(document.querySelector('[role=gridcell]')).toBeNull();
  });

  it('leaves the keys of the page alone', () => {
    show(page([matrix()]));
    expect(press('Tab').defaultPrevented).toBe(false);
    expect(press('Enter').defaultPrevented).toBe(false);
    expect(press('ArrowDown').defaultPrevented).toBe(true);
  });

  it('has its numbers as a table', () => {
    show(page([matrix()]));
    const cells = [...document.querySelectorAll('tbody td')].map((each) => each.textContent);
    expect(cells).toEqual(['0.000', '0.250', '1.000', '−∞', 'NaN', '0.500']);
  });

  it('has a window into many numbers, each of which can be reached', () => {
    const size = 60;
    const values = { shape: [size, size], f32: singles(Array.from({ length: size * size }, (_, n) => n)) };
    const names = Array.from({ length: size }, (_, n) => `n${n}`);
    show(page([matrix({ values, rows: names, columns: names })]));
    const details = document.querySelector('details')!;
    expect(details.querySelector('table')).toBeNull();
    details.open = true;
    details.dispatchEvent(new Event('toggle'));
    flushSync();
    const button = (name: string) => details.querySelector<HTMLButtonElement>(`[aria-label="${name}"]`)!;
    const last = () => [...details.querySelectorAll('tbody td')].at(-1)!.textContent;
    expect(details.textContent).toContain('rows 0–23 of 60');
    for (let n = 0; n < 2; n++) {
      button('Rows below').click();
      button('Columns at the right').click();
      flushSync();
    }
    expect(details.textContent).toContain('rows 48–59 of 60');
    expect(last()).toBe('3599.000');
    expect(button('Rows below').disabled).toBe(true);
  });
});

describe('an atlas', () => {
  it('opens another map by click and by keyboard', () => {
    const maps = [matrix(), matrix({ down: both('other query') })];
    show(page([{ kind: 'Atlas', names: ['0.0', '0.1'], maps, per_row: 2, opened: 0 }]));
    const buttons = [...document.querySelectorAll<HTMLButtonElement>('.tiles button')];
    expect(buttons.map((each) => [each.getAttribute('aria-pressed'), each.tabIndex])).toEqual([
      ['true', 0],
      ['false', -1],
    ]);
    buttons[0]!.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
    flushSync();
    expect(document.activeElement).toBe(buttons[1]);
    expect(buttons.map((each) => each.tabIndex)).toEqual([-1, 0]);
    buttons[1]!.click();
    flushSync();
    expect(buttons[1]!.getAttribute('aria-pressed')).toBe('true');
    expect(document.querySelector('[role=grid]')!.getAttribute('aria-label')).toContain('other query');
  });
});

describe('a table', () => {
  it('is sorted by a column of numbers: the greatest first, the least first, as it was', () => {
    show(page([BLOCKS[5]!]));
    const first = () => document.querySelector('tbody tr td')!.textContent!.trim();
    const buttons = document.querySelectorAll<HTMLButtonElement>('th button');
    expect(buttons).toHaveLength(1);
    const seen = [first()];
    for (let n = 0; n < 3; n++) {
      buttons[0]!.click();
      flushSync();
      seen.push(`${first()} ${buttons[0]!.closest('th')!.getAttribute('aria-sort')}`);
    }
    expect(seen).toEqual(['first cell', 'second cell descending', 'first cell ascending', 'first cell null']);
  });

  it('tells the hints of its cells by keyboard', () => {
    show(page([BLOCKS[5]!]));
    const table = document.querySelector('table')!;
    for (const key of ['ArrowDown', 'ArrowRight'])
      table.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
    flushSync();
    expect(document.querySelector('.told')!.textContent!.trim()).toBe('-0.37: hint of a cell');
  });
});

describe('points', () => {
  const labels = () => [...document.querySelectorAll('.plane text')].map((each) => each.textContent);

  it('have labels, and are a table too', () => {
    show(page([BLOCKS[9]!]));
    expect(labels()).toEqual(['point a', 'point b']);
    const details = document.querySelector('details')!;
    details.open = true;
    details.dispatchEvent(new Event('toggle'));
    flushSync();
    expect(details.querySelectorAll('tbody tr')).toHaveLength(2);
  });

  it('are drawn as pixels where there are too many', () => {
    const points = Array.from({ length: 2001 }, (_, n) => ({
      kind: 'Point' as const,
      x: n,
      y: n % 7,
      label: `p${n}`,
      group: 0,
    }));
    show(page([{ kind: 'Points', points, across: 'x', down: 'y', paths: [], groups: [], arrows: false }]));
    expect(document.querySelector('.plane canvas')).not.toBeNull();
    expect(document.querySelectorAll('.plane svg circle')).toHaveLength(0);
  });
});
