/** What was there, what is there, and what was taken back, the next to be done again first. */
export type Steps<T> = { past: T[]; now: T; future: T[] };

const KEPT = 100;

/** With a new state as the present one; the steps as they are where it is no other. */
export function stepped<T>(steps: Steps<T>, now: T): Steps<T> {
  if (JSON.stringify(now) === JSON.stringify(steps.now)) return steps;
  return { past: [...steps.past, steps.now].slice(-KEPT), now, future: [] };
}

export function undone<T>({ past, now, future }: Steps<T>): Steps<T> | null {
  const before = past.at(-1);
  return before === undefined ? null : { past: past.slice(0, -1), now: before, future: [now, ...future] };
}

export function redone<T>({ past, now, future }: Steps<T>): Steps<T> | null {
  const [next, ...others] = future;
  return next === undefined ? null : { past: [...past, now], now: next, future: others };
}
