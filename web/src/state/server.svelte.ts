import { Failure, fetchModels, fetchVocabulary } from '../data/client';
import type { ModelInfo, Text, Vocabulary } from '../data/wire';

const PAUSES = [1, 2, 4, 8, 15, 30];
const POLL = 400;

/** What the server has, kept up to date while models open, and whether it tells that at all. */
class Server {
  models = $state.raw<ModelInfo[] | null>(null);
  vocabulary = $state.raw<Vocabulary | null>(null);
  /**
   * Null while it tells what it has; else when it is asked again, in milliseconds of `Date.now`, and what it said where
   * it refused.
   */
  gone = $state.raw<{ next: number; refusal: Text | null } | null>(null);
  version = $state('');

  #tries = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #asking = false;
  #waiting: (() => void)[] = [];

  start(): void {
    void this.#look();
  }

  /** Somebody found that it does not answer. */
  lost(): void {
    if (!this.gone) void this.#look();
  }

  retry(): void {
    void this.#look();
  }

  /** Resolves once it answers again; rejects as `signal` does. */
  back(signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push(resolve);
      signal?.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
    });
  }

  find(id: string | null): ModelInfo | undefined {
    return id === null ? this.models?.[0] : this.models?.find((model) => model.id === id);
  }

  /** Of the options of a place those that say how the text is run, and those that are a question's own. */
  divided(options: Record<string, unknown>): { run: Record<string, unknown>; own: Record<string, unknown> } {
    const names = new Set(this.vocabulary?.run_options.map((option) => option.name));
    const part = (of: boolean) =>
      Object.fromEntries(Object.entries(options).filter(([name]) => names.has(name) === of));
    return { run: part(true), own: part(false) };
  }

  async #look(): Promise<void> {
    if (this.#asking) return;
    clearTimeout(this.#timer);
    this.#asking = true;
    try {
      const { models, version } = await fetchModels();
      this.models = models;
      this.version = version;
      this.vocabulary ??= await fetchVocabulary();
      this.#tries = 0;
      this.gone = null;
      for (const resolve of this.#waiting.splice(0)) resolve();
      if (models.some((model) => model.state === 'loading')) this.#again(POLL);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      const pause = PAUSES[Math.min(this.#tries++, PAUSES.length - 1)]! * 1000;
      this.gone = { next: Date.now() + pause, refusal: error.text };
      this.#again(pause);
    } finally {
      this.#asking = false;
    }
  }

  #again(pause: number): void {
    this.#timer = setTimeout(() => void this.#look(), pause);
  }
}

export const server = new Server();
