"""Running text for language models: read, hold some out, tokenise, batch."""

import hashlib
from pathlib import Path

from cutaway.errors import CutawayError
from cutaway.text.batches.documents import DocumentBatches, MaskedBatches, WindowBatches, document_ids
from cutaway.text.corpus import Report, read_documents, read_jsonl
from cutaway.text.tokens.plan import BERT_ROLES
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.train.data import TRAINING, VALIDATION, Prepared, Tell, learned_tokenizer, report_to
from cutaway.train.recipe import DataPart, Recipe, Source
from cutaway.words import Phrase, say

TextBatches = WindowBatches | DocumentBatches | MaskedBatches


def prepare_texts(recipe: Recipe, folder: Path, context: int, tell: Tell) -> Prepared:
    """Read, tokenise and batch the texts of `recipe`, `context` tokens a row.

    A causal model reads sources with split = "file" as one long text in random windows, and others as documents
    packed into rows that do not see one another. Otherwise as `prepare_pairs`.
    """
    data, masked = recipe.data, recipe.train.objective == "masked"
    if data.weights or data.directions or data.languages:
        raise CutawayError("data.weights, directions and languages belong to pairs (train.objective seq2seq)")
    texts = [text for source in data.sources for text in _read(source, data, tell)]
    texts, held = _hold_out(texts, data.validation.hold_out, tell)
    held += [text for source in data.validation.sources for text in _read(source, data, tell)]
    if not texts:
        raise CutawayError("the sources hold no text to train on")
    roles = BERT_ROLES if masked else None
    whole = data.one_text
    template = "[CLS] $A [SEP]" if masked else None if whole else "<s> $A"
    tokenizer = learned_tokenizer(recipe.tokenizer, folder, texts, tell, roles=roles, template=template)
    batches = _batches(recipe, texts, tokenizer, context, whole, tell, TRAINING)
    if not held:
        return Prepared(tokenizer=tokenizer, batches=batches)
    checks = _batches(recipe, held, tokenizer, context, whole, tell, VALIDATION)
    n_bytes = None if masked else sum(len(text.encode()) for text in held)
    return Prepared(tokenizer=tokenizer, batches=batches, validation=list(checks.once()), n_bytes=n_bytes)


def _batches(
    recipe: Recipe,
    texts: list[str],
    tokenizer: Tokenizer,
    context: int,
    whole: bool,
    tell: Tell,
    what: Phrase,
) -> TextBatches:
    part, seed = recipe.train, recipe.run.seed
    rows = part.batch_rows or max(1, part.batch_tokens // context)
    report = Report()
    ids = document_ids(texts, tokenizer, report)
    documents, tokens, blank = f"{len(texts):,}", f"{len(ids.flat):,}", f"{report.empty:,}"
    tell(
        say(
            "{what}: {documents} documents, {tokens} tokens, {blank} blank",
            what=what,
            documents=documents,
            tokens=tokens,
            blank=blank,
        )
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
    if whole:
        return WindowBatches(ids.flat, context=context, rows=rows, seed=seed)
    start = tokenizer.role("bos")
    return DocumentBatches(
        ids,
        max_len=context,
        rows=rows,
        pad_id=tokenizer.require("pad"),
        eos_id=tokenizer.require("eos"),
        start_id=tokenizer.require("eos") if start is None else start,
        seed=seed,
    )


def _read(source: Source, data: DataPart, tell: Tell) -> list[str]:
    path, report = Path(data.folder) / source.path, Report()
    if source.format == "jsonl":
        texts = [text for (text,) in read_jsonl(path, (source.field,), source.errors, report)]
    elif source.format == "text":
        texts = list(read_documents(path, source.split, source.errors, report))
        if source.heading:
            bodies = ["\n".join(text.split("\n")[source.heading :]) for text in texts]
            texts = [body for body in bodies if body]
            bare = f"{len(bodies) - len(texts):,}"
            tell(say("{path}: {bare} documents are only a heading, left out", path=path, bare=bare))
    else:
        raise CutawayError(
            "{path}: format {format} holds pairs; expected text or jsonl", path=path, format=source.format
        )
    report_to(path, report, tell)
    start, stop = source.part
    if source.format == "text" and source.split == "file":
        return [text[round(start * len(text)) : round(stop * len(text))] for text in texts]
    return texts[round(start * len(texts)) : round(stop * len(texts))]


def _hold_out(texts: list[str], wanted: int, tell: Tell) -> tuple[list[str], list[str]]:
    """Split off the documents with the smallest hash; equal documents go together."""
    if not wanted:
        return texts, []
    held = set(
        sorted(texts, key=lambda text: hashlib.blake2b(text.encode(), digest_size=16).digest())[:wanted]
    )
    rest = [text for text in texts if text not in held]
    if not rest:
        raise CutawayError(
            "data.validation.hold_out is {wanted}, but there are only {count} documents in all",
            wanted=wanted,
            count=len(texts),
        )
    tell(say("validation: {count:,} documents held out", count=len(held)))
    return rest, sorted(held)
