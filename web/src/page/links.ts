import { getContext, setContext } from 'svelte';

/** The place in the page where a command is asked; null where there is none. */
export type LinkOf = (command: string) => string | null;

const KEY = Symbol('links');

export function provideLinks(linkOf: LinkOf): void {
  setContext(KEY, linkOf);
}

export function useLinks(): LinkOf {
  return getContext<LinkOf | undefined>(KEY) ?? (() => null);
}
