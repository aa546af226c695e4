"""`cutaway inspect … --show align`: where each word of a translation looked, and what it depends on."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from cutaway.cli.alignment import draw
from cutaway.cli.terminal import columns, reads_chinese, shows_unicode, write, write_table
from cutaway.cli.view_page import heading, nats, remark, share, title
from cutaway.cli.view_request import Answer, Request
from cutaway.text.display import truncate

if TYPE_CHECKING:
    from torch import Tensor

    from cutaway.inspection.alignment.hypotheses import Alignment
    from cutaway.inspection.alignment.source_effect import Agreement, SourceEffect
    from cutaway.inspection.runs.run import Run

LISTED = 4  # hypotheses


def align(request: Request) -> Answer:
    from cutaway.inspection.alignment.hypotheses import align as search
    from cutaway.inspection.alignment.hypotheses import cross_weights
    from cutaway.inspection.alignment.source_effect import agreement, source_effect

    options = request.options
    if options.target is None:
        top = request.top(LISTED)
        found = search(request.loaded, request.text, to=options.to, beam=max(LISTED, top), n_best=top)
        run = found.run(found.hypotheses[0])
    else:
        found, run = None, request.run()
    weights = cross_weights(run, _heads(request))
    effect = source_effect(run)
    agree = agreement(weights, effect.effect)
    result = {"weights": weights, "effect": effect, "agreement": agree, "search": found}
    return Answer(result, lambda: _show(request, run, weights, effect, agree, found))


def _heads(request: Request) -> list[tuple[int, int | None]] | None:
    layer, head = request.options.layer, request.options.head
    if layer is None:
        return None if head is None else [(each, head) for each in range(request.loaded.config.n_layers)]
    return [(layer, head)]


def _show(
    request: Request,
    run: "Run",
    weights: "Tensor",
    effect: "SourceEffect",
    agree: "Agreement",
    found: "Alignment | None",
) -> None:
    assert run.source is not None
    layer, head = request.options.layer, request.options.head
    title(
        f"Where the decoder looked ({'all layers' if layer is None else f'layer {layer}'}, "
        f"{'mean of all heads' if head is None else f'head {head}'})"
    )
    for line in draw(
        run.source.pieces,
        run.outcome.pieces,
        weights.tolist(),
        columns=columns(),
        unicode=shows_unicode(),
        chinese=reads_chinese(),
    ):
        write(line)
    heading("What each token depends on")
    rows = []
    for t, piece in enumerate(run.outcome.pieces):
        looked = _best(run.source.pieces, weights[t], share)
        needed = _best(run.source.pieces, effect.effect[t], nats)
        rows.append((truncate(piece, 14), share(float(effect.log_probs[t].exp())), looked, needed))
    write_table(("token", "probability", "looked at", "depends on (nats)"), rows, right=("probability",))
    remark(
        "looked at: the source tokens with most cross-attention. depends on: how far the token's log-probability "
        "falls when a source token is hidden by the mask; dependence, not purpose."
    )
    if agree.mean is not None:
        remark(
            f"The two put the source tokens in the same order by ρ = {agree.mean:.2f} (Spearman, mean of rows)."
        )
    if found is not None:
        heading("What the search found")
        listed = [(f"beam {place}", each) for place, each in enumerate(found.hypotheses, start=1)]
        rows = [(name, f"{each.score:.3f}", each.text) for name, each in [*listed, ("greedy", found.greedy)]]
        write_table(("search", "score", "text"), rows, right=("score",))


def _best(pieces: list[str], values: "Tensor", shown: Callable[[float], str]) -> str:
    """The two source pieces of greatest value."""
    best = values.topk(min(2, len(pieces)))
    return "  ".join(
        f"{truncate(pieces[place], 12)} {shown(value)}"
        for value, place in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    )
