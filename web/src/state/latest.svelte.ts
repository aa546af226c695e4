import { Failure } from '../data/client';
import type { Answer, Progress } from '../data/wire';
import { askPatiently } from './asking';

export type Wanted = { model: string; text?: string | undefined; options: Record<string, unknown> };
const KEPT = 64;
let askers = 0;

/**
 * One question, asked of what is wanted last. The answer before stays until the new one is there; of two that are asked
 * for, the earlier one is given up, and what still comes of it is dropped.
 */
export class Latest<Result> {
  answer = $state.raw<Answer<Result> | null>(null);
  /** What the answer answers. */
  asked = $state.raw<Wanted | null>(null);
  /** Since when something is being computed, and how far it is. */
  pending = $state.raw<{ since: number } | null>(null);
  progress = $state.raw<Progress | null>(null);
  failure = $state.raw<Failure | null>(null);
  cancelled = $state(false);

  #wanted = '';
  #abort: AbortController | null = null;
  #answers = new Map<string, Answer<Result>>();
  #asker = `${askers++}`;

  constructor(
    readonly question: string,
    /** What is wanted of the answer. */
    readonly want: ('page' | 'result')[] = ['result'],
  ) {}

  /** Have the answer to this, unless it is there, on its way, or was refused before. */
  async ask(wanted: Wanted): Promise<void> {
    const key = JSON.stringify([wanted.model, wanted.text, wanted.options]);
    if (key === this.#wanted) return;
    this.#end();
    this.#wanted = key;
    this.failure = null;
    this.cancelled = false;
    const known = this.#answers.get(key);
    if (known) {
      this.#show(wanted, known);
      return;
    }
    const abort = new AbortController();
    this.#abort = abort;
    this.pending = { since: Date.now() };
    try {
      const answer = await askPatiently<Result>(
        this.question,
        { ...wanted, want: this.want, asker: this.#asker },
        { signal: abort.signal, progress: (progress) => abort === this.#abort && (this.progress = progress) },
      );
      if (abort !== this.#abort) return;
      if (this.want.some((part) => !answer[part])) throw new Failure('broken', null, 'no result');
      this.#keep(key, answer);
      this.#show(wanted, answer);
    } catch (error) {
      if (abort !== this.#abort) return;
      this.failure = error instanceof Failure ? error : new Failure('broken', null, String(error));
    }
    this.#end();
  }

  /** Give up what is being computed. */
  cancel(): void {
    this.cancelled = this.pending !== null;
    this.#end();
  }

  /** Ask again for what failed or was cancelled. */
  forget(): void {
    this.#wanted = '';
    this.failure = null;
    this.cancelled = false;
  }

  #show(wanted: Wanted, answer: Answer<Result>): void {
    this.asked = wanted;
    this.answer = answer;
  }

  #end(): void {
    this.#abort?.abort();
    this.#abort = null;
    this.pending = null;
    this.progress = null;
  }

  #keep(key: string, answer: Answer<Result>): void {
    this.#answers.set(key, answer);
    const oldest = this.#answers.keys().next().value;
    if (this.#answers.size > KEPT && oldest !== undefined) this.#answers.delete(oldest);
  }
}
