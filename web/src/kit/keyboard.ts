/** Whether a key belongs to a text that is being typed, also by an input method that has not finished a word. */
export function isTyped(event: KeyboardEvent): boolean {
  const target = event.target;
  return (
    isComposing(event) ||
    (target instanceof HTMLElement &&
      (target.isContentEditable || target.matches('input, textarea, select, [role="grid"] *')))
  );
}

/** Whether an input method has the key: the last one it takes comes as keyCode 229 after `compositionend`. */
export function isComposing(event: KeyboardEvent): boolean {
  return event.isComposing || event.keyCode === 229;
}

type Deeds = Record<string, () => void>;

/**
 * Shortcuts of single letters, and of two (`g f`). A key with a modifier, one that is typed, or one that somebody else
 * used already is none; while a menu or a dialog is open, every key is its own.
 */
export function shortcuts(deeds: Deeds, wanted: () => boolean): (event: KeyboardEvent) => void {
  let before = '';
  let since = 0;
  return (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyped(event)) return;
    if (document.querySelector(':popover-open, dialog[open]')) return;
    if (/^\p{L}$/u.test(event.key) && !wanted()) return;
    const pair = Date.now() - since < 1000 ? `${before} ${event.key}` : event.key;
    const deed = deeds[pair] ?? deeds[event.key];
    before = event.key;
    since = Date.now();
    if (!deed) return;
    event.preventDefault();
    before = '';
    deed();
  };
}
