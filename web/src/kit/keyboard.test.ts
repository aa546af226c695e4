import { expect, it } from 'vitest';
import { isTyped, shortcuts } from './keyboard';

function press(
  key: string,
  init: KeyboardEventInit = {},
  target: HTMLElement = document.body,
): KeyboardEvent {
  const event = new KeyboardEvent('keydown', { key, cancelable: true, bubbles: true, ...init });
  target.dispatchEvent(event);
  return event;
}

it('a shortcut is a key without modifier that nobody types', () => {
  const done: string[] = [];
  let letters = true;
  const heard = shortcuts(
    {
      h: () => done.push('h'),
      '?': () => done.push('?'),
      'g f': () => done.push('g f'),
      f: () => done.push('f'),
    },
    () => letters,
  );
  addEventListener('keydown', heard);
  const field = document.body.appendChild(document.createElement('textarea'));
  press('h');
  press('h', { ctrlKey: true });
  press('h', { isComposing: true });
  press('h', { keyCode: 229 });
  press('h', {}, field);
  press('g');
  press('f');
  press('f');
  letters = false;
  press('h');
  press('?');
  removeEventListener('keydown', heard);
  expect(done).toEqual(['h', 'g f', 'f', '?']);
});

it('keys of a grid are its own', () => {
  const grid = document.body.appendChild(document.createElement('div'));
  grid.setAttribute('role', 'grid');
  const cell = grid.appendChild(document.createElement('button'));
  let typed = false;
  cell.addEventListener('keydown', (event) => (typed = isTyped(event)));
  press('h', {}, cell);
  expect(typed).toBe(true);
});
