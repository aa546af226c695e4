import type {
  Answer,
  ErrorKind,
  ModelInfo,
  Models,
  Progress,
  ServerError,
  Text,
  Token,
  Vocabulary,
} from './wire';

/**
 * Why there is no answer. Beside the server's kinds: it could not be reached, the connection broke off, or what it sent
 * is no answer.
 */
export class Failure extends Error {
  constructor(
    readonly kind: ErrorKind | 'offline' | 'lost' | 'broken',
    readonly text: Text | null,
    readonly details = '',
  ) {
    super(typeof text === 'string' ? text : (text?.en ?? kind));
    this.name = 'Failure';
  }
}

export type Asked = {
  model: string;
  text?: string | undefined;
  options: Record<string, unknown>;
  want?: ('page' | 'result')[];
  /** Whoever asks, where several of one page do: a newer request takes only the place of their own older one. */
  asker?: string;
};
export type Format = 'svg' | 'html' | 'json' | 'safetensors' | 'npz' | 'csv';
export type Listening = { signal?: AbortSignal | undefined; progress?: (progress: Progress) => void };

/** Names this page among others of the same reader, so that its newer requests take the place of its older ones. */
const TAB = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) =>
  byte.toString(16).padStart(2, '0'),
).join('');
let generation = 0;

/** What is known of a model before its config was read. */
const UNREAD: Omit<ModelInfo, 'id' | 'name' | 'state'> = {
  family: null,
  n_layers: 0,
  n_encoder_layers: 0,
  n_heads: 0,
  parameters: 0,
  languages: [],
  questions: [],
  examples: [],
  presets: [],
};

export async function fetchModels(signal?: AbortSignal): Promise<Models> {
  const sent = await json<Models>('models', undefined, signal);
  if (!Array.isArray(sent.models)) throw new Failure('broken', null, 'models');
  return { ...sent, models: sent.models.map((model) => ({ ...UNREAD, ...model })) };
}

export async function fetchVocabulary(signal?: AbortSignal): Promise<Vocabulary> {
  return json<Vocabulary>('vocabulary', undefined, signal);
}

/**
 * The answer to a question. Failure where there is none, for whatever reason; AbortError once `signal` says that
 * nobody waits, which also ends the server's work.
 */
export async function ask<Result = unknown>(
  question: string,
  { asker, ...asked }: Asked,
  { signal, progress }: Listening = {},
): Promise<Answer<Result>> {
  // Requests may arrive in another order than they were sent.
  const body = { ...asked, tab: asker === undefined ? TAB : `${TAB}.${asker}`, generation: ++generation };
  const response = await send(`answers/${encodeURIComponent(question)}`, body, signal);
  let answer: Answer<Result> | null = null;
  // Read to its end, so that the connection serves the next question too.
  for await (const line of lines(response, signal)) {
    const said = parsed(line);
    if ('progress' in said) progress?.(said.progress as Progress);
    else if ('answer' in said && typeof said.answer === 'object') answer = said.answer as Answer<Result>;
    else if ('error' in said) throw refused(said.error);
    else throw new Failure('broken', null, line.slice(0, 400));
  }
  if (!answer) throw new Failure('broken', null, 'the stream ended without an answer');
  return answer;
}

/** The tokens that a model reads of a text. */
export async function fetchTokens(model: string, text: string, signal?: AbortSignal): Promise<Token[]> {
  const { tokens } = await json<{ tokens?: Token[] }>('tokenize', { model, text }, signal);
  if (!Array.isArray(tokens)) throw new Failure('broken', null, 'tokenize');
  return tokens;
}

/** One file of an answer, and its name. */
export async function fetchFile(
  asked: Asked & { question: string; format: Format; locale: 'en' | 'zh' },
  signal?: AbortSignal,
): Promise<{ name: string; blob: Blob }> {
  const response = await send('export', asked, signal);
  const named = /filename\*=UTF-8''([^;]+)/.exec(response.headers.get('content-disposition') ?? '');
  const name = named ? decodeURIComponent(named[1]!) : `cutaway.${asked.format}`;
  try {
    return { name, blob: await response.blob() };
  } catch (error) {
    throw unreachable(error, signal, 'lost');
  }
}

async function json<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  const response = await send(path, body, signal);
  let text: string;
  try {
    text = await response.text();
  } catch (error) {
    throw unreachable(error, signal);
  }
  return parsed(text) as T;
}

/** The response to a request that the server took up; Failure where it did not. */
async function send(path: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(new URL(`api/v1/${path}`, document.baseURI), {
      cache: 'no-store',
      ...(body === undefined
        ? {}
        : {
            method: 'POST',
            headers: { 'content-type': 'application/json' },
            // A lone half of a character has no UTF-8.
            body: JSON.stringify(body, (_, value) =>
              typeof value === 'string' ? value.toWellFormed() : value,
            ),
          }),
      ...(signal ? { signal } : {}),
    });
  } catch (error) {
    throw unreachable(error, signal);
  }
  if (response.ok) return response;
  let text = '';
  try {
    text = await response.text();
    throw refused((JSON.parse(text) as { error?: unknown }).error);
  } catch (error) {
    signal?.throwIfAborted();
    // A proxy answers for a server that is gone.
    const kind = [502, 503, 504].includes(response.status) ? 'offline' : 'broken';
    throw error instanceof Failure && error.kind !== 'broken'
      ? error
      : new Failure(kind, null, `${response.status} ${text.slice(0, 400)}`);
  }
}

/** The lines of a stream as they arrive; Failure where it breaks off. */
async function* lines(response: Response, signal?: AbortSignal): AsyncGenerator<string> {
  const reader = response.body?.getReader();
  if (!reader) throw new Failure('broken', null, 'no body');
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (;;) {
      let part: ReadableStreamReadResult<Uint8Array>;
      try {
        part = await reader.read();
      } catch (error) {
        throw unreachable(error, signal, 'lost');
      }
      rest += part.done ? decoder.decode() : decoder.decode(part.value, { stream: true });
      const whole = rest.split('\n');
      rest = part.done ? '' : (whole.pop() ?? '');
      for (const line of whole) if (line.trim()) yield line;
      if (part.done) return;
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

function parsed(line: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(line);
    if (typeof value === 'object' && value !== null) return value as Record<string, unknown>;
  } catch {
    // Told below, as what is no object.
  }
  throw new Failure('broken', null, line.slice(0, 400));
}

function refused(error: unknown): Failure {
  const said = error as Partial<ServerError> | null | undefined;
  if (typeof said?.kind !== 'string' || typeof said.message?.en !== 'string')
    return new Failure('broken', null, JSON.stringify(error ?? null).slice(0, 400));
  return new Failure(said.kind, said.message);
}

/** AbortError as it is where the request was given up, else that the server could not be reached, or no longer. */
function unreachable(error: unknown, signal?: AbortSignal, kind: 'offline' | 'lost' = 'offline'): unknown {
  if (signal?.aborted) return signal.reason;
  return new Failure(kind, null, String(error));
}
