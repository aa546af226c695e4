import { locale, t } from '../i18n/words.svelte';
import type { ModelInfo } from '../data/wire';

/** How many parameters a model has, as each language counts: by millions, or by ten thousands. */
function size(parameters: number): string {
  if (parameters < 10_000) return t('model.size.K', { n: parameters });
  const zh = locale() === 'zh';
  if (parameters >= (zh ? 1e8 : 1e9)) return t('model.size.B', { n: round(parameters / (zh ? 1e8 : 1e9)) });
  return t('model.size.M', { n: round(parameters / (zh ? 1e4 : 1e6)) });
}

/** What a model does, in a word or two. */
function deed(model: ModelInfo): string {
  if (model.family === null) return '';
  if (model.family === 'encoder-decoder' && model.languages.length > 1) return t('model.translator');
  if (model.family === 'encoder-only' && model.questions.includes('cover')) return t('model.filler');
  return t(`model.${model.family}`);
}

/** All that is told of a model beside its name. */
export function about(model: ModelInfo): string {
  return model.family === null
    ? ''
    : [deed(model), size(model.parameters), model.n_layers ? shape(model) : ''].filter(Boolean).join(' · ');
}

/** Its layers and heads. */
function shape(model: ModelInfo): string {
  const { n_layers: layers, n_heads: heads, n_encoder_layers: encoder } = model;
  return model.family === 'encoder-decoder'
    ? t('model.shape.two', { encoder, layers, heads })
    : t('model.shape', { layers, heads });
}

function round(n: number): number {
  return Number(n.toPrecision(2));
}
