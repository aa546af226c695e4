"""`cutaway inspect … --show lens`: what each layer would say, were it the last."""

from cutaway.cli.views.request import Answer, Request
from cutaway.page.blocks import Remark
from cutaway.words import say

MORE = Remark(say("All readings at one token: --index N, from 0."))


def lens(request: Request) -> Answer:
    """The best reading of every layer at every token, or more of them at one."""
    from cutaway.inspection.layers.lens import lens as read
    from cutaway.inspection.pages.lens import LISTED, lens_at_page, lens_page
    from cutaway.inspection.runs.selection import layer_number, place
    from cutaway.inspection.runs.stacks import stack_named

    run, options = request.run(), request.options
    position = request.position()
    layers = None
    if options.layer is not None:
        side = stack_named(run, None)
        layers = [
            1 + layer_number(len(side.stack.layers), options.layer, f"the {side.name}")
        ]  # blocks passed
    found = read(run, top=request.top(5), layers=layers)
    if position is None:
        return Answer(found, lens_page(found, MORE))
    return Answer(found, lens_at_page(found, place(found.tokens, position), request.top(LISTED)))
