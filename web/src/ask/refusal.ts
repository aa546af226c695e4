import type { ModelInfo, Question } from '../data/wire';
import { t } from '../i18n/answer';
import type { Locale } from '../i18n/locale';
import { said } from '../i18n/said';

/** Why a model cannot be asked a question; empty where it can, and where that is not known yet. */
export function refusal(question: Question, model: ModelInfo, lang: Locale): string {
  if (!model.questions.length || model.questions.includes(question.name)) return '';
  const needs = question.needs.map((need) => said(need, lang)).join(lang === 'zh' ? '；' : '; ');
  return needs ? t(lang, 'needs', { what: needs }) : t(lang, 'notThisModel');
}
