"""`cutaway inspect MODEL TEXT`: a text's tokens, what the model makes of it, and its strongest heads."""

from dataclasses import dataclass
from functools import partial
from math import exp
from typing import TYPE_CHECKING

from cutaway.cli.terminal import columns, write_table
from cutaway.cli.view_page import heading, labelled, nats, paragraph, progress, remark, share, title
from cutaway.cli.view_request import Answer, Request
from cutaway.text.display import truncate

if TYPE_CHECKING:
    from torch import Tensor

    from cutaway.inspection.changes.sweep import HeadEffect
    from cutaway.inspection.layers.memory import Word
    from cutaway.inspection.runs.run import Run, Tokens

EXPECTED = 5  # tokens listed at a place


@dataclass(frozen=True)
class Expected:
    """The most probable tokens at a place, with their log-probabilities."""

    position: int
    words: "tuple[Word, ...]"


@dataclass(frozen=True)
class Overview:
    """The tokens of both sides (of a translation without the decoder's start), `log_probs` (T,) of the written tokens,
    what a decoder-only model expects next and a masked one in each gap, and the heads without which the output grows
    least probable, in nats."""

    source: "Tokens | None"
    target: "Tokens | None"
    text: str
    log_probs: "Tensor"
    expected: tuple[Expected, ...]
    heads: "tuple[HeadEffect, ...]"


def overview(request: Request) -> Answer:
    import torch

    from cutaway.inspection.changes.sweep import sweep
    from cutaway.inspection.runs.forced import forced_tokens, masked_positions
    from cutaway.inspection.runs.stacks import output_head

    top, run = request.top(5), request.run()
    output_head(run)
    logits, _ = run.forward()
    scores = logits.float().log_softmax(dim=-1)
    ids = torch.tensor(forced_tokens(run, logits).ids, device=scores.device)
    family = run.loaded.config.family
    places = {"encoder-decoder": [], "decoder-only": [len(scores) - 1]}.get(family, masked_positions(run))
    translating = family == "encoder-decoder"
    found = Overview(
        source=run.source,
        target=run.outcome if translating else run.target,
        text=run.loaded.require_tokenizer().decode(run.outcome.ids) if translating else "",
        log_probs=scores.gather(1, ids[:, None])[:, 0].cpu(),
        expected=tuple(_expected(run, scores[place], place) for place in places),
        heads=sweep(run, observe=partial(progress, "heads switched off, layers")).ranking[:top],
    )
    return Answer(found, partial(_show, found, request))


def _expected(run: "Run", scores: "Tensor", place: int) -> Expected:
    from cutaway.inspection.layers.memory import Word
    from cutaway.inspection.runs.selection import piece_of

    best = scores.topk(min(EXPECTED, len(scores)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return Expected(place, tuple(Word(id, piece_of(run, id), value) for id, value in pairs))


def _show(found: Overview, request: Request) -> None:
    title(truncate(f"{request.loaded.path.name} reads {' '.join(request.text.split())}", columns()))
    if found.source is not None:
        labelled("source" if found.target else "tokens", found.source.pieces)
    if found.target is not None:
        labelled("writes" if found.source else "tokens", found.target.pieces)
    if found.source is not None and found.target is not None:
        paragraph("translation", found.text)
        total = float(found.log_probs.sum())
        each = exp(total / max(1, len(found.log_probs)))
        labelled("probability", [f"e^{total:.2f},", f"{share(each)} a token (geometric mean)"])
    for expected in found.expected:
        place = "next" if found.source is None else f"gap {expected.position}"
        labelled(place, [f"{word.piece} {share(exp(word.value))} " for word in expected.words])
    heading("The heads that this output depends on most")
    rows = [(each.side, f"{each.layer}.{each.head}", nats(each.effect)) for each in found.heads]
    write_table(("attention", "layer.head", "effect"), rows, right=("layer.head", "effect"))
    views = ["attention", "lens", "neurons", "sweep", "diff", "explain"]
    if any(each.side == "cross" for each in found.heads):
        views.insert(0, "align")
    remark(
        "effect: by how many nats the log-probability of the output falls with this head switched off; dependence, not "
        f"purpose. More: --show {', '.join(views)}."
    )
