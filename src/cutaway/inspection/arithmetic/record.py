"""All values of one forward pass, and on demand what lies between them."""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from operator import attrgetter

import torch
from torch import Tensor

from cutaway.errors import CutawayError, TooLarge
from cutaway.inspection.runs import Run, Tokens
from cutaway.inspection.wiring import Side, is_cross, of_source, tap_names
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.head import Head
from cutaway.tap import TAPS, Edit
from cutaway.words import Phrase, Text, say

# What comes after the taps, by its whole name, as TAPS has it.
RESULTS: dict[str, tuple[str, Phrase]] = {
    "probabilities": ("B T V", say("how probable each word is: softmax of the logits")),
    "log_probabilities": ("B T V", say("the natural logarithms of the probabilities")),
    "token_loss": ("B T", say("the training loss of each token, with label smoothing")),
    "loss": ("", say("the training loss of the text")),
    "score": ("", say("what a search compares: the log-probability of all that was written, by its length")),
    "pooled": ("B D", say("the text's vector, made of those of its tokens")),
    "sentence_vector": ("B D", say("the text's vector, of length 1")),
}
# What lies between taps, by the last part of its name, as TAPS has it.
BETWEEN: dict[str, tuple[str, Phrase]] = {
    "sum": ("B T D", say("all that is added up here, before the norm")),
    "q_proj": ("B T HE", say("queries of all heads, before each head's norm")),
    "k_proj": ("B S KE", say("keys of all heads, before each head's norm")),
    "up": ("B T F", say("what the gate of a gated feed-forward network is multiplied with")),
    "out_norm": ("B T D", say("what a sublayer writes, normalised before it is added")),
    "dense": ("B T D", say("the first matrix of a masked model's output head")),
    "norm": ("B T D", say("what the output matrix of a masked model reads")),
}

MOST = 4 << 30  # bytes that a whole record may take: half the memory of a small laptop


class Record:
    """The value of every tap of one run, and on demand what lies between taps, made by the model's own modules.

    With `watch` only what it names is recorded, each tap reduced as it says, and what lies between is made of that.
    Raises TooLarge before the pass where all values together would take more than MOST.
    """

    def __init__(
        self, run: Run, edit: Mapping[str, Edit] | None = None, watch: Mapping[str, Edit] | None = None
    ):
        self.loaded, self.model, self.config = run.loaded, run.model, run.model.config
        self.source, self.target, self.outcome = run.source, run.target, run.outcome
        if self.model.training and self.config.dropout:
            raise CutawayError(
                "the model is in training mode, where dropout makes every number random; call model.eval() first"
            )
        self.inputs = run.inputs  # ids, or source and target: (1, T)
        if watch is None:
            _check_size(run)
        if watch is not None and "head.logits" not in watch:
            trace = run.seen(watch)
        else:
            forward = run.forward if isinstance(self.model.head, Head) else run.hidden
            _, trace = forward(["*"] if watch is None else watch, edit)
        self.taps = {name: calls[0] for name, calls in trace.calls.items()}
        self._values: dict[str, Tensor] = {**self.inputs, **self.taps}
        self._between: dict[str, Callable[[], Tensor]] = {}
        # Every name of every parameter (tied ones have several), and the tables that are fixed and not learned.
        self.parameters = dict(self.model.named_parameters(remove_duplicate=False))
        self.tables = dict(self.model.named_buffers())
        kinds = {value.dtype for value in (*self.taps.values(), *self.model.parameters())}
        self.dtype = max(
            filter(attrgetter("is_floating_point"), kinds), key=lambda kind: torch.finfo(kind).eps
        )

    def add(self, name: str, value: Callable[[], Tensor]) -> None:
        """Let `name` be a value that no tap shows; it is made when first asked for."""
        self._between[name] = value

    @property
    def names(self) -> tuple[str, ...]:
        """Inputs, taps, and what lies between and after them; parameters and fixed tables are not listed."""
        return tuple(dict.fromkeys((*self._values, *self._between)))

    @torch.no_grad()
    def tensor(self, name: str) -> Tensor | None:
        """The whole tensor of that name, a parameter or fixed table too, or None where there is none."""
        if name not in self._values and name in self._between:
            self._values[name] = self._between[name]()
        for known in (self._values, self.parameters, self.tables):
            if name in known:
                return known[name].detach()
        return None

    def need(self, name: str) -> Tensor:
        value = self.tensor(name)
        assert value is not None, f"{name} is not a value of this model"
        return value

    def has(self, name: str) -> bool:
        """Whether the model has a value or parameter of that name."""
        return self.tensor(name) is not None

    def ids_of(self, side: Side) -> str:
        """The name of the ids that a side's stack reads."""
        if not isinstance(self.model, EncoderDecoder):
            return "ids"
        return "source" if side == "encoder" else "target"

    def tokens_of(self, name: str, *, keys: bool = False) -> Tokens:
        """The tokens that the positions of a value stand for; `keys`: those that its attention reads."""
        reads_source = of_source(name) or (keys and is_cross(name))
        tokens = self.source if reads_source or self.target is None else self.target
        assert tokens is not None
        return tokens

    def origin(self, name: str) -> Phrase:
        """What a value without a rule is."""
        if name in self.parameters:
            return say("a parameter: learned, and read from the model's file")
        if name in self.tables:
            return say("a fixed table: computed when the model was built, not learned")
        return say("a token's id: what the model was given")

    def about(self, name: str) -> Text:
        """What a value is, in words; nothing where its name is all there is to say."""
        if name in self.parameters:
            return say("learned")
        if name in self.tables:
            return say("a fixed table")
        if name in self.inputs:
            return say("the token's id")
        listed = self._listed(name)
        return "" if listed is None else listed[1]

    def dims(self, name: str) -> tuple[str, ...]:
        """The letters of a value's dimensions, as TAPS has them; of a parameter, a table or an input none."""
        listed = self._listed(name)
        return () if listed is None else tuple(listed[0].split())

    def _listed(self, name: str) -> tuple[str, Phrase] | None:
        if name in RESULTS:
            return RESULTS[name]
        return (TAPS if name in self.taps else BETWEEN).get(name.rpartition(".")[2])


def _check_size(run: Run) -> None:
    """Raises TooLarge where all values of a run take more than MOST bytes, with how many tokens would fit."""
    whole = recorded_bytes(run)
    if whole <= MOST:
        return
    tokens = max(len(each) for each in (run.source, run.target) if each is not None)
    fitting = bisect_left(range(tokens), True, key=lambda kept: recorded_bytes(run, kept / tokens) > MOST)
    raise TooLarge(
        "all values of this run take {whole:.1f} GB, expected at most {most:.1f}; a text of about {fitting} tokens "
        "would fit, and this one has {tokens}",
        whole=whole / 1e9,
        most=MOST / 1e9,
        fitting=max(0, fitting - 1),
        tokens=tokens,
    )


def recorded_bytes(run: Run, share: float = 1.0) -> int:
    """Bytes of the values of all taps of one pass, where the texts have this share of their tokens."""
    read = {
        of: len(tokens) * share
        for of, tokens in ((True, run.source), (False, run.target))
        if tokens is not None
    }
    size = next(iter(run.model.parameters())).element_size()
    total = 0.0
    for name in tap_names(run.model):
        ours = of_source(name) or run.target is None
        config = run.model.config.encoder_side if ours and run.target is not None else run.model.config
        letters = {
            "B": 1,
            "T": read[ours],
            "S": read[ours or is_cross(name)],
            "D": config.d_model,
            "H": config.n_heads,
            "K": config.kv_heads,
            "E": config.head_width,
            "F": config.expert_width if ".experts." in name else config.d_ff,
            "X": config.n_experts,
            "A": config.n_experts_per_token,
            "V": config.vocab_size,
        }
        numbers = math.prod(letters[each] for each in TAPS[name.rpartition(".")[2]][0].split())
        if ".experts." in name:
            # of all tokens an expert is given those that chose it, on average
            numbers *= config.n_experts_per_token / config.n_experts
        total += size * numbers
    return int(total)
