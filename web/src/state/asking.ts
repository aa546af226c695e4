import { ask, Failure, type Asked, type Listening } from '../data/client';
import type { Answer } from '../data/wire';
import { server } from './server.svelte';

const PAUSE = 1000;

/**
 * `ask`, but a server that could not be reached is waited for and asked again. Where the connection broke off while it
 * computed, nobody asks again unasked: what stopped it once may stop it again.
 */
export async function askPatiently<Result = unknown>(
  question: string,
  asked: Asked,
  listening: Listening = {},
): Promise<Answer<Result>> {
  for (let tries = 1; ; tries++) {
    try {
      return await ask<Result>(question, asked, listening);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      if (error.kind === 'offline' || error.kind === 'lost') server.lost();
      if (error.kind !== 'offline') throw error;
      await server.back(listening.signal);
      // That it tells its models does not mean that it can be asked.
      await new Promise((resolve) => setTimeout(resolve, PAUSE * (tries - 1)));
    }
  }
}
