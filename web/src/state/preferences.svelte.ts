import { isLocale, preferred, type Locale } from '../i18n/locale';
import { speak } from '../i18n/words.svelte';
import type { Theme } from './place';
import { selection } from './selection.svelte';

const dark = matchMedia('(prefers-color-scheme: dark)');

/** Language, colours and keys as the reader wants them: what a link says, then what was chosen before, then what the
 * browser says. */
class Preferences {
  #locale = $state.raw<Locale | null>(isLocale(stored('lang')) ? (stored('lang') as Locale) : null);
  #theme = $state.raw<string | null>(stored('theme'));
  #system = $state.raw<Theme>(dark.matches ? 'dark' : 'light');
  #letters = $state.raw(stored('letters') !== 'off');

  locale = $derived(selection.place.lang ?? this.#locale ?? preferred(navigator.languages));
  theme = $derived(
    selection.place.theme ?? (this.#theme === 'dark' || this.#theme === 'light' ? this.#theme : this.#system),
  );

  constructor() {
    dark.addEventListener('change', (event) => (this.#system = event.matches ? 'dark' : 'light'));
  }

  get letters(): boolean {
    return this.#letters;
  }

  set letters(on: boolean) {
    this.#letters = on;
    store('letters', on ? 'on' : 'off');
  }

  chooseLocale(locale: Locale): void {
    this.#locale = locale;
    store('lang', locale);
    if (selection.place.lang) selection.go({ lang: null }, { replace: true });
  }

  chooseTheme(theme: Theme): void {
    this.#theme = theme;
    store('theme', theme);
    if (selection.place.theme) selection.go({ theme: null }, { replace: true });
  }

  /** Write them where style sheets, browsers and screen readers look. */
  apply(): void {
    speak(this.locale);
    document.documentElement.lang = this.locale === 'zh' ? 'zh-Hans' : 'en';
    document.documentElement.dataset.theme = this.theme;
  }
}

export const preferences = new Preferences();

/** A browser may keep nothing for a page. */
function stored(name: string): string | null {
  try {
    return localStorage.getItem(`cutaway.${name}`);
  } catch {
    return null;
  }
}

function store(name: string, value: string): void {
  try {
    localStorage.setItem(`cutaway.${name}`, value);
  } catch {
    // It then holds until the page is closed.
  }
}
