"""`cutaway inspect … --show svd` and `--show rank`: how a model's matrices stretch space, and what depends on it."""

from typing import TYPE_CHECKING

from cutaway.cli.terminal import progress
from cutaway.cli.views.request import Answer, Request
from cutaway.errors import CutawayError
from cutaway.words import say

if TYPE_CHECKING:
    from cutaway.inspection.matrices.matrix import Matrix
    from cutaway.inspection.matrices.spectrum import Spectrum

WORDS = 4  # tokens at each end of a direction
DEFAULT_RANKS = (0, 1, 2, 4, 8, 16)  # thirty-seconds of the full rank


def svd(request: Request) -> Answer:
    """One parameter by --name, W_QK and W_OV of a head by --layer and --head, or a table of all parameters."""
    from cutaway.inspection.matrices.matrix import parameter_matrix
    from cutaway.inspection.matrices.spectrum import directions, spectrum
    from cutaway.inspection.pages.matrices import all_matrices_page, matrices_page

    options, model = request.options, request.loaded.model
    if not {"name", "layer", "head", "side"} & set(options.given):
        names = [name for name, weight in model.named_parameters() if weight.ndim == 2]
        every: list[Spectrum] = []
        for done, name in enumerate(names, start=1):
            every.append(spectrum(parameter_matrix(model, name)))
            progress(say("matrices"), done, len(names))
        return Answer(every, all_matrices_page(every))
    found = [
        (spectrum(matrix), directions(request.loaded, matrix, count=request.top(3), top=WORDS))
        for matrix in _matrices(request)
    ]
    result = [{"spectrum": values, "directions": ways} for values, ways in found]
    return Answer(result, matrices_page(found))


def rank(request: Request) -> Answer:
    """What a run loses when one matrix is replaced by its nearest of lower rank, for several ranks."""
    from cutaway.inspection.matrices.low_rank import low_rank
    from cutaway.inspection.pages.low_rank import low_ranks_page

    if not {"name", "layer", "head"} & set(request.options.given):
        raise CutawayError(
            "--show rank needs a matrix: --name with a parameter's name, or --layer and --head of a head "
            "(--show svd lists the parameters)"
        )
    matrices, given = _matrices(request), request.ranks
    run = request.run()
    found = []
    for matrix in matrices:
        full = len(matrix.svd()[1])
        ranks = given or tuple(sorted({full * part // 32 for part in DEFAULT_RANKS}))
        if max(ranks) > full or min(ranks) < 0:
            raise CutawayError(
                "--ranks is {ranks}, expected numbers from 0 to {full}, the full rank of {name}",
                ranks=request.options.ranks,
                full=full,
                name=matrix.name,
            )
        found.append(low_rank(run, matrix, ranks))
    return Answer(found, low_ranks_page(*(each.results for each in found)))


def _matrices(request: Request) -> "list[Matrix]":
    """The parameter of --name, or the two maps of a head."""
    from cutaway.inspection.matrices.matrix import parameter_matrix, w_ov, w_qk
    from cutaway.inspection.runs.sides import sides

    options, model = request.options, request.loaded.model
    if options.name is not None:
        if {"layer", "head", "side"} & set(options.given):
            raise CutawayError(
                "--name is a parameter's, --side, --layer and --head a head's: give one of the two"
            )
        return [parameter_matrix(model, options.name)]
    if options.layer is None or options.head is None:
        raise CutawayError("a head is named by both --layer and --head")
    side = request.side or sides(model)[-1]
    return [part(model, side, options.layer, options.head) for part in (w_qk, w_ov)]
