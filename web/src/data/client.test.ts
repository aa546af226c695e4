import { afterEach, describe, expect, it, vi } from 'vitest';
import { ask, Failure, fetchModels } from './client';

const ANSWER = { question: 'cover', model: 'm', text: 'a', options: {}, output: 'b', notes: [], ms: 1 };
const asked = { model: 'm', text: 'a', options: {} };

/** What a server would send, in parts as they may arrive; a part that is an error breaks the connection. */
function sends(parts: (string | Uint8Array | Error)[], status = 200): void {
  const encoder = new TextEncoder();
  const queue = [...parts];
  vi.stubGlobal('fetch', async (_: URL, { signal }: RequestInit) => {
    signal?.throwIfAborted();
    return new Response(
      new ReadableStream({
        pull(controller) {
          const part = queue.shift();
          if (part === undefined) controller.close();
          else if (part instanceof Error) controller.error(part);
          else controller.enqueue(typeof part === 'string' ? encoder.encode(part) : part);
        },
      }),
      { status },
    );
  });
}
const failure = async (): Promise<Failure> => {
  const error: unknown = await ask('cover', asked).catch((error: unknown) => error);
  if (!(error instanceof Failure)) throw error;
  return error;
};

afterEach(() => vi.unstubAllGlobals());

describe('a stream', () => {
  it('tells of progress and ends with the answer, however it is cut', async () => {
    const text = `${JSON.stringify({ progress: { what: '头', done: 1, total: 2 } })}\n\n${JSON.stringify({ answer: ANSWER })}\n`;
    const bytes = new TextEncoder().encode(text);
    for (const size of [1, 3, 7, bytes.length]) {
      const parts = [];
      for (let at = 0; at < bytes.length; at += size) parts.push(bytes.slice(at, at + size));
      sends(parts);
      const told: unknown[] = [];
      const answer = await ask('cover', asked, { progress: (each) => told.push(each.what) });
      expect(answer).toEqual(ANSWER);
      expect(told).toEqual(['头']);
    }
  });

  it('may end without a line end', async () => {
    sends([JSON.stringify({ answer: ANSWER })]);
    expect(await ask('cover', asked)).toEqual(ANSWER);
  });

  it.each([
    ['nothing', []],
    ['only progress', ['{"progress":{"what":"x","done":1,"total":2}}\n']],
    ['half an answer', ['{"answer":{"question":']],
    ['no JSON', ['<html>\n']],
    ['JSON that is no object', ['7\n']],
    ['an unknown line', ['{"other":1}\n']],
    ['an error of no kind', ['{"error":{}}\n']],
  ])('that has %s is broken', async (_, parts) => {
    sends(parts);
    expect((await failure()).kind).toBe('broken');
  });

  it('that breaks off is lost', async () => {
    sends(['{"progress":{"what":"x","done":1,"total":2}}\n', new TypeError('network error')]);
    expect((await failure()).kind).toBe('lost');
  });

  it('may end with an error in both languages', async () => {
    sends([`${JSON.stringify({ error: { kind: 'too_long', message: { en: 'long', zh: '长' } } })}\n`]);
    const error = await failure();
    expect([error.kind, error.text]).toEqual(['too_long', { en: 'long', zh: '长' }]);
  });
});

describe('a refusal', () => {
  it('is what the server says', async () => {
    sends([JSON.stringify({ error: { kind: 'bad_request', message: { en: 'no', zh: '不' } } })], 400);
    expect((await failure()).text).toEqual({ en: 'no', zh: '不' });
  });

  it.each([
    [500, 'broken'],
    [502, 'offline'],
  ])('without words, %d, is %s', async (status, kind) => {
    sends(['<h1>Error</h1>'], status);
    const error = await failure();
    expect([error.kind, error.text]).toEqual([kind, null]);
    expect(error.details).toContain(String(status));
  });
});

it('a server that is not there is offline', async () => {
  vi.stubGlobal('fetch', () => Promise.reject(new TypeError('Failed to fetch')));
  expect((await failure()).kind).toBe('offline');
});

it('an answer that nobody waits for is no failure', async () => {
  sends([`${JSON.stringify({ answer: ANSWER })}\n`]);
  const abort = new AbortController();
  abort.abort();
  await expect(ask('cover', asked, { signal: abort.signal })).rejects.toThrow('abort');
});

it('models that are no list are broken', async () => {
  sends(['{}']);
  await expect(fetchModels()).rejects.toMatchObject({ kind: 'broken' });
});
