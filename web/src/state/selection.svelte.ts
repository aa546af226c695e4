import { HOME, read, write, type Numbered, type Place, type View } from './place';

/** The one place that is looked at, in step with the address: every view reads it and changes it through `go`. */
class Selection {
  place = $state.raw<Place>(HOME);
  broken = $state.raw<string[]>([]);

  /** Follow the address from now on. */
  start(): void {
    const follow = (): void => {
      if (location.hash === write(this.place) && !this.broken.length) return;
      const { place, broken } = read(location.hash);
      this.place = place;
      this.broken = broken;
    };
    addEventListener('popstate', follow);
    addEventListener('hashchange', follow);
    follow();
  }

  /** Change the place. A step back leads to the one before, unless it is replaced. */
  go(changes: Partial<Place>, { replace = false } = {}): void {
    const place = this.#moved(changes);
    if (write(place) === write(this.place) && !this.broken.length) return;
    this.place = place;
    this.broken = [];
    history[replace ? 'replaceState' : 'pushState'](null, '', write(place));
  }

  /** The options of the place with these changes; what is undefined is left out. */
  options(changes: Record<string, unknown>): Record<string, unknown> {
    const all = Object.entries({ ...this.place.options, ...changes });
    return Object.fromEntries(all.filter(([, value]) => value !== undefined));
  }

  /** A link to the place with these changes. */
  link(changes: Partial<Place>): string {
    return write(this.#moved(changes));
  }

  /** A number belongs to the run that it was seen in. */
  #moved(changes: Partial<Place>): Place {
    const stays = !['view', 'model', 'text'].some((name) => name in changes);
    return { ...this.place, number: stays ? this.place.number : null, ...changes };
  }

  /** A link to another view of the same text; how it is run is known where no question had options of its own. */
  viewing(
    view: View,
    options: Record<string, unknown> = {},
    hide: number[] = [],
    number: Numbered | null = null,
  ): string {
    const run = this.place.view === 'first' ? this.place.options : {};
    return this.link({ view, question: null, options: { ...run, ...options }, hide, light: null, number });
  }

  /** A link to a question about what is looked at. */
  asking(question: string | null, options: Record<string, unknown> = {}): string {
    return this.link({ view: 'ask', question, options, hide: [], light: null });
  }
}

export const selection = new Selection();
