"""Sentence pairs for an encoder-decoder: read, hold some out, tokenise, batch."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cutaway.errors import CutawayError, nearest
from cutaway.text.batches.pairs import PairBatches, Pairs, pair_examples
from cutaway.text.corpus import Pair, Report, read_jsonl, read_parallel, read_tsv
from cutaway.train.data import (
    TRAINING,
    VALIDATION,
    Prepared,
    Tell,
    decoder_start,
    learned_tokenizer,
    report_to,
)
from cutaway.train.evaluate import Direction
from cutaway.train.recipe import DataPart, Recipe, Source
from cutaway.words import Phrase, say


def prepare_pairs(recipe: Recipe, folder: Path, tell: Tell) -> Prepared:
    """Read, tokenise and batch the pairs of `recipe`; a learned tokenizer is kept in `folder`/tokenizer.

    `say` gets a line for what was read, left out or replaced. Raises CutawayError for data that are missing,
    malformed or empty.
    """
    data, train = recipe.data, recipe.train
    source, target, both = _directions(data)
    pairs = [pair for part in data.sources for pair in _read_pairs(part, data, source, target, tell)]
    pairs, held = hold_out(pairs, data, tell)
    for part in data.validation.sources:
        held += _read_pairs(part, data, source, target, tell)
    if not pairs:
        raise CutawayError("the sources hold no pair to train on")
    weights = _weights(data, {pair.domain for pair in pairs})
    texts = _weighted([(weights[pair.domain], pair.source, pair.target) for pair in pairs])
    marks = [f">>{language}<<" for language in data.languages.values()]
    tokenizer = learned_tokenizer(
        recipe.tokenizer, folder, texts, tell, languages=list(data.languages.values()), template="$A </s>"
    )
    for mark in marks:
        if tokenizer.id(mark) is None:
            raise CutawayError(
                "the tokenizer has no control token {mark}; train one for this recipe", mark=mark
            )
    to_target, to_source = (_mark(data, name) for name in (target, source))
    if both and (to_target is None or to_source is None):
        raise CutawayError(
            "data.directions has both ways of {source} and {target}: data.languages must name a "
            "language for each, so that the model is told which way to go",
            source=source,
            target=target,
        )
    pad, start = tokenizer.require("pad"), decoder_start(tokenizer)

    def examples(chosen: Sequence[Pair], what: Phrase) -> dict[str, Pairs]:
        report = Report()
        found = pair_examples(
            chosen,
            tokenizer,
            target_mark=to_target,
            source_mark=to_source if both else None,
            max_source=data.max_source,
            max_target=data.max_target,
            report=report,
        )
        kept = sum(len(part) for part in found.values())
        left_out = say("{empty:,} blank, {long:,} too long", empty=report.empty, long=report.long)
        tell(
            say(
                "{what}: {count:,} pairs, {kept:,} examples, {left_out}",
                what=what,
                count=len(chosen),
                kept=kept,
                left_out=left_out,
            )
        )
        if kept == 0:
            raise CutawayError("no {what} pair is left: {left_out}", what=what, left_out=left_out)
        return found

    parts = examples(pairs, TRAINING)
    batches = PairBatches(
        [part.weighted(weights[domain]) for domain, part in sorted(parts.items())],
        budget=train.batch_tokens,
        pad_id=pad,
        decoder_start_id=start,
        seed=recipe.run.seed,
    )
    if not held:
        return Prepared(tokenizer=tokenizer, batches=batches)
    checks = list(examples(held, VALIDATION).values())
    once = PairBatches(checks, budget=train.batch_tokens, pad_id=pad, decoder_start_id=start)
    count = data.validation.translations
    ways = [(source, target), (target, source)] if both else [(source, target)]
    directions = [
        Direction(
            source=way[0],
            target=way[1],
            texts=[pair.source if way[0] == source else pair.target for pair in held[:count]],
            references=[pair.target if way[0] == source else pair.source for pair in held[:count]],
        )
        for way in (ways if count else [])
    ]
    return Prepared(tokenizer=tokenizer, batches=batches, validation=list(once.once()), directions=directions)


def _directions(data: DataPart) -> tuple[str, str, bool]:
    """Source column, target column, and whether the other direction is learned too."""
    ways = [tuple(direction.split(">")) for direction in data.directions]
    if not ways or len(ways) > 2 or (len(ways) == 2 and ways[0] != ways[1][::-1]):
        raise CutawayError(
            "data.directions is {directions}, expected one direction or both of one pair of "
            'columns, such as ["zh>en", "en>zh"]',
            directions=list(data.directions),
        )
    return ways[0][0].strip(), ways[0][1].strip(), len(ways) == 2


def _mark(data: DataPart, column: str) -> str | None:
    language = data.languages.get(column)
    return None if language is None else f">>{language}<<"


def _read_pairs(part: Source, data: DataPart, source: str, target: str, tell: Tell) -> list[Pair]:
    path, report = Path(data.folder) / part.path, Report()
    if part.format == "tsv":
        domain = "domain" if "domain" in part.columns and part.domain is None else None
        found = read_tsv(path, source, target, domain, part.columns or None, part.errors, report)
    elif part.format == "parallel":
        if part.other is None or len(part.columns) != 2:
            raise CutawayError(
                "{path}: a parallel source needs `other` (the second file) and two `columns`", path=path
            )
        found = read_parallel(path, Path(data.folder) / part.other, part.errors, report)
        if part.columns == (target, source):
            found = (replace(pair, source=pair.target, target=pair.source) for pair in found)
    elif part.format == "jsonl":
        rows = read_jsonl(path, (source, target), part.errors, report)
        found = (Pair(one, two, "", line) for line, (one, two) in enumerate(rows, 1))
    else:
        raise CutawayError("{path}: format text has no pairs; expected tsv, parallel or jsonl", path=path)
    pairs = [replace(pair, domain=part.domain) if part.domain is not None else pair for pair in found]
    report_to(path, report, tell)
    return pairs[round(part.part[0] * len(pairs)) : round(part.part[1] * len(pairs))]


def hold_out(pairs: list[Pair], data: DataPart, tell: Tell) -> tuple[list[Pair], list[Pair]]:
    """Split off validation pairs: those with the smallest hash of their text, so the same ones whatever the order
    or seed. Training pairs that share a side with one of them are left out too, and counted."""
    wanted, domains = data.validation.hold_out, data.validation.domains
    if not wanted:
        return pairs, []
    known = {pair.domain for pair in pairs}
    for domain in domains:
        if domain not in known:
            hint = nearest(domain, known)
            raise CutawayError(
                "data.validation.domains: no pair is of domain {domain!r}{hint}; domains: {known}",
                domain=domain,
                hint=hint,
                known=", ".join(sorted(known)),
            )
    from_ = [pair for pair in pairs if not domains or pair.domain in domains]
    held = sorted(from_, key=_fingerprint)[:wanted]
    if len(held) == len(pairs):
        raise CutawayError(
            "data.validation.hold_out is {wanted}, but there are only {count} pairs in all",
            wanted=wanted,
            count=len(pairs),
        )
    sources, targets = {pair.source for pair in held}, {pair.target for pair in held}
    rest = [pair for pair in pairs if pair.source not in sources and pair.target not in targets]
    more = f"{len(pairs) - len(rest) - len(held):,}"
    tell(
        say(
            "validation: {count:,} pairs held out; {more} more share a side with one",
            count=len(held),
            more=more,
        )
    )
    return rest, held


def _fingerprint(pair: Pair) -> bytes:
    return hashlib.blake2b(f"{pair.source}\t{pair.target}".encode(), digest_size=16).digest()


def _weights(data: DataPart, domains: set[str]) -> dict[str, float]:
    for domain, weight in data.weights.items():
        if domain != "*" and domain not in domains:
            hint = nearest(domain, domains)
            raise CutawayError(
                "data.weights.{domain}: no example is of that domain{hint}; domains: {domains}",
                domain=domain,
                hint=hint,
                domains=", ".join(sorted(domains)),
            )
        if weight < 0:
            raise CutawayError(
                "data.weights.{domain} is {weight}, expected at least 0", domain=domain, weight=weight
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
