export type Locale = 'en' | 'zh';

export function isLocale(name: unknown): name is Locale {
  return name === 'en' || name === 'zh';
}

/** The first of the languages that a reader understands which the page speaks; English where it speaks none. */
export function preferred(languages: readonly string[]): Locale {
  for (const language of languages) {
    const name = language.toLowerCase().split('-')[0];
    if (isLocale(name)) return name;
  }
  return 'en';
}
