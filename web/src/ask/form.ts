import type { ChangeKind, Option, Question, Vocabulary } from '../data/wire';
import { t, type Word } from '../i18n/answer';
import type { Locale } from '../i18n/locale';

/** What stands in the field of an option: text, items of a list, or changes; a yes or no is 'true' or 'false'. */
export type Draft = string | string[] | ChangeDraft[];
export type Drafts = Record<string, Draft>;
/** One change as it is written: each field as text. `key` tells it from the others while they are moved. */
export type ChangeDraft = { key: number; op: string; fields: Record<string, string> };

/** What is wrong with a field, and what was expected: a word with its values. */
export type Problem = { word: Word; values?: Record<string, string | number>; expected?: Problem };

/** What is wrong with a field, as a sentence. */
export function problemText(lang: Locale, { word, values, expected }: Problem): string {
  return t(lang, word, { ...values, ...(expected ? { expected: problemText(lang, expected) } : {}) });
}

/** Options to send, without what is as usual; and what is wrong, by the name of the option. */
export type Read = { options: Record<string, unknown>; problems: Record<string, Problem> };

let made = 0;

/** The options of a question, those of its run after its own. */
export function optionsOf(question: Question, vocabulary: Vocabulary): { own: Option[]; ofRun: Option[] } {
  return { own: question.options, ofRun: question.subject === 'text' ? vocabulary.run_options : [] };
}

/** What the fields hold where these options were given; the others hold what is usual. */
export function drafts(
  all: readonly Option[],
  given: Readonly<Record<string, unknown>>,
  changes: readonly ChangeKind[],
): Drafts {
  return Object.fromEntries(
    all.map((option) => [
      option.name,
      draft(option, option.name in given ? given[option.name] : option.default, changes),
    ]),
  );
}

function draft(option: Option, value: unknown, changes: readonly ChangeKind[]): Draft {
  switch (option.kind) {
    case 'tokens': {
      const tokens = Array.isArray(value) ? value.map(writtenToken) : [];
      return tokens.length || !option.required ? tokens : [''];
    }
    case 'changes':
      return (Array.isArray(value) ? value : []).map((change) => changeDraft(change, changes));
    case 'token':
      return value === null || value === undefined ? '' : writtenToken(value);
    case 'list':
      return Array.isArray(value) ? value.join(',') : '';
    default:
      return value === null || value === undefined ? '' : String(value);
  }
}

/** A token's id as `#123`, anything else as it is. */
function writtenToken(token: unknown): string {
  return typeof token === 'number' ? `#${token}` : String(token);
}

function readToken(text: string): number | string {
  return /^#\d+$/.test(text) ? Number(text.slice(1)) : text;
}

/** A change of this kind, its example filled in. */
export function exampleOf(kind: ChangeKind): ChangeDraft {
  return changeDraft({ ...kind.example, op: kind.op }, [kind]);
}

/** A change, each of its fields as text. */
export function changeDraft(change: unknown, kinds: readonly ChangeKind[]): ChangeDraft {
  const { op, ...rest } = (change ?? {}) as Record<string, unknown>;
  const kind = kinds.find((each) => each.op === op);
  const names = new Set([...(kind?.fields.map((field) => field.name) ?? []), ...Object.keys(rest)]);
  const fields = Object.fromEntries(
    Array.from(names, (name) => [name, name in rest ? writtenValue(rest[name]) : '']),
  );
  return { key: made++, op: String(op ?? ''), fields };
}

/** A value of a change as a field holds it, so that `readValue` gives it back. */
export function writtenValue(value: unknown): string {
  if (typeof value !== 'string') return JSON.stringify(value);
  return looksLikeJson(value) || value.trim() !== value || value === '' ? JSON.stringify(value) : value;
}

/** JSON where a text looks like it, else the text. SyntaxError for JSON that cannot be read. */
export function readValue(text: string): unknown {
  return looksLikeJson(text) ? JSON.parse(text) : text;
}

function looksLikeJson(text: string): boolean {
  return /^\s*([[{"]|-?\d+(\.\d+)?(e[+-]?\d+)?\s*$|(true|false|null)\s*$)/i.test(text);
}

/** What the fields say. */
export function read(all: readonly Option[], held: Readonly<Drafts>, changes: readonly ChangeKind[]): Read {
  const found: Read = { options: {}, problems: {} };
  for (const option of all) {
    const { value, problem } = readDraft(option, held[option.name], changes);
    if (problem) found.problems[option.name] = problem;
    else if (value === undefined) {
      if (option.required) found.problems[option.name] = { word: 'wrongMissing' };
    } else if (option.required || !same(value, option.default)) found.options[option.name] = value;
  }
  return found;
}

export type Value = { value?: unknown; problem?: Problem };

/** The value of one field; none where it is left empty. */
export function readDraft(option: Option, held: Draft | undefined, changes: readonly ChangeKind[]): Value {
  if (held === undefined) return {};
  switch (option.kind) {
    case 'tokens': {
      const tokens = (held as string[]).map((each) => each.trim()).filter(Boolean);
      return tokens.length || Array.isArray(option.default) ? { value: tokens.map(readToken) } : {};
    }
    case 'changes':
      return readChanges(held as ChangeDraft[], changes);
  }
  const text = held as string;
  // Spaces around a text are its own, around anything else they are not.
  const bare = text.trim();
  if (!bare) return {};
  switch (option.kind) {
    case 'integer':
      if (!/^[+-]?\d+$/.test(bare)) return wrong('wrongInteger', bare);
      return within(option, [Number(bare)], Number(bare));
    case 'number':
      if (!Number.isFinite(Number(bare))) return wrong('wrongNumber', bare);
      return within(option, [Number(bare)], Number(bare));
    case 'boolean':
      return { value: bare === 'true' };
    case 'choice':
      if (!option.choices?.includes(bare))
        return {
          problem: { word: 'wrongChoice', values: { text: bare, choices: option.choices?.join(', ') ?? '' } },
        };
      return { value: bare };
    case 'list': {
      const parts = bare.split(/[,，\s]+/).filter(Boolean);
      if (!parts.every((part) => /^[+-]?\d+$/.test(part))) return wrong('wrongList', bare);
      return within(option, parts.map(Number), parts.map(Number));
    }
    case 'token':
      return { value: readToken(bare) };
    default:
      return { value: text };
  }
}

function wrong(word: Word, text: string): Value {
  return { problem: { word, values: { text } } };
}

function within({ at_least: low, at_most: high }: Option, numbers: number[], value: unknown): Value {
  for (const number of numbers) {
    if (low !== undefined && number < low)
      return { problem: { word: 'wrongLow', values: { value: number }, expected: bounds(low, high)! } };
    if (high !== undefined && number > high)
      return { problem: { word: 'wrongHigh', values: { value: number }, expected: bounds(low, high)! } };
  }
  return { value };
}

/** What a number may be, in words; null where it may be any. */
export function bounds(low: number | undefined, high: number | undefined): Problem | null {
  if (low !== undefined && high !== undefined) return { word: 'between', values: { low, high } };
  if (low !== undefined) return { word: 'atLeast', values: { low } };
  return high === undefined ? null : { word: 'atMost', values: { high } };
}

function readChanges(held: readonly ChangeDraft[], kinds: readonly ChangeKind[]): Value {
  const value: Record<string, unknown>[] = [];
  for (const [n, draft] of held.entries()) {
    const { change, problem } = readChange(draft, n, kinds);
    if (problem) return { problem };
    value.push(change);
  }
  return value.length ? { value } : {};
}

/** The change that a draft at a place of the list says, and what is wrong with it. */
export function readChange(
  { op, fields }: ChangeDraft,
  place: number,
  kinds: readonly ChangeKind[],
): { change: Record<string, unknown>; problem?: Problem } {
  const change: Record<string, unknown> = { op };
  for (const { name, required } of kinds.find((kind) => kind.op === op)?.fields ?? []) {
    const text = fields[name]?.trim() ?? '';
    if (text) {
      try {
        change[name] = readValue(text);
      } catch {
        return { change, problem: { word: 'wrongJson', values: { text } } };
      }
    } else if (required)
      return { change, problem: { word: 'wrongChange', values: { place: place + 1, field: name } } };
  }
  return { change };
}

/** Whether two values are the same JSON. */
export function same(one: unknown, other: unknown): boolean {
  return JSON.stringify(one ?? null) === JSON.stringify(other ?? null);
}
