"""`cutaway inspect … --show neurons` and `--show experts`: feed-forward networks at work on a text."""

from cutaway.cli.views.request import Answer, Request, SideName
from cutaway.errors import CutawayError


def neurons(request: Request) -> Answer:
    """The neurons of one layer that write most at one token."""
    from cutaway.inspection.layers.memory import memory

    options, run = request.options, request.run()
    if options.side == SideName.CROSS:
        raise CutawayError("--side is cross, which is attention: neurons are in encoder or decoder")
    found = memory(
        run,
        -1 if options.layer is None else options.layer,
        request.place(run),
        top=request.top(10),
        words=5,
        token=options.name,
        side=options.side,
    )
    return Answer(found, found.page())


def experts(request: Request) -> Answer:
    """Which experts each token was given to, in every layer that has some, or in one."""
    from cutaway.inspection.layers.routing import routing

    found = routing(request.run())
    layer = request.options.layer
    if layer is None:
        return Answer(found, found.page())
    there = [each.layer for each in found.layers]
    if layer not in there:
        raise CutawayError(
            "--layer is {layer}, expected one with experts: {there}",
            layer=layer,
            there=", ".join(map(str, there)),
        )
    first, *others = [each.page() for each in found.layers if each.layer == layer]
    return Answer(found, first.then(*others))
