import type { Explanation } from '../data/wire';
import { numberText, type Numbered } from '../state/place';
import { selection } from '../state/selection.svelte';
import { Latest } from '../state/latest.svelte';

export const explained = new Latest<Explanation>('explain');

/** The way from the number that was opened first to the one that is looked into. */
class Trail {
  steps = $state.raw<Numbered[]>([]);

  /** Stand at a number: further on, or where one has been. */
  reach(number: Numbered): void {
    const known = this.steps.findIndex((each) => numberText(each) === numberText(number));
    this.steps = known < 0 ? [...this.steps, number] : this.steps.slice(0, known + 1);
  }

  /** Begin again: at a number, or nowhere. */
  begin(steps: Numbered[]): void {
    this.steps = steps;
  }
}

export const trail = new Trail();

/** Look into a number of what is shown, from there on. */
export function open(number: Numbered): void {
  trail.begin([number]);
  selection.go({ number });
}

export function close(): void {
  selection.go({ number: null });
}
