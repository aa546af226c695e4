import type { Failure } from '../data/client';
import { t } from './answer';
import type { Locale } from './locale';
import { said } from './said';

/** Why there is no answer: in the server's own words where it said any. */
export function whyFailed({ kind, text }: Failure, lang: Locale): string {
  if (text !== null) return said(text, lang);
  return t(lang, kind === 'offline' || kind === 'lost' ? kind : 'broken');
}
