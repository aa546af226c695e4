"""Greedy translation: ours, and transformers' `generate` on the same weights, from source ids to target ids.

The bundled model translates sentences of the Tatoeba test set (sentences.txt); without one, random weights translate
random ids to a fixed length.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.measure import (
    Effort,
    Peer,
    Row,
    opened_by_transformers,
    take_turns,
    translator_config,
    translator_folder,
)
from cutaway.checkpoint.folder import load
from cutaway.decode.generation import generate
from cutaway.decode.search import Limits
from cutaway.decode.stepping import pad_right
from cutaway.decode.translator import Translator
from cutaway.models.build import build
from cutaway.models.encoder_decoder import EncoderDecoder

SENTENCES = Path(__file__).with_name("sentences.txt")
BATCHES = (1, 32)
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Task:
    """A model, what it shall translate, and how long the results may be."""

    name: str
    model: EncoderDecoder
    sources: list[list[int]]
    limits: Limits


def measure(effort: Effort) -> list[Row]:
    with torch.inference_mode(False):
        task = real_task(effort) or random_task(effort)
    with TemporaryDirectory() as path:
        theirs = opened_by_transformers(task.model, Path(path)).eval()
    return [_row(effort, task, theirs, rows) for rows in BATCHES]


def real_task(effort: Effort) -> Task | None:
    """The bundled translator, or the one asked for, on real sentences; None when there is neither."""
    path = translator_folder(effort)
    if path is None:
        return None
    loaded = load(path)
    translator = Translator(loaded)
    lines = SENTENCES.read_text(encoding="utf-8").splitlines()[1 : effort.sentences + 1]
    sources = [translator.prepare(line, to="en").ids for line in lines]
    return Task(f"{path.name}, zh→en", translator.model, sources, Limits(64))


def random_task(effort: Effort) -> Task:
    torch.manual_seed(0)
    model = build(translator_config(effort, "pre")).eval()
    assert isinstance(model, EncoderDecoder)
    lengths = torch.randint(6, 17, (effort.sentences,)).tolist()
    sources = [[*torch.randint(3, effort.vocab_size, (length,)).tolist(), 2] for length in lengths]
    name = f"random weights, {effort.n_layers}+{effort.n_layers} layers, width {effort.d_model}"
    return Task(name, model, sources, Limits(effort.new_tokens, effort.new_tokens))


def _row(effort: Effort, task: Task, peer: Peer, rows: int) -> Row:
    config, limits = task.model.config, task.limits
    start, end, pad = config.decoder_start_id, config.eos_id, config.pad_id
    assert start is not None and end is not None and pad is not None
    # its declared type refuses its own models
    their_generate: Callable[..., torch.Tensor] = getattr(peer, "generate")
    # a quarter of the sentences is enough where each takes a pass of its own
    sources = sorted(task.sources[:: 4 if rows == 1 else 1], key=len)
    batches = [pad_right(sources[first : first + rows], pad, CPU) for first in range(0, len(sources), rows)]

    def ours() -> list[list[int]]:
        results = []
        for ids, mask in batches:
            with torch.inference_mode():
                cache = task.model.begin(ids, mask)
            prompts = [[start]] * len(ids)
            found = generate(task.model, cache, prompts, limits=limits, eos_id=end)
            results += [each.ids for [each] in found]
        return results

    def theirs() -> list[list[int]]:
        results = []
        for ids, mask in batches:
            whole = torch.ones_like(ids) if mask is None else mask.long()
            found = their_generate(
                input_ids=ids, attention_mask=whole, num_beams=1, do_sample=False,
                max_new_tokens=limits.max_new_tokens, min_new_tokens=limits.min_new_tokens or None,
            )  # fmt: skip
            results += [_until(row[1:], end) for row in found.tolist()]
        return results

    our_ids, their_ids = ours(), theirs()
    our_seconds, their_seconds = take_turns((ours, theirs), effort)
    our_speed, their_speed = (
        sum(map(len, ids)) / seconds for ids, seconds in ((our_ids, our_seconds), (their_ids, their_seconds))
    )
    return Row(
        part="translation", case=f"greedy, batch {rows}: {task.name}", unit="tokens/s", ours=our_speed,
        peer="transformers' generate", theirs=their_speed, ratio=our_speed / their_speed, least=1.5,
        agree=our_ids == their_ids,
    )  # fmt: skip


def _until(ids: list[int], end: int) -> list[int]:
    """`ids` without the padding after the end token."""
    return ids[: ids.index(end) + 1] if end in ids else ids
