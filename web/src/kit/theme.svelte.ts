import { parseColour, readPalette, type Colour, type Palette } from './paint/palette';

// Counts how often light and dark have changed places, so that canvases are painted again.
let turns = $state(0);
let read: { turn: number; palette: Palette } | null = null;

if (typeof window !== 'undefined') {
  const turned = () => turns++;
  for (const asked of ['(prefers-color-scheme: dark)', 'print'])
    window.matchMedia(asked).addEventListener('change', turned);
  new MutationObserver(turned).observe(document.documentElement, {
    attributes: true,
    attributeFilter: ['data-theme'],
  });
}

/** The colours of the present theme, read once for each; an effect that asks runs again when it changes. */
export function palette(): Palette {
  if (read?.turn !== turns) read = { turn: turns, palette: readPalette(document.documentElement) };
  return read.palette;
}

/** Colours of the present theme by the names of their custom properties; what is not there is left out. */
export function colours(names: readonly string[]): Colour[] {
  const style = turns >= 0 ? getComputedStyle(document.documentElement) : null;
  return names.flatMap((name) => {
    const value = style?.getPropertyValue(name).trim();
    return value ? [parseColour(value)] : [];
  });
}
