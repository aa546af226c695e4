import { t } from '../i18n/words.svelte';

/** The name of a stack, or of the attention between both. */
export function sideOf(side: string): string {
  return side === 'encoder' || side === 'decoder' || side === 'cross' ? t(`lab.side.${side}`) : side;
}
