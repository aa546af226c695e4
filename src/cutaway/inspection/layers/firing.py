"""Where in a text one neuron of a feed-forward network fires."""

# Shapes: T tokens.

from dataclasses import dataclass

from torch import Tensor

from cutaway.inspection.layers.network import activation_of
from cutaway.inspection.pages.feed_forward import neuron_firing_page
from cutaway.inspection.runs import Run, Tokens, stack_named
from cutaway.inspection.wiring import one_of
from cutaway.page.blocks import Page
from cutaway.page.drawn import Drawn
from cutaway.words import say


@dataclass(frozen=True, repr=False)
class NeuronFiring(Drawn):
    """The activation of one neuron at every token that its stack reads: the tap `hidden`, after the activation function
    and, where the network is gated, the product: the memory coefficient of its key (Geva et al. 2021, §2)."""

    side: str  # "encoder" or "decoder"
    layer: int
    expert: int | None  # that the neuron belongs to; None in a layer with one plain network
    neuron: int
    tokens: Tokens  # T
    activations: Tensor  # (T,), NaN at tokens that the expert was not given

    def page(self) -> Page:
        return neuron_firing_page(self)


def firing(
    run: Run, layer: int, neuron: int, *, expert: int | None = None, side: str | None = None
) -> NeuronFiring:
    """Where one neuron fires. `side` is "encoder" or "decoder"; None: the one that becomes words.

    Raises CutawayError for a layer or neuron that is not there, an expert in a layer without, and none in one with.
    """
    found = stack_named(run, side)
    number = one_of(say("layer"), layer, len(found.stack.layers))
    activations = activation_of(run, found, number, neuron, expert)
    return NeuronFiring(found.name, number, expert, neuron, found.tokens, activations)
