import { flushSync, mount, tick, unmount } from 'svelte';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Failure } from '../data/client';
import type { Answer, ModelInfo, Progress } from '../data/wire';
import AskView from './AskView.svelte';
import QuestionForm from './QuestionForm.svelte';
import QuestionList from './QuestionList.svelte';
import { VOCABULARY } from './vocabulary.fixture';

const MODEL = {
  id: 'translate-zh-en',
  name: 'translate-zh-en',
  state: 'ready',
  questions: ['overview', 'lens', 'neighbours', 'diff'],
} as ModelInfo;
const answer = (question: string, title = `answer to ${question}`): Answer => ({
  question,
  model: MODEL.id,
  text: '她的',
  options: {},
  output: null,
  notes: [{ en: 'a note', zh: '一条说明' }],
  command: `cutaway inspect ${question}`,
  python: '',
  ms: 12,
  page: {
    title,
    blocks: [
      {
        kind: 'Code',
        about: { en: 'go on', zh: '继续' },
        lines: 'cutaway inspect lens "她的" --top 3',
        drawn: false,
      },
    ],
    caption: null,
    terms: [],
  },
});

let shown: Record<string, unknown> | null = null;
const target = () => document.getElementById('app')!;
const text = () => target().textContent!.replace(/\s+/g, ' ');
const find = <T extends Element = HTMLElement>(selector: string) => target().querySelector<T>(selector)!;

beforeEach(() => {
  document.body.innerHTML = '<div id="app"></div>';
});
afterEach(async () => {
  if (shown) await unmount(shown);
  shown = null;
  vi.useRealTimers();
});

describe('the list of questions', () => {
  it('has every question under its group, and says why one cannot be asked', () => {
    shown = mount(QuestionList, {
      target: target(),
      props: {
        vocabulary: VOCABULARY,
        model: MODEL,
        href: (name: string) => `#/ask/${name}`,
        lang: 'zh',
      },
    });
    flushSync();
    expect([...target().querySelectorAll('h2')].map((each) => each.textContent)).toEqual([
      'The whole text（中文）',
      'Layers（中文）',
      'Changes（中文）',
    ]);
    const links = [...target().querySelectorAll('a')].map((each) => each.getAttribute('href'));
    expect(links).toEqual(['#/ask/overview', '#/ask/neighbours', '#/ask/lens', '#/ask/diff']);
    expect(find('.off').textContent).toContain('需要a mixture of experts（中文）');
  });
});

describe('the form of a question', () => {
  const show = (name: string, options: Record<string, unknown> = {}) => {
    const heard = vi.fn();
    const question = VOCABULARY.questions.find((each) => each.name === name)!;
    shown = mount(QuestionForm, {
      target: target(),
      props: { question, vocabulary: VOCABULARY, options, lang: 'en', onask: heard },
    });
    flushSync();
    return heard;
  };
  const fill = (name: string, value: string) => {
    const field = find<HTMLInputElement>(`[data-option=${name}] :is(input, select)`);
    field.value = value;
    field.dispatchEvent(new Event('input', { bubbles: true }));
    field.dispatchEvent(new Event('change', { bubbles: true }));
    flushSync();
  };
  const submit = async () => {
    find('form').dispatchEvent(new Event('submit', { bubbles: true, cancelable: true }));
    await tick();
    flushSync();
  };

  it('has a field for every option, those of the run too, each with what it means', () => {
    show('lens', { top: 3 });
    const names = [...target().querySelectorAll('[data-option]')].map((each) =>
      each.getAttribute('data-option'),
    );
    expect(names).toEqual(['at', 'top', 'pinned', 'to', 'beam']);
    expect(find<HTMLInputElement>('[data-option=top] input').value).toBe('3');
    for (const field of target().querySelectorAll('[data-option] input')) {
      const told = document.getElementById(field.getAttribute('aria-describedby')!.split(' ')[0]!);
      expect(told?.textContent).toContain('what');
      expect(target().querySelector(`label[for="${field.id}"]`)).not.toBeNull();
    }
  });

  it('sends only what differs from what is usual', async () => {
    const heard = show('lens');
    await submit();
    expect(heard).toHaveBeenLastCalledWith({});
    fill('at', '-1');
    fill('beam', '8');
    await submit();
    expect(heard).toHaveBeenLastCalledWith({ at: -1, beam: 8 });
  });

  it('says at a field what is wrong, goes there, and sends nothing', async () => {
    const heard = show('lens');
    fill('top', '0');
    await submit();
    expect(heard).not.toHaveBeenCalled();
    expect(find('[data-option=top] .problem').textContent).toBe('0 is too small; expected at least 1.');
    expect(find('[data-option=top] input').getAttribute('aria-invalid')).toBe('true');
    expect(document.activeElement).toBe(find('[data-option=top] input'));
    fill('top', '2');
    await submit();
    expect(heard).toHaveBeenLastCalledWith({ top: 2 });
    expect(find('[data-option=top] .problem')).toBeNull();
  });

  it('opens the fold that hides a wrong field', async () => {
    show('lens');
    fill('beam', '99');
    await submit();
    expect(find<HTMLDetailsElement>('details').open).toBe(true);
    expect(document.activeElement).toBe(find('[data-option=beam] input'));
  });

  it('lists tokens one by one', async () => {
    const heard = show('lens');
    find('[data-option=pinned] .add').click();
    await tick();
    flushSync();
    fill('pinned', '#12');
    await submit();
    expect(heard).toHaveBeenLastCalledWith({ pinned: [12] });
    find('[data-option=pinned] .remove').click();
    flushSync();
    await submit();
    expect(heard).toHaveBeenLastCalledWith({});
  });

  it('edits changes: adds, chooses a kind, orders, removes', async () => {
    const heard = show('diff');
    await submit();
    expect(heard).not.toHaveBeenCalled();
    for (let n = 0; n < 2; n++) {
      find('.changes > .add').click();
      await tick();
      flushSync();
    }
    const kind = target().querySelectorAll<HTMLSelectElement>('.changes select')[1]!;
    kind.value = 'token';
    kind.dispatchEvent(new Event('change', { bubbles: true }));
    flushSync();
    await submit();
    const head = { op: 'head', side: 'cross', layer: 3, head: 1 };
    const token = { op: 'token', at: 0, ban: ['▁He'] };
    expect(heard).toHaveBeenLastCalledWith({ changes: [head, token] });
    find('[aria-label="Move change 2 up"]').click();
    flushSync();
    await submit();
    expect(heard).toHaveBeenLastCalledWith({ changes: [token, head] });
    find('[aria-label="Remove change 1"]').click();
    await tick();
    flushSync();
    await submit();
    expect(heard).toHaveBeenLastCalledWith({ changes: [head] });
  });

  it('does not send what is still being composed', () => {
    show('lens');
    const event = new KeyboardEvent('keydown', {
      key: 'Enter',
      isComposing: true,
      bubbles: true,
      cancelable: true,
    });
    find('[data-option=at] input').dispatchEvent(event);
    expect(event.defaultPrevented).toBe(true);
  });
});

describe('a question and its answer', () => {
  type Call = {
    question: string;
    text: string | undefined;
    options: Record<string, unknown>;
    progress: (progress: Progress) => void;
    signal: AbortSignal;
    answer: (answer: Answer) => Promise<void>;
    fail: (error: unknown) => Promise<void>;
  };
  const settled = async () => {
    for (let n = 0; n < 5; n++) await Promise.resolve();
    flushSync();
  };
  const show = (more: Record<string, unknown> = {}) => {
    const calls: Call[] = [];
    const ask = (
      question: string,
      text: string | undefined,
      options: Record<string, unknown>,
      progress: (progress: Progress) => void,
      signal: AbortSignal,
    ) =>
      new Promise<Answer>((yes, no) => {
        signal.addEventListener('abort', () => no(signal.reason));
        const answer = (found: Answer) => (yes(found), settled());
        const fail = (error: unknown) => (no(error), settled());
        calls.push({ question, text, options, progress, signal, answer, fail });
      });
    const props = $state({
      model: MODEL,
      vocabulary: VOCABULARY,
      question: 'lens',
      text: '她的',
      options: {} as Record<string, unknown>,
      ask,
      lang: 'en' as 'en' | 'zh',
      ...more,
    });
    shown = mount(AskView, { target: target(), props });
    flushSync();
    return { calls, props };
  };

  it('is asked at once, and shows nothing for a moment, then how far it is', async () => {
    vi.useFakeTimers();
    const { calls } = show({ options: { top: 3 } });
    expect(calls).toMatchObject([{ question: 'lens', text: '她的', options: { top: 3 } }]);
    vi.advanceTimersByTime(100);
    flushSync();
    expect(find('progress')).toBeNull();
    vi.advanceTimersByTime(100);
    calls[0]!.progress({ what: { en: 'layers', zh: '层' }, done: 2, total: 4 });
    flushSync();
    expect(find<HTMLProgressElement>('progress').value).toBe(2);
    expect(text()).toContain('layers');
    expect(text()).toContain('2 / 4');
    vi.advanceTimersByTime(2000);
    flushSync();
    expect(text()).toContain('2 s');
    await calls[0]!.answer(answer('lens'));
    expect(find('progress')).toBeNull();
    expect(text()).toContain('answer to lens');
    expect(text()).toContain('a note');
    expect(text()).toContain('12 ms');
  });

  it('can be cancelled, and asked again', async () => {
    vi.useFakeTimers();
    const { calls } = show();
    vi.advanceTimersByTime(200);
    flushSync();
    [...target().querySelectorAll('button')].find((each) => each.textContent === 'Cancel')!.click();
    await settled();
    expect(calls[0]!.signal.aborted).toBe(true);
    expect(text()).toContain('Cancelled.');
    [...target().querySelectorAll('button')].find((each) => each.textContent === 'Try again')!.click();
    await settled();
    expect(calls).toHaveLength(2);
  });

  it('keeps the answer before, dimmed, until the new one is there', async () => {
    vi.useFakeTimers();
    const { calls, props } = show();
    await calls[0]!.answer(answer('lens', 'the first'));
    props.text = '妹妹';
    flushSync();
    expect(calls).toHaveLength(2);
    expect(find('.answer').className).not.toContain('previous');
    vi.advanceTimersByTime(200);
    flushSync();
    expect(find('.answer').className).toContain('previous');
    expect(text()).toContain('the first');
    await calls[1]!.answer(answer('lens', 'the second'));
    expect(find('.answer').className).not.toContain('previous');
    expect(text()).toContain('the second');
  });

  it('drops what comes of an earlier question', async () => {
    const { calls, props } = show();
    props.question = 'overview';
    flushSync();
    expect(calls.map((call) => [call.question, call.signal.aborted])).toEqual([
      ['lens', true],
      ['overview', false],
    ]);
    await calls[0]!.answer(answer('lens'));
    expect(find('.answer')).toBeNull();
    await calls[1]!.answer(answer('overview'));
    expect(text()).toContain('answer to overview');
  });

  it('says in the reader’s language why there is none, and what to do', async () => {
    const { calls, props } = show();
    await calls[0]!.fail(new Failure('too_long', { en: 'too long; cut it', zh: '太长；请截短' }));
    expect(find('[role=alert]').textContent).toContain('too long; cut it');
    props.lang = 'zh';
    flushSync();
    expect(find('[role=alert]').textContent).toContain('太长；请截短');
    expect(calls).toHaveLength(1);
    props.text = '妹妹';
    flushSync();
    await calls[1]!.fail(new Failure('offline', null, 'TypeError'));
    expect(find('[role=alert]').textContent).toContain('cutaway serve');
    expect(find('[role=alert] pre').textContent).toBe('TypeError');
  });

  it('names what is missing in place of asking', () => {
    const { calls, props } = show({ text: ' ' });
    expect(text()).toContain('write one in the field above');
    props.question = 'neighbours';
    flushSync();
    expect(text()).toContain('marked as required');
    expect(find<HTMLDetailsElement>('.options').open).toBe(true);
    props.question = 'experts';
    flushSync();
    expect(text()).toContain('needs a mixture of experts');
    props.question = 'nothing';
    flushSync();
    expect(text()).toContain('There is no question “nothing”');
    expect(calls).toHaveLength(0);
  });

  it('waits for the model', () => {
    const { calls, props } = show({ model: { ...MODEL, state: 'loading' } });
    expect(calls).toHaveLength(0);
    expect(text()).toContain('still being opened');
    props.model = MODEL;
    flushSync();
    expect(calls).toHaveLength(1);
  });

  it('asks once for options that are chosen, whether or not the address tells of them', async () => {
    for (const told of [true, false]) {
      const { calls, props } = show({ question: 'neighbours', options: { token: 'a' }, text: '' });
      const heard = vi.fn((changes: { options: Record<string, unknown> }) => {
        if (told) props.options = changes.options;
      });
      Object.assign(props, { onasked: heard });
      flushSync();
      const field = find<HTMLInputElement>('[data-option=token] input');
      field.value = 'b';
      field.dispatchEvent(new Event('input', { bubbles: true }));
      find('form').dispatchEvent(new Event('submit', { bubbles: true, cancelable: true }));
      await settled();
      expect(heard).toHaveBeenCalledExactlyOnceWith({ options: { token: 'b' } });
      expect(calls.map((call) => [call.text, call.options])).toEqual([
        [undefined, { token: 'a' }],
        [undefined, { token: 'b' }],
      ]);
      await unmount(shown!);
      shown = null;
    }
  });

  it('links what to look at next', async () => {
    const href = (question: string, options: Record<string, unknown>) =>
      `#/ask/${question}?${JSON.stringify(options)}`;
    const { calls } = show({ href });
    await calls[0]!.answer(answer('lens'));
    expect(find('.answer a').getAttribute('href')).toBe('#/ask/lens?{"top":3}');
  });
});
