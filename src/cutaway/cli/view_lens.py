"""`cutaway inspect … --show lens`: what each layer would say, were it the last."""

from itertools import islice
from typing import TYPE_CHECKING

from cutaway.cli.terminal import columns, write, write_table
from cutaway.cli.view_page import remark, share, title
from cutaway.cli.view_request import Answer, Request
from cutaway.text.display import truncate

if TYPE_CHECKING:
    from cutaway.inspection.layers.lens import Lens

CELL = 11  # columns of one reading, the gap to the next included
PIECE = 8  # columns that a piece may take


def lens(request: Request) -> Answer:
    from cutaway.inspection.layers.lens import lens as read
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
    found = read(
        run,
        top=request.top(5),
        layers=layers,
    )
    where = None if position is None else place(found.tokens, position)
    return Answer(found, lambda: _grid(found) if where is None else _column(found, where, options.top))


def _grid(found: "Lens") -> None:
    """Tokens down, layers across, in blocks of layers as wide as the terminal."""
    title(f"What each layer of the {found.side} would say, were it the last")
    room = columns() - 2 * (PIECE + 2)
    size = max(1, room // CELL)
    for first in range(0, len(found.layers), size):
        rows_of_lens = range(first, min(first + size, len(found.layers)))
        if first:
            write()
        rows = [
            (
                truncate(found.tokens.pieces[t], PIECE),
                *(truncate(found.pieces[n][t][0], PIECE) for n in rows_of_lens),
                truncate(found.outcome.pieces[t], PIECE),
            )
            for t in range(len(found.tokens))
        ]
        titles = [_layer(found.layers[n]) for n in rows_of_lens]
        write_table(("reads", *titles, "stands" if found.side == "encoder" else "writes"), rows)
    _explained(found)
    remark("All readings at one token: --index N, from 0.")


def _column(found: "Lens", t: int, top: int | None) -> None:
    """One token: the best readings of each layer, `top` or as many as a line holds, and the place of what really
    stands there."""
    shown = max(1, (columns() - 33) // 15) if top is None else top
    title(f"Token {t}, {found.tokens.pieces[t]}: what each layer would say, were it the last")
    rows = []
    for n, layer in enumerate(found.layers):
        best = zip(found.pieces[n][t], found.log_probs[n, t].exp().tolist(), strict=True)
        rows.append(
            (
                _layer(layer),
                f"{int(found.outcome_ranks[n, t]):,}",
                share(float(found.outcome_log_probs[n, t].exp())),
                "  ".join(f"{truncate(piece, PIECE + 4)} {share(p)}" for piece, p in islice(best, shown)),
            )
        )
    outcome = truncate(found.outcome.pieces[t], PIECE + 4)
    write_table(
        ("after", f"rank of {outcome}", "prob.", "most probable"), rows, right=("prob.", f"rank of {outcome}")
    )
    _explained(found)


def _layer(passed: int) -> str:
    return "embedding" if passed == 0 else f"layer {passed - 1}"


def _explained(found: "Lens") -> None:
    remark(
        "Read by the model's own last norm and output matrix; no layer but the last was trained to be read so: a "
        "reading, not a thought. The reading after the last layer is what the model says."
    )
    if found.approximate is not None:
        remark(f"Approximate: {found.approximate}.")
