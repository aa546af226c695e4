"""Which way to the text: greedy, sampled, or by beam search; one value that all commands share."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cutaway.decode.beam import beam_search
from cutaway.decode.generate import Generated, Limits, generate
from cutaway.decode.length_penalty import LengthPenalty
from cutaway.decode.sampling import Sampling, row_seed
from cutaway.decode.stepping import Attention, C, StepModel
from cutaway.errors import CutawayError


@dataclass(frozen=True, kw_only=True)
class Search:
    """How results are found, and what is kept of the way there. `beam` 1 is greedy, or samples when `sampling` has
    a temperature; scores are normalised by `length_penalty` either way."""

    beam: int = 1
    n_best: int = 1
    length_penalty: LengthPenalty = field(default_factory=LengthPenalty)
    sampling: Sampling = field(default_factory=Sampling)
    alternatives: int = 0  # how many of the best tokens to keep at each place
    attention: Attention = None  # the cross-attention of an encoder-decoder

    def __post_init__(self) -> None:
        if self.beam != 1 and not self.sampling.greedy:
            raise CutawayError(
                "temperature is {temperature} and beam is {beam}: sampling needs beam 1",
                temperature=self.sampling.temperature,
                beam=self.beam,
            )
        if self.beam == 1 and self.n_best != 1:
            raise CutawayError(
                "n_best is {n_best}, expected 1: it cannot exceed the beam's width (1)", n_best=self.n_best
            )

    def run(
        self,
        model: StepModel[C],
        cache: C,
        prompts: Sequence[Sequence[int]],
        *,
        rows: Sequence[int],
        limits: Sequence[Limits],
        eos_id: Sequence[int],
        forbidden: Sequence[int],
    ) -> list[list[Generated]]:
        """`n_best` results of every prompt. `rows` are the prompts' places in the whole request, which decide what
        they draw; the rest as in `generate` and `beam_search`."""
        if self.beam != 1:
            return beam_search(
                model,
                cache,
                prompts,
                beam=self.beam,
                n_best=self.n_best,
                limits=limits,
                eos_id=eos_id,
                length_penalty=self.length_penalty,
                repetition_penalty=self.sampling.repetition_penalty,
                forbidden=forbidden,
                alternatives=self.alternatives,
                attention=self.attention,
            )
        found = generate(
            model,
            cache,
            prompts,
            limits=limits,
            eos_id=eos_id,
            sampling=self.sampling,
            seeds=[row_seed(self.sampling.seed, row) for row in rows],
            forbidden=forbidden,
            alternatives=self.alternatives,
            attention=self.attention,
        )
        return [
            [replace(each, score=each.score / self.length_penalty.divisor(len(each.ids)))] for each in found
        ]
