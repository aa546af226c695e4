// What the server sends and is sent; the names are those of the library.

/** Data as it is, or a phrase in both languages. */
export type Text = string | { en: string; zh: string };

/** An array of numbers: -inf is hidden by a mask, NaN has no value. */
export type Packed = { shape: number[] } & ({ f16: string } | { f32: string });

export type Scale = 'weight' | 'signed';
export type Tinted = { kind: 'Tinted'; text: Text; value: number; scale: Scale; hint: Text };
export type Bar = { kind: 'Bar'; value: number };
export type Column = { kind: 'Column'; title: Text; align: 'left' | 'right' };
export type Point = { kind: 'Point'; x: number; y: number; label: Text; group: number };
export type Box = {
  kind: 'Box';
  lines: Text[];
  of: 'attention' | 'feed-forward' | 'norm' | 'embedding' | 'head';
};
export type Tower = {
  kind: 'Tower';
  top: Text;
  above: Box[];
  repeated: Box[];
  times: number;
  below: Box[];
  bottom: Text;
};
export type Edit = 'equal' | 'delete' | 'insert' | 'replace';

export type Heading = { kind: 'Heading'; text: Text };
export type Remark = { kind: 'Remark'; text: Text };
export type Line = { kind: 'Line'; label: Text; words: (Text | Tinted)[]; tint: Text | null };
export type Prose = { kind: 'Prose'; label: Text; text: Text };
export type Code = { kind: 'Code'; about: Text; lines: string; drawn: boolean };
export type Table = {
  kind: 'Table';
  columns: Column[];
  rows: (Text | Bar | Tinted)[][];
  tint: Text | null;
  keep: number;
};
export type Bars = { kind: 'Bars'; values: number[]; across: Text; unit: Text };
export type Matrix = {
  kind: 'Matrix';
  values: Packed;
  rows: Text[];
  columns: Text[];
  down: Text;
  across: Text;
  unit: Text;
  scale: Scale;
  drawn: boolean;
  greatest: number | null;
};
export type Atlas = { kind: 'Atlas'; names: Text[]; maps: Matrix[]; per_row: number; opened: number };
export type Points = {
  kind: 'Points';
  points: Point[];
  across: Text;
  down: Text;
  paths: number[][];
  groups: Text[];
  arrows: boolean;
};
export type Shaded = {
  kind: 'Shaded';
  label: Text;
  tokens: string[];
  values: number[];
  unit: Text;
  drawn: boolean;
  greatest: number | null;
};
export type Edited = { kind: 'Edited'; parts: [Edit, string[], string[]][] };
export type Diagram = { kind: 'Diagram'; towers: Tower[]; memory: Text; enters: number };
export type Block =
  Heading | Remark | Line | Prose | Code | Table | Bars | Matrix | Atlas | Points | Shaded | Edited | Diagram;

export type Caption = {
  model: string | null;
  text: string | null;
  output: string | null;
  command: string | null;
  python: string | null;
  date: string | null;
};
export type Page = { title: Text; blocks: Block[]; caption: Caption | null; terms: [Text, Text][] };

export type Family = 'encoder-decoder' | 'decoder-only' | 'encoder-only' | 'word2vec';
export type ModelInfo = {
  id: string;
  name: string;
  state: 'loading' | 'ready' | 'failed';
  error?: Text;
  /** Null until its config was read; what follows is empty until then. */
  family: Family | null;
  n_layers: number;
  n_encoder_layers: number;
  n_heads: number;
  parameters: number;
  languages: string[];
  questions: string[];
  examples: { text: string; options: Record<string, unknown> }[];
  presets: Preset[];
};
/** Changes to try first. `changes` is null where a run tells them: of the head that its sweep ranks first. */
export type Preset = {
  name: string;
  title: Text;
  about: Text;
  look: Text;
  changes: Record<string, unknown>[] | null;
  lacks: Text | null;
};
export type Models = { version: string; models: ModelInfo[] };

export type Option = {
  name: string;
  about: Text;
  kind:
    'integer' | 'number' | 'boolean' | 'string' | 'choice' | 'token' | 'tokens' | 'text' | 'changes' | 'list';
  choices?: string[];
  default?: unknown;
  required: boolean;
  at_least?: number;
  at_most?: number;
  positional: boolean;
};
export type Question = {
  name: string;
  about: Text;
  group: string;
  subject: 'text' | 'model' | 'files';
  needs: Text[];
  options: Option[];
};
export type ChangeKind = {
  op: string;
  name: Text;
  about: Text;
  title: Text;
  example: Record<string, unknown>;
  /** `all`: whether it may be "*". */
  fields: { name: string; about: Text; default?: unknown; required: boolean; all: boolean }[];
};
export type Entry = { term: Text; symbol: string; about: Text };
export type Tap = { name: string; dims: string; about: Text };
export type Vocabulary = {
  groups: { name: string; title: Text }[];
  questions: Question[];
  run_options: Option[];
  changes: ChangeKind[];
  glossary: Entry[];
  taps: Tap[];
};

export type Progress = { what: Text; done: number; total: number };
export type Answer<Result = unknown> = {
  question: string;
  model: string;
  text: string | null;
  options: Record<string, unknown>;
  output: string | null;
  notes: Text[];
  command: string;
  python: string;
  ms: number;
  page?: Page;
  result?: Result;
};
export type ErrorKind =
  | 'bad_request'
  | 'unknown_model'
  | 'loading'
  | 'too_long'
  | 'too_large'
  | 'bad_change'
  | 'busy'
  | 'out_of_memory'
  | 'failed'
  | 'forbidden'
  | 'not_found';
export type ServerError = { kind: ErrorKind; message: { en: string; zh: string } };

/** A word as a reader sees it: tokens `tokens[0]` to `tokens[1]` - 1. */
export type Unit = {
  text: string;
  tokens: [number, number];
  control: boolean;
  name: Text;
  pieces: string[];
};
export type Cover = {
  family: Exclude<Family, 'word2vec'>;
  source: Unit[];
  target: Unit[];
  weights: Packed;
  told: Text[];
  /** Null where no word was written. */
  light: number | null;
  hidden: number[];
  base: { target: Unit[]; text: string };
  text: string;
  edits: [Edit, string[], string[]][];
  sentence: Text | null;
};

/** A token of a text; `start` and `end` count code points, null where it stands for no part of the text. */
export type Token = { id: number; piece: string; start: number | null; end: number | null; control: boolean };
export type Pieces = { ids: number[]; pieces: string[] };
/** What each layer would say, N of them, at T positions; P tokens are pinned. */
export type Lens = {
  tokens: Pieces;
  outcome: Pieces;
  layers: number[];
  log_probs: Packed;
  pieces: string[][][];
  outcome_log_probs: Packed;
  outcome_ranks: Packed;
  pinned: Pieces;
  pinned_log_probs: Packed;
  pinned_ranks: Packed;
  approximate: Text | null;
};
export type Candidate = {
  id: number;
  piece: string;
  log_prob: number;
  before: number;
  after: number;
  rank: number;
  cut: string | null;
};
export type Candidates = {
  position: number;
  reads: string;
  rows: Candidate[];
  written: Candidate;
  kept: number;
  kept_before: number;
  words: number;
};
/** A run without changes and with them, at T tokens; of a model without output head the text's vector. */
export type Comparison = {
  pieces: string[];
  base_log_probs: Packed;
  changed_log_probs: Packed;
  difference: Packed;
  divergence: Packed;
  departures: { side: string; relative: Packed; tokens: Pieces; told: Text }[];
  base: { text: string } | null;
  changed: { text: string } | null;
  token_edits: { kind: Edit; base_pieces: string[]; changed_pieces: string[] }[];
  told: Text;
  caveats: Text[];
  vector: { distance: number } | null;
};
export type HeadEffect = { side: string; layer: number; head: number; effect: number };
/** What the output loses without each head. */
export type Node = {
  step: number;
  parent: number | null;
  id: number;
  piece: string;
  log_prob: number;
  total: number;
  divisor: number;
  score: number;
  fate: 'live' | 'stop' | 'length' | 'dropped';
  text: string;
};
export type Tree = {
  source: Pieces;
  start: Pieces;
  nodes: Node[];
  told: Text[];
  best: number;
  beam: number;
  length_penalty: { alpha: number; kind: string };
  attention: Packed;
};
/** One value on a token's way: `values` are the part of it that belongs to the token. */
export type Stage = {
  part: 'embedding' | 'attention' | 'cross' | 'ffn' | 'output';
  joint: 'as it is' | 'added' | 'normalised' | null;
  name: string;
  meaning: Text;
  formula: string;
  note: Text | null;
  dims: string[];
  shape: number[];
  index: number[];
  values: Packed;
  rows: string[];
  columns: string[];
  words: number[];
  norm: number | null;
  total: number | null;
};
/** What the sublayers of a layer add to the stream, as lengths. */
export type StreamLayer = {
  layer: number;
  attention: number;
  cross: number | null;
  feed_forward: number;
  cosine: number;
  length: number;
};
export type StackName = 'encoder' | 'decoder';
export type Flow = {
  side: StackName;
  position: number;
  piece: string;
  layer: number;
  head: number;
  n_layers: number;
  title: Text;
  wiring: Text;
  tokens: Partial<Record<StackName, string[]>>;
  outcome: string[];
  parts: { part: Stage['part']; title: Text; about: Text }[];
  stages: Stage[];
  stream: StreamLayer[];
};
/** What a formula reads; a place of `index` that is a text, as `2:5`, runs over a dimension. */
export type Operand = {
  symbol: string;
  name: string | null;
  index: (number | string)[];
  values: Packed;
  meaning: Text;
  element: [string, number] | null;
  labels: Record<string, string>;
};
/** One number of a run; null is no finite one. */
export type Explanation = {
  name: string;
  index: number[];
  meaning: Text;
  where: Text;
  formula: string;
  operands: Operand[];
  result: number | null;
  recorded: number | null;
  tolerance: number | null;
  note: Text | null;
  python: string;
};
/** Of a translation: how much less probable each token is without each source token, in nats (T, S). */
export type Alignment = { outcome: Pieces; effect: { effect: Packed } };

export type Side = 'encoder' | 'decoder' | 'cross';
/** One measure of L layers of H heads each; `uniform` of each layer is that of a head that weighs all keys alike. */
export type MeasuredHeads = {
  name: string;
  title: Text;
  about: Text;
  unit: Text;
  values: Packed;
  uniform: Packed;
};
/** All heads of a side. A cell of `maps` (L, H, R, C) is the greatest weight among `cell` queries and `cell` keys. */
export type HeadSheet = {
  side: Side;
  sides: Side[];
  layers: number[];
  heads: number[];
  shared: number;
  windows: (number | null)[];
  cell: number;
  maps: Packed;
  measures: MeasuredHeads[];
  queries: Pieces;
  keys: Pieces;
  rows: string[];
};
/** What the output loses without each head, layers down. */
export type HeadSweep = {
  effects: Partial<Record<Side, Packed>>;
  ranking: HeadEffect[];
  told: Text;
  unit: 'nats' | '1 - cosine';
};
/** A row of a table and its cosine, dot product or distance to what was asked about. */
export type Neighbour = { id: number; piece: string; value: number };
/** `id` is null of a word that has a vector by its character n-grams alone. */
export type Neighbours = { id: number | null; piece: string; compared: number; items: Neighbour[] };
/** The whole of a table: `coordinates` (V, 3), and the group of each row. */
export type Cloud = {
  pieces: string[];
  groups: Packed;
  landmarks: number[][];
  axes: { coordinates: Packed };
  told: Text[];
};
export type Ranked = {
  id: number;
  piece: string;
  cosine: number;
  rank: number;
  rank_without_inputs: number | null;
};
export type Analogy = { answers: Neighbour[]; inputs: [Ranked, Ranked, Ranked] };
