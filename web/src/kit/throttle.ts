/** Calls `hear` with the newest of what it is given, at most once in so many milliseconds; `stop` drops what waits. */
export function throttled<T>(hear: (value: T) => void, pause: number) {
  let waiting: ReturnType<typeof setTimeout> | undefined;
  let newest: { value: T } | null = null;
  const pass = () => {
    waiting = undefined;
    if (!newest) return;
    const { value } = newest;
    newest = null;
    hear(value);
    waiting = setTimeout(pass, pause);
  };
  return {
    say(value: T): void {
      newest = { value };
      if (waiting === undefined) pass();
    },
    stop(): void {
      clearTimeout(waiting);
      waiting = undefined;
      newest = null;
    },
  };
}
