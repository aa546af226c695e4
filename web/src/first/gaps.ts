import { fetchTokens } from '../data/client';
import type { Token } from '../data/wire';
import { selection } from '../state/selection.svelte';

/** Go to the text with a gap in the place of each covered token: what a model that fills gaps reads of it. */
export async function gapCovered(
  model: string,
  text: string,
  hide: number[],
  signal: AbortSignal,
): Promise<void> {
  try {
    const tokens = await fetchTokens(model, text, signal);
    selection.go({ text: gapped(text, tokens, hide), hide: [] }, { replace: true });
  } catch {
    if (!signal.aborted) selection.go({ hide: [] }, { replace: true });
  }
}

/** The text with a gap in the place of each of these tokens; their places count code points. */
export function gapped(text: string, tokens: Token[], hide: number[]): string {
  const points = Array.from(text);
  for (const place of hide.toSorted((a, b) => b - a)) {
    const { start, end } = tokens[place] ?? { start: null, end: null };
    if (start !== null && end !== null) points.splice(start, end - start, '[MASK]');
  }
  return points.join('');
}
