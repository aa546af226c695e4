const INVISIBLE =
  /(?<![\p{So}\p{Sk}\p{Mn}\p{Nd}\p{Po}])[\u200d\ufe0e\ufe0f]|(?![\u200d\ufe0e\ufe0f \n\u00a0\u2000-\u200a\u202f\u3000])[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Zs}\ufffd]/gu;

/**
 * The text with control characters and other invisible ones spelled out (`⟨U+202E⟩`), spaces and line ends left as
 * they are: names and pieces come from other people's files.
 */
export function legible(text: string): string {
  return text.replace(INVISIBLE, (found) => {
    if (found === '\t') return '⇥';
    if (found === '\r') return '␍';
    return `⟨U+${found.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0')}⟩`;
  });
}
