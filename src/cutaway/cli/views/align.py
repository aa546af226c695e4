"""`cutaway inspect … --show align`: where each word of a translation looked, and what it depends on."""

from typing import TYPE_CHECKING

from cutaway.cli.views.request import Answer, Request
from cutaway.errors import CutawayError

if TYPE_CHECKING:
    from cutaway.inspection.alignment.error_rate import Gold

LISTED = 4  # hypotheses


def align(request: Request) -> Answer:
    from cutaway.inspection.alignment.gold import compare_with_gold
    from cutaway.inspection.alignment.hypotheses import align as search
    from cutaway.inspection.alignment.hypotheses import cross_weights
    from cutaway.inspection.alignment.source_effect import agreement, source_effect
    from cutaway.inspection.attention.patterns import patterns
    from cutaway.inspection.pages.alignment import looked_page, search_page

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
    every_head = patterns(run, "cross").values if request.complete else None
    page = looked_page(weights, effect, agree, options.layer, options.head, every_head)
    if found is not None:
        page = page.then(search_page(found))
    gold = None if options.gold is None else compare_with_gold(run, _links(options.gold))
    if gold is not None:
        page = page.then(gold.page())
    result = {"weights": weights, "effect": effect, "agreement": agree, "search": found, "gold": gold}
    return Answer(result, page)


def _links(text: str) -> "Gold":
    from cutaway.inspection.alignment.error_rate import read_pharaoh

    gold = read_pharaoh(text, "--gold")
    if not gold.possible:
        raise CutawayError(
            "--gold is empty, expected links between words, source-target from 0: '0-0 1-2 2?1'"
        )
    return gold


def _heads(request: Request) -> list[tuple[int, int | None]] | None:
    layer, head = request.options.layer, request.options.head
    if layer is None:
        return None if head is None else [(each, head) for each in range(request.loaded.config.n_layers)]
    return [(layer, head)]
