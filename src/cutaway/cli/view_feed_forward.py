"""`cutaway inspect … --show neurons` and `--show experts`: feed-forward networks at work on a text."""

from functools import partial
from typing import TYPE_CHECKING

from cutaway.cli.terminal import columns, shows_unicode, write_table
from cutaway.cli.view_page import heading, labelled, remark, share, title
from cutaway.cli.view_request import Answer, Request, SideName
from cutaway.errors import CutawayError
from cutaway.text.display import truncate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cutaway.inspection.layers.memory import Memory, Word
    from cutaway.inspection.layers.routing import LayerRouting, Routing

BAR = 30  # columns of a load of 1


def neurons(request: Request) -> Answer:
    from cutaway.inspection.layers.memory import memory
    from cutaway.inspection.runs.forced import masked_positions

    options, run, position = request.options, request.run(), request.position()
    if position is None:
        gaps = masked_positions(run) if run.target is None else []
        position = gaps[0] if gaps else -1
    if options.side == SideName.CROSS:
        raise CutawayError("--side is cross, which is attention: neurons are in encoder or decoder")
    found = memory(
        run,
        -1 if options.layer is None else options.layer,
        position,
        top=request.top(10),
        words=5,
        token=options.name,
        side=options.side,
    )
    return Answer(found, partial(_show_neurons, found))


def _show_neurons(found: "Memory") -> None:
    title(
        f"Neurons of {found.side} layer {found.layer} that write most at token {found.position}, {found.piece}"
    )
    experts = found.neurons[0].expert is not None
    words = bool(found.before)
    titles = [
        "neuron",
        "weight",
        "length",
        *(["logit", "promotes (suppresses, where weight < 0)"] if words else []),
    ]
    rows: list[list[str]] = []
    for each in found.neurons:
        name = f"{each.expert}:{each.number}" if experts else str(each.number)
        row = [name, f"{each.coefficient:#.4g}", f"{each.strength:#.4g}"]
        if words:
            assert each.logit is not None
            row += [f"{each.logit:+.3f}", "  ".join(truncate(word.piece, 12) for word in each.promotes)]
        rows.append(row)
    write_table(titles, rows, right=titles[:4])
    if words:
        heading("What the model would say here")
        labelled("before", _words(found.before))
        labelled("after", _words(found.after))
        remark(
            "weight: what multiplies the neuron's value vector, length: of what it writes, logit: its direct part in "
            f"the logit of '{found.token}'. promotes: the tokens that one unit of it favours by the way straight to "
            "the output; later layers are not in it."
        )
    else:
        remark("weight: what multiplies the neuron's value vector, length: of what it writes.")
    if found.approximate is not None:
        remark(f"To keep in mind: {found.approximate}.")


def _words(words: "Sequence[Word]") -> list[str]:
    from math import exp

    return [f"{truncate(word.piece, 12)} {share(exp(word.value))} " for word in words]


def experts(request: Request) -> Answer:
    from cutaway.inspection.layers.routing import routing

    found = routing(request.run())
    layer = request.options.layer
    there = [each.layer for each in found.layers]
    if layer is not None and layer not in there:
        raise CutawayError(f"--layer is {layer}, expected one with experts: {', '.join(map(str, there))}")
    shown = [each for each in found.layers if layer in (None, each.layer)]
    return Answer(found, partial(_show_experts, found, shown))


def _show_experts(found: "Routing", shown: "list[LayerRouting]") -> None:
    for place, each in enumerate(shown):
        (heading if place else title)(
            f"{each.side} layer {each.layer}: {found.n_per_token} of {found.n_experts} experts for each token"
        )
        rows = []
        for t, piece in enumerate(each.tokens.pieces):
            chosen = zip(each.chosen[t].tolist(), each.weights[t].tolist(), strict=True)
            rows.append(
                (
                    truncate(piece, 14),
                    "  ".join(f"{expert} {share(weight)}" for expert, weight in chosen),
                    share(float(each.runner_up[t])),
                )
            )
        write_table(("token", "experts and weights", "runner-up"), rows, right=("runner-up",))
        mark = "█" if shows_unicode() else "#"
        room = min(BAR, columns() - 40)
        loads = [
            (str(expert), str(count), share(load), mark * round(room * load))
            for expert, (count, load) in enumerate(zip(each.counts.tolist(), each.load.tolist(), strict=True))
        ]
        write_table(("expert", "tokens", "load", ""), loads, right=("expert", "tokens", "load"))
        labelled("balance", [f"{each.balance:.3f}", "(1 even)"])
        labelled("evenness", [f"{each.evenness:.3f}", "(entropy of the load, 1 even)"])
    if found.dense:
        remark(f"Layers without experts: {', '.join(found.dense)}.")
    remark(
        "runner-up: the probability of the best expert that was not chosen. On one text a load is uneven by chance too."
    )
