"""`cutaway inspect … --show attention` and `--show rollout`."""

from cutaway.cli.views.request import Answer, Request
from cutaway.page.blocks import Remark, page
from cutaway.words import say

MORE = Remark(say("The weights of one head: --layer N --head N."))


def attention(request: Request) -> Answer:
    """One head's weights token by token, or what all heads measure; in a drawing the patterns of all of them."""
    from cutaway.inspection.attention.head_scores import head_scores
    from cutaway.inspection.attention.patterns import patterns
    from cutaway.inspection.runs.sides import sides

    run, options = request.run(), request.options
    side = request.side or sides(run.model)[-1]
    layers = None if options.layer is None else [options.layer]
    heads = None if options.head is None else [options.head]
    scores, weights = head_scores(run, side, layers, heads), patterns(run, side, layers, heads)
    if layers is not None and heads is not None:
        shown = weights.page().then(scores.page())
    else:
        shown = page(scores.page().title, (*scores.page().blocks, MORE))
        if request.complete:
            shown = shown.then(weights.page())
    return Answer({"scores": scores, "patterns": weights}, shown)


def values(request: Request) -> Answer:
    """Attention times the length of what it weighs, of one head or of all."""
    from cutaway.inspection.attention.value_weights import value_weights
    from cutaway.inspection.runs.sides import sides

    run, options = request.run(), request.options
    layers = None if options.layer is None else [options.layer]
    heads = None if options.head is None else [options.head]
    found = value_weights(run, request.side or sides(run.model)[-1], layers, heads)
    return Answer(found, found.page())


def rollout(request: Request) -> Answer:
    """How the tokens of a stack mix, layer upon layer."""
    from cutaway.inspection.attention.rollout import rollout as roll
    from cutaway.inspection.runs.sides import sides

    run = request.run()
    found = roll(run, request.side or sides(run.model)[0])
    return Answer(found, found.page())
