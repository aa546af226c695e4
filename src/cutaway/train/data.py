"""What training reads: files become examples, some of them held out, a tokenizer is learned from the rest, and both
become batches."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

from cutaway.errors import CutawayError, nearest
from cutaway.text.batches.batch import Batch
from cutaway.text.batches.documents import DocumentBatches, MaskedBatches, WindowBatches, document_ids
from cutaway.text.batches.pairs import PairBatches, Pairs, pair_examples
from cutaway.text.corpus import Pair, Report, raw_lines, read_documents, read_jsonl, read_parallel, read_tsv
from cutaway.text.tokens.plan import BERT_ROLES
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.train.progress import Tell
from cutaway.train.recipe import DataPart, Recipe, Source
from cutaway.train.validation import Direction
from cutaway.train.vocabulary import decoder_start, learned_tokenizer
from cutaway.words import Phrase, names_of, say

TRAINING, VALIDATION = say("training"), say("validation")
TextBatches = WindowBatches | DocumentBatches | MaskedBatches


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Everything training reads."""

    tokenizer: Tokenizer
    batches: PairBatches | TextBatches
    validation: list[Batch] = field(default_factory=list)
    n_bytes: int | None = None  # of the validation text, for bits per byte
    directions: list[Direction] = field(default_factory=list)


def prepare(recipe: Recipe, folder: Path, known: Tokenizer | None, tell: Tell) -> Prepared:
    """Read, tokenise and batch the examples of `recipe`, by the tokenizer that is `known` or one learned from them.

    `tell` gets a line for what was read, left out or replaced. Raises CutawayError for data that are missing,
    malformed or empty.
    """
    # every file can be opened, before the first is read to its end
    sources, place = recipe.data.all_sources, Path(recipe.data.folder)
    for name in [source.path for source in sources] + [source.other for source in sources if source.other]:
        next(iter(raw_lines(place / name)), None)
    of_kind = _prepare_pairs if recipe.train.objective == "seq2seq" else _prepare_texts
    return of_kind(recipe, folder, known, tell)


def _stretch(source: Source, count: int) -> slice:
    """The part of `count` examples that is used."""
    return slice(*(round(end * count) for end in source.part))


def _hash(text: str) -> bytes:
    """What examples are ordered by to hold some out: the same ones whatever their order or the seed."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _all_held(wanted: int, count: int) -> CutawayError:
    return CutawayError(
        "data.validation.hold_out is {wanted:,}, expected fewer than there are examples ({count:,})",
        wanted=wanted,
        count=count,
    )


def _prepare_pairs(recipe: Recipe, folder: Path, known: Tokenizer | None, tell: Tell) -> Prepared:
    data, ways = recipe.data, recipe.data.ways
    source, target = ways[0]
    marks = {column: f">>{language}<<" for column, language in data.languages.items()}
    for mark in marks.values():
        if known is not None and known.id(mark) is None:
            raise CutawayError(
                "the tokenizer has no control token {mark}; train one for this recipe", mark=mark
            )
    pairs = [pair for part in data.sources for pair in read_pairs(part, data, source, target, tell)]
    pairs, held = hold_out(pairs, recipe.held_out(len(pairs)), data.validation.domains, tell)
    held += [
        pair for part in data.validation.sources for pair in read_pairs(part, data, source, target, tell)
    ]
    if not pairs:
        raise CutawayError("the sources hold no pair to train on; give files with sentence pairs")
    weights = _weights(data, {pair.domain for pair in pairs})
    tokenizer = known or learned_tokenizer(
        recipe.tokenizer,
        folder,
        _weighted([(weights[pair.domain], pair.source, pair.target) for pair in pairs]),
        tell,
        languages=list(data.languages.values()),
        template="$A </s>",
    )
    batches_of = partial(
        PairBatches,
        budget=recipe.train.batch_tokens,
        pad_id=tokenizer.require("pad"),
        decoder_start_id=decoder_start(tokenizer),
    )

    examples_of = partial(
        pair_examples,
        tokenizer=tokenizer,
        target_mark=marks.get(target),
        source_mark=marks.get(source) if len(ways) == 2 else None,
        max_source=data.max_source,
        max_target=data.max_target,
    )

    def examples(chosen: Sequence[Pair], what: Phrase) -> dict[str, Pairs]:
        report = Report()
        found = examples_of(chosen, report=report)
        kept = sum(len(part) for part in found.values())
        left_out = say("{empty:,} blank, {long:,} too long", empty=report.empty, long=report.long)
        tell(
            "{what}: {count:,} pairs, {kept:,} examples, {left_out}",
            what=what,
            count=len(chosen),
            kept=kept,
            left_out=left_out,
        )
        if kept == 0:
            raise CutawayError(
                "no {what} pair is left: {left_out}; look at the data, or raise the limits",
                what=what,
                left_out=left_out,
            )
        return found

    parts = sorted(examples(pairs, TRAINING).items())
    batches = batches_of([part.weighted(weights[domain]) for domain, part in parts], seed=recipe.run.seed)
    if not held:
        return Prepared(tokenizer=tokenizer, batches=batches)
    once = batches_of(list(examples(held, VALIDATION).values()))
    # what the loss leaves out as blank or too long is not translated either
    counted = (pair for pair in held if sum(map(len, examples_of([pair]).values())) == len(ways))
    shown = list(islice(counted, data.validation.translations))
    texts = {source: [pair.source for pair in shown], target: [pair.target for pair in shown]}
    directions = [
        Direction(source=one, target=other, texts=texts[one], references=texts[other])
        for one, other in (ways if shown else [])
    ]
    return Prepared(tokenizer=tokenizer, batches=batches, validation=list(once.once()), directions=directions)


def read_pairs(part: Source, data: DataPart, source: str, target: str, tell: Tell) -> list[Pair]:
    path, report = Path(data.folder) / part.path, Report()
    if part.format == "tsv":
        domain = "domain" if "domain" in part.columns and part.domain is None else None
        found = read_tsv(path, source, target, domain, part.columns or None, part.errors, report)
    elif part.format == "parallel":
        found = read_parallel(path, Path(data.folder) / (part.other or ""), part.errors, report)
        if part.columns == (target, source):
            found = (replace(pair, source=pair.target, target=pair.source) for pair in found)
    else:
        rows = read_jsonl(path, (source, target), part.errors, report)
        found = (Pair(one, two, "", line) for line, (one, two) in rows)
    pairs = [replace(pair, domain=part.domain) if part.domain is not None else pair for pair in found]
    tell("{path}: {report}", path=path, report=report.told())
    return pairs[_stretch(part, len(pairs))]


def hold_out(
    pairs: list[Pair], wanted: int, domains: Sequence[str], tell: Tell
) -> tuple[list[Pair], list[Pair]]:
    """Split off validation pairs, the same ones whatever the order or seed. Training pairs that share a side with one
    of them are left out too, and counted."""
    if not wanted:
        return pairs, []
    known = {pair.domain for pair in pairs}
    for domain in domains:
        if domain not in known:
            raise CutawayError(
                "data.validation.domains: no pair is of domain {domain!r}{hint}; domains: {known}",
                domain=domain,
                hint=nearest(domain, known),
                known=names_of(sorted(known)),
            )
    candidates = [pair for pair in pairs if not domains or pair.domain in domains]
    held = sorted(candidates, key=lambda pair: _hash(f"{pair.source}\t{pair.target}"))[:wanted]
    if len(held) == len(pairs):
        raise _all_held(wanted, len(pairs))
    sources, targets = {pair.source for pair in held}, {pair.target for pair in held}
    rest = [pair for pair in pairs if pair.source not in sources and pair.target not in targets]
    tell(
        "validation: {count:,} pairs held out; {more:,} more share a side with one",
        count=len(held),
        more=len(pairs) - len(rest) - len(held),
    )
    return rest, held


def _weights(data: DataPart, domains: set[str]) -> dict[str, float]:
    for domain in sorted(data.weights.keys() - {"*"} - domains):
        raise CutawayError(
            "data.weights.{domain}: no example is of that domain{hint}; domains: {domains}",
            domain=domain,
            hint=nearest(domain, domains),
            domains=names_of(sorted(domains)),
        )
    other = data.weights.get("*", 1.0)
    return {domain: data.weights.get(domain, other) for domain in domains}


def _weighted(texts: list[tuple[float, str, str]]) -> list[str]:
    """Texts as often as they weigh: what the tokenizer learns from has the proportions of training."""
    owed: dict[float, float] = {}
    found = []
    for weight, one, two in texts:
        owed[weight] = owed.get(weight, 0.0) + weight
        while owed[weight] >= 1:
            owed[weight] -= 1
            found += (one, two)
    return found


def _prepare_texts(recipe: Recipe, folder: Path, known: Tokenizer | None, tell: Tell) -> Prepared:
    """A causal model reads sources with split = "file" as one long text in random windows, and others as documents
    packed into rows that do not see one another."""
    data, masked = recipe.data, recipe.train.objective == "masked"
    texts = [text for source in data.sources for text in read_texts(source, data.folder, tell)]
    if data.one_text and data.validation.hold_out is None:
        texts, held = _hold_out_ends(texts, recipe, tell)
    else:
        texts, held = _hold_out_texts(texts, recipe.held_out(len(texts)), tell)
    held += [text for source in data.validation.sources for text in read_texts(source, data.folder, tell)]
    if not texts:
        raise CutawayError("the sources hold no text to train on; give files with text")
    template = "[CLS] $A [SEP]" if masked else None if data.one_text else "<s> $A"
    tokenizer = known or learned_tokenizer(
        recipe.tokenizer, folder, texts, tell, roles=BERT_ROLES if masked else None, template=template
    )
    batches = _text_batches(recipe, texts, tokenizer, tell, TRAINING)
    if not held:
        return Prepared(tokenizer=tokenizer, batches=batches)
    checks = _text_batches(recipe, held, tokenizer, tell, VALIDATION)
    n_bytes = None if masked else sum(len(text.encode()) for text in held)
    return Prepared(tokenizer=tokenizer, batches=batches, validation=list(checks.once()), n_bytes=n_bytes)


def _text_batches(
    recipe: Recipe, texts: list[str], tokenizer: Tokenizer, tell: Tell, what: Phrase
) -> TextBatches:
    part, seed, context = recipe.train, recipe.run.seed, recipe.context
    rows, report = part.batch_rows or max(1, part.batch_tokens // context), Report()
    ids = document_ids(texts, tokenizer, report)
    tell(
        "{what}: {documents:,} documents, {tokens:,} tokens, {blank:,} blank",
        what=what,
        documents=len(texts),
        tokens=len(ids.flat),
        blank=report.empty,
    )
    if part.objective == "masked":
        return MaskedBatches(
            ids,
            max_len=context,
            budget=rows * context,
            pad_id=tokenizer.require("pad"),
            cls_id=tokenizer.role("cls"),
            sep_id=tokenizer.role("sep"),
            seed=seed,
        )
    if recipe.data.one_text:
        return WindowBatches(ids.flat, context=context, rows=rows, seed=seed)
    return DocumentBatches(
        ids,
        max_len=context,
        rows=rows,
        pad_id=tokenizer.require("pad"),
        eos_id=tokenizer.require("eos"),
        start_id=decoder_start(tokenizer),
        seed=seed,
    )


def read_texts(source: Source, folder: str, tell: Tell) -> list[str]:
    """The documents of a source of text in a folder, those of its `part`; `tell` gets a line for what was read."""
    path, report = Path(folder) / source.path, Report()
    if source.format == "jsonl":
        texts = [text for _, (text,) in read_jsonl(path, (source.field,), source.errors, report)]
    else:
        texts = list(read_documents(path, source.split, source.errors, report))
        if source.heading:
            bodies = ["\n".join(text.split("\n")[source.heading :]) for text in texts]
            texts = [body for body in bodies if body]
            bare = len(bodies) - len(texts)
            tell("{path}: {count:,} documents are only a heading, left out", path=path, count=bare)
    tell("{path}: {report}", path=path, report=report.told())
    if source.format == "text" and source.split == "file":
        return [text[_stretch(source, len(text))] for text in texts]
    return texts[_stretch(source, len(texts))]


def _hold_out_ends(texts: list[str], recipe: Recipe, tell: Tell) -> tuple[list[str], list[str]]:
    """Split off the end of each long text."""
    ends = [math.ceil(len(text) * recipe.held_part) for text in texts]
    if not any(ends):
        return texts, []
    tell("validation: {count:,} characters held out, the end of the text", count=sum(ends))
    held = [text[-end:] for text, end in zip(texts, ends, strict=True)]
    return [text[:-end] for text, end in zip(texts, ends, strict=True)], held


def _hold_out_texts(texts: list[str], wanted: int, tell: Tell) -> tuple[list[str], list[str]]:
    """Split off the documents with the smallest hash; equal documents go together."""
    if not wanted:
        return texts, []
    held = set(sorted(texts, key=_hash)[:wanted])
    rest = [text for text in texts if text not in held]
    if not rest:
        raise _all_held(wanted, len(texts))
    tell("validation: {count:,} documents held out", count=len(held))
    return rest, sorted(held)
