"""`cutaway inspect … --show svd`: how a model's matrices stretch space, and their directions read as tokens."""

from functools import partial
from typing import TYPE_CHECKING

from cutaway.cli.terminal import write_table
from cutaway.cli.view_page import heading, labelled, number, progress, remark, title
from cutaway.cli.view_request import Answer, Request
from cutaway.errors import CutawayError

if TYPE_CHECKING:
    from cutaway.inspection.matrices.spectrum import Direction, Reading, Spectrum

WORDS = 4  # tokens at each end of a direction


def svd(request: Request) -> Answer:
    """One parameter by --name, W_QK and W_OV of a head by --layer and --head, or a table of all parameters."""
    from cutaway.inspection.matrices.matrix import parameter_matrix, w_ov, w_qk
    from cutaway.inspection.matrices.spectrum import directions, spectrum

    options, model = request.options, request.loaded.model
    head = options.layer is not None or options.head is not None or options.side is not None
    if options.name is None and not head:
        names = [name for name, weight in model.named_parameters() if weight.ndim == 2]
        all_of_them: list[Spectrum] = []
        for done, name in enumerate(names, start=1):
            all_of_them.append(spectrum(parameter_matrix(model, name)))
            progress("matrices", done, len(names))
        return Answer(all_of_them, partial(_show_all, all_of_them))
    if options.name is not None:
        if head:
            raise CutawayError(
                "--name is a parameter's, --side, --layer and --head a head's: give one of the two"
            )
        matrices = [parameter_matrix(model, options.name)]
    else:
        if options.layer is None or options.head is None:
            raise CutawayError("a head is named by both --layer and --head")
        side = request.side or ("encoder" if request.loaded.config.family == "encoder-only" else "decoder")
        matrices = [part(model, side, options.layer, options.head) for part in (w_qk, w_ov)]
    found = [
        (spectrum(matrix), directions(request.loaded, matrix, count=request.top(3), top=WORDS))
        for matrix in matrices
    ]
    result = [{"spectrum": values, "directions": ways} for values, ways in found]
    return Answer(result, partial(_show_some, found))


def _show_all(found: "list[Spectrum]") -> None:
    title("The matrices of this model")
    rows = [
        (
            f"{each.shape[0]}×{each.shape[1]}",
            f"{float(each.singular_values[0]):.2f}",
            f"{each.effective_rank:.1f}",
            f"{each.stable_rank:.1f}",
            each.name,
        )
        for each in found
    ]
    titles = ("rows×cols", "max σ", "eff.", "stable")
    write_table((*titles, "parameter"), rows, right=titles)
    remark(
        "max σ: the greatest singular value; eff., stable: effective and stable rank; of shapes, not of importance. "
        "One of them: --name NAME; W_QK and W_OV of a head: --layer N --head N."
    )


def _show_some(found: "list[tuple[Spectrum, tuple[Direction, ...]]]") -> None:
    for place, (values, ways) in enumerate(found):
        (heading if place else title)(f"{values.name} ({values.shape[0]} × {values.shape[1]})")
        labelled("formula", values.formula.split(" "))
        sigmas = values.singular_values.tolist()
        shown = [number(sigma) for sigma in sigmas[:8]]
        labelled("σ", [*shown, *(["…", number(sigmas[-1]), f"({len(sigmas)})"] if len(sigmas) > 8 else [])])
        labelled(
            "ranks",
            [
                f"effective {values.effective_rank:.1f},",
                f"stable {values.stable_rank:.1f}",
                f"of {len(sigmas)}",
            ],
        )
        if values.symmetric_share is not None:
            labelled(
                "symmetry", [f"{values.symmetric_share:.2f}", "(1: symmetric, 0.5: random, 0: never mutual)"]
            )
        for caveat in values.caveats:
            labelled("but", caveat.split(" "))
        rows = []
        for way in ways:
            label = f"{100 * way.energy:.1f} %"
            for name, reading in (("rows", way.rows), ("columns", way.columns)):
                if reading is not None:
                    rows.append((f"{way.index} {name}", label, _ends(reading)))
                    label = ""
        if rows:
            write_table(("direction", "energy", "tokens at its two ends"), rows, right=("energy",))
    if any(way.rows or way.columns for _, ways in found for way in ways):
        remark(
            "Directions are read by static token vectors only (approximate: positions, context and norms are left "
            "out). What lies along a row direction is sent to the column direction."
        )


def _ends(reading: "Reading") -> str:
    ends = (" ".join(each.piece for each in end) for end in (reading.positive, reading.negative))
    return "  |  ".join(ends)
