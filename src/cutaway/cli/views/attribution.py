"""`cutaway inspect … --show logit`, `--show gradients` and `--show similarity`: what a number is made of."""

from cutaway.cli.terminal import progress
from cutaway.cli.views.request import Answer, Request
from cutaway.errors import CutawayError
from cutaway.words import say

TOLERANCE = 0.02  # what the integral may miss: an answer in a few seconds, which says how much it missed
POINTS = say("points of the integral")


def logit(request: Request) -> Answer:
    """Every component's share of one logit: of the token of --name at --index, against another by --against."""
    from cutaway.inspection.attribution.direct_logit import attribute_logit
    from cutaway.inspection.pages.direct_logit import TOP, logit_page

    run, options = request.run(), request.options
    found = attribute_logit(run, request.place(run), options.name, against=options.against)
    return Answer(found, logit_page(found, request.top(TOP)))


def gradients(request: Request) -> Answer:
    """Gradient × input and integrated gradients of one log-probability, side by side; --against names the token that
    the way of the integral starts from, in the place of zeros."""
    from cutaway.inspection.attribution.gradients import gradient_x_input
    from cutaway.inspection.attribution.integrated_gradients import MOST_POINTS, integrated_gradients
    from cutaway.inspection.pages.input_attribution import input_attributions_page

    run, options = request.run(), request.options
    position = request.place(run)
    first = gradient_x_input(run, position, options.name)
    second = integrated_gradients(
        run,
        position,
        options.name,
        baseline=options.against,
        tolerance=TOLERANCE,
        told=lambda points: progress(POINTS, points, MOST_POINTS),
    )
    assert second.points is not None
    progress(POINTS, second.points, second.points)
    found = [first, second]
    return Answer(found, input_attributions_page(found))


def similarity(request: Request) -> Answer:
    """Which pairs of tokens the cosine of the text and that of --other is made of."""
    from cutaway.inspection.attribution.similarity import attribute_similarity
    from cutaway.inspection.pages.similarity import TOP, similarity_page

    other = request.options.other
    if other is None:
        raise CutawayError('--show similarity compares two texts: give the second by --other "…"')
    found = attribute_similarity(request.loaded, request.text, other)
    return Answer(found, similarity_page(found, request.top(TOP)))
