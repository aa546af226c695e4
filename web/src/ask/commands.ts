import type { Option, Vocabulary } from '../data/wire';
import { optionsOf, readDraft } from './form';

/** What a command line asks: a question with its options, and the text it is about. */
export type Command = {
  question: string;
  text: string | null;
  model: string | null;
  options: Record<string, unknown>;
};

/** The command `cutaway inspect …` as what it asks; null for any other line, and for one that is not understood. */
export function readCommand(line: string, vocabulary: Vocabulary): Command | null {
  const words = shellWords(line);
  if (words?.[0] !== 'cutaway' || words[1] !== 'inspect') return null;
  const named = vocabulary.questions.find((each) => each.name === words[2]);
  const question = named ?? vocabulary.questions.find((each) => each.name === 'overview');
  if (!question) return null;
  const { own, ofRun } = optionsOf(question, vocabulary);
  const all = [...own, ...ofRun];
  const found: Command = { question: question.name, text: null, model: null, options: {} };
  const positional: string[] = [];
  let flags = true;
  for (let n = named ? 3 : 2; n < words.length; n++) {
    const word = words[n]!;
    if (flags && word === '--') flags = false;
    else if (!flags || !word.startsWith('-')) positional.push(word);
    else if (word === '-m' || word === '--model') found.model = words[++n] ?? null;
    else {
      const { option, value } = flagged(word, all) ?? {};
      if (!option || !addTo(found.options, option, value ?? words[++n])) return null;
    }
  }
  if (question.subject === 'text') found.text = positional.shift() ?? null;
  for (const option of own.filter((each) => each.positional)) {
    const several = option.kind === 'tokens' || option.kind === 'list';
    for (const value of several ? positional.splice(0) : positional.splice(0, 1))
      if (!addTo(found.options, option, value)) return null;
  }
  return positional.length ? null : found;
}

/** The option that a flag names, and the value of a flag that takes none. */
function flagged(flag: string, all: readonly Option[]): { option: Option; value?: string } | null {
  const name = flag.replace(/^--/, '').replace(/-/g, '_');
  const option = all.find(
    (each) => each.name === name || (each.kind === 'changes' && each.name === `${name}s`),
  );
  if (option) return option.kind === 'boolean' ? { option, value: 'true' } : { option };
  const off = all.find((each) => each.kind === 'boolean' && `no_${each.name}` === name);
  return off ? { option: off, value: 'false' } : null;
}

function addTo(options: Record<string, unknown>, option: Option, text: string | undefined): boolean {
  if (text === undefined) return false;
  if (option.kind === 'changes') {
    try {
      const read: unknown = JSON.parse(text);
      options[option.name] = [...((options[option.name] as unknown[] | undefined) ?? []), ...[read].flat()];
      return true;
    } catch {
      return false;
    }
  }
  const { value, problem } = readDraft(option, option.kind === 'tokens' ? text.split(',') : text, []);
  if (problem || value === undefined) return false;
  const before = options[option.name];
  options[option.name] = Array.isArray(before) && Array.isArray(value) ? [...before, ...value] : value;
  return true;
}

/** The words of a line of the shell, quotes and joined lines read; null where a quote is left open. */
export function shellWords(line: string): string[] | null {
  const words: string[] = [];
  const parts = /\\\n|\s+|'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)|([^\s'"\\]+)|(.)/gsuy;
  let word: string | null = null;
  for (const [whole, single, double, escaped, plain, stray] of line.matchAll(parts)) {
    if (stray !== undefined) return null;
    const text = single ?? double?.replace(/\\(["\\$`])/g, '$1') ?? escaped ?? plain;
    if (text !== undefined) word = (word ?? '') + text;
    else if (whole !== '\\\n' && word !== null) {
      words.push(word);
      word = null;
    }
  }
  return word === null ? words : [...words, word];
}
