"""Which source tokens a translation looked at: the cross-attention of every hypothesis of a search."""

# Shapes: L layers, H heads, T written tokens, S source tokens.

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cutaway.checkpoint.folder import Loaded
from cutaway.decode.search import LengthPenalty, Search
from cutaway.decode.text_model import Hypothesis
from cutaway.decode.translator import Language, Translator
from cutaway.errors import CutawayError
from cutaway.inspection.attention.patterns import chosen, patterns, place
from cutaway.inspection.pages.alignment import alignment_page
from cutaway.inspection.runs.run import Run, Tokens
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn

Heads = Iterable[tuple[int, int | None]]  # (layer, head); a head of None stands for all heads of that layer


@dataclass(frozen=True, repr=False)
class Alignment(Drawn):
    """A source, and what greedy search and beam search wrote for it, best first, with the attention of each (Bahdanau
    et al. 2015, §5.2.1; of a Transformer: Vaswani et al. 2017, §3.2.3).

    Each hypothesis has its `cross_attention` (L, H, T, S), fp32 and without unit: row t holds the weights over the
    source with which its token t was chosen, and sums to 1. `alignment` (T, S) is the mean over layers and heads;
    `mean_weights` takes that over chosen ones. They are the weights of decoding itself, exact. They say where the
    decoder read, not what the word depends on: `source_effect` measures that. `start` is what the decoder read before
    it wrote.
    """

    loaded: Loaded
    source: Tokens
    start: Tokens
    greedy: Hypothesis
    hypotheses: tuple[Hypothesis, ...]

    def page(self) -> Page:
        return alignment_page(self)

    def run(self, hypothesis: Hypothesis) -> Run:
        """A forward pass that reads the source and writes this hypothesis: what every other question is asked of.

        Its first `len(start) - 1` outcomes are what was forced on the decoder, the others the hypothesis' tokens.
        Raises CutawayError for a hypothesis without a token.
        """
        if not hypothesis.ids:
            raise CutawayError("the hypothesis has no token: there is nothing to look into")
        ids = [*self.start.ids, *hypothesis.ids]
        pieces = [*self.start.pieces, *hypothesis.pieces]
        return Run(self.loaded, self.source, Tokens(ids[:-1], pieces[:-1]), Tokens(ids[1:], pieces[1:]))


def align(
    loaded: Loaded,
    text: str,
    *,
    to: Language | None = None,
    beam: int = 4,
    n_best: int | None = None,
    length_penalty: LengthPenalty | None = None,
) -> Alignment:
    """Translate greedily and by a search of width `beam`, and keep the cross-attention of `n_best` hypotheses of it
    (None: as many as the search is wide).

    Raises CutawayError for a model that does not translate, an empty text, and values out of range.
    """
    translator = Translator(loaded)
    source = translator.prepare(text, to=to)
    if not source.ids:
        raise CutawayError("the text is empty: there is nothing to align")
    one = Search(length_penalty=length_penalty or LengthPenalty(), attention="full")
    many = replace(one, beam=beam, n_best=beam if n_best is None else n_best)
    greedy, searched = (translator.translate([text], to=to, search=search)[0] for search in (one, many))
    start = translator.start(source)
    tokenizer = loaded.require_tokenizer()
    return Alignment(
        loaded,
        Tokens(source.ids, source.pieces),
        Tokens(start, [tokenizer.readable(id) for id in start]),
        greedy.best,
        tuple(searched.hypotheses),
    )


def mean_weights(cross_attention: Tensor, heads: Heads | None = None) -> Tensor:
    """(L, H, T, S) -> (T, S): the mean over chosen heads, or over all layers and heads.

    Raises CutawayError for a layer or head that there is not.
    """
    if heads is None:
        return cross_attention.mean(dim=(0, 1))
    pairs = _pairs(heads, range(cross_attention.shape[0]), range(cross_attention.shape[1]))
    return torch.stack([cross_attention[layer, head] for layer, head in pairs]).mean(dim=0)


def cross_weights(run: Run, heads: Heads | None = None) -> Tensor:
    """Cross-attention (T, S) of the text that a run writes, which may have been given, as a mean over `heads` (None:
    all layers and heads): row t holds the weights with which its outcome t was chosen (Vaswani et al. 2017, §3.2.3).

    Only the layers that are asked for are kept. Raises CutawayError for a model without cross-attention.
    """
    everywhere = place(run, "cross")
    if heads is None:
        return mean_weights(patterns(run, "cross").values)
    pairs = _pairs(heads, everywhere.layers, everywhere.heads)
    layers = sorted({layer for layer, _ in pairs})
    values = patterns(run, "cross", layers=layers).values
    return mean_weights(values, [(layers.index(layer), head) for layer, head in pairs])


def when_read(weights: Tensor) -> Tensor:
    """(..., T, S) -> (..., T, S): the weights of the step that read token t, in the place of the one that chose it.

    They often align better in the lower layers (Chen et al. 2020, §3: Shift-Att). The last token was never read: its
    row is 0.
    """
    return torch.cat([weights[..., 1:, :], torch.zeros_like(weights[..., :1, :])], dim=-2)


def coverage(weights: Tensor) -> Tensor:
    """(T, S) -> (S,): the weight that each source token got from all written tokens together, Σ_t w(t, s) (Tu et al.
    2016, §3.1). Near 0: nobody looked there."""
    return weights.sum(dim=0)


def _pairs(heads: Heads, layers: Sequence[int], every_head: Sequence[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for layer, head in heads:
        chosen("layer", [layer], layers)
        found += [(layer, each) for each in chosen("head", None if head is None else [head], every_head)]
    if not found:
        raise CutawayError("no head was asked for, expected pairs of a layer and a head, or None for all")
    return list(dict.fromkeys(found))
