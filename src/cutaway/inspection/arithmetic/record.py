"""All values of one forward pass, and the sheet on which one of them is worked out again."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.inspection.arithmetic.rounding import Rounded
from cutaway.inspection.runs import Run
from cutaway.nn.head import Head
from cutaway.tap import Edit
from cutaway.words import Phrase, Text

Index = tuple[int | slice, ...]
Numbers = tuple[int, ...]  # an index of a single number


@dataclass(frozen=True)
class Operand:
    """What a formula reads: one number or a line of numbers of this very run, or a constant of the architecture.

    `name` is a full tap name, a parameter's name or one of the further names that `arithmetic.explain` knows; None for
    a constant, whose `meaning` says where it is from. `index` says which elements: a slice runs over a dimension.
    """

    symbol: str  # as the formula writes it
    name: str | None
    index: Index
    values: Tensor  # float64, one dimension for each slice of the index
    meaning: Text = ""

    @property
    def parents(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Name and full index of each number in `values`, in their order; none for a constant."""
        if self.name is None:
            return
        sizes = iter(self.values.shape)
        ranges = [
            range(i.start or 0, (i.start or 0) + next(sizes)) if isinstance(i, slice) else (i,)
            for i in self.index
        ]
        for index in itertools.product(*ranges):
            yield self.name, index


class Record:
    """The value of every tap of one run, and on demand what lies between taps, made by the model's own modules."""

    def __init__(self, run: Run, edit: Mapping[str, Edit] | None = None):
        self.loaded, self.model, self.config = run.loaded, run.model, run.model.config
        self.source, self.target, self.outcome = run.source, run.target, run.outcome
        if self.model.training and self.config.dropout:
            raise CutawayError(
                "the model is in training mode, where dropout makes every number random; call model.eval() first"
            )
        inputs = run.inputs
        _, trace = (run.forward if isinstance(self.model.head, Head) else run.hidden)(["*"], edit)
        self.taps = {name: calls[0] for name, calls in trace.calls.items()}
        self.inputs = inputs  # ids, or source and target: (1, T)
        self._values: dict[str, Tensor] = {**inputs, **self.taps}
        self._between: dict[str, Callable[[], Tensor]] = {}
        # every name of every parameter (tied ones have several), and the tables that are fixed and not learned
        self.parameters = dict(self.model.named_parameters(remove_duplicate=False))
        self.tables = dict(self.model.named_buffers())
        kinds = {value.dtype for value in (*self.taps.values(), *self.model.parameters())}
        self.dtype = max(
            (kind for kind in kinds if kind.is_floating_point), key=lambda kind: torch.finfo(kind).eps
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
        if name in self._values:
            return self._values[name]
        if name in self.parameters:
            return self.parameters[name].detach()
        return self.tables.get(name)

    def need(self, name: str) -> Tensor:
        value = self.tensor(name)
        assert value is not None, f"{name} is not a value of this model"
        return value

    def sheet(self) -> "Sheet":
        return Sheet(self)


class Sheet:
    """The operands of one number, in the order in which its formula takes them."""

    def __init__(self, record: Record):
        self._record = record
        self.operands: list[Operand] = []
        self.note: Phrase | None = None

    def take(self, symbol: str, name: str, *index: int | slice, meaning: Text = "") -> Rounded:
        """Numbers of this run, exact as they are."""
        values = self._record.need(name)[index].detach().to("cpu", torch.float64)
        self.operands.append(Operand(symbol, name, index, values, meaning))
        return Rounded(values, 0.0, self._record.dtype)

    def whole(self, symbol: str, name: str, *index: int, meaning: Text = "") -> int:
        """A whole number of this run, such as an id."""
        return int(self.take(symbol, name, *index, meaning=meaning).value)

    def constant(self, symbol: str, value: float, meaning: Text) -> Rounded:
        """A number of the architecture, which the model rounds to its own type."""
        number = torch.tensor(float(value), dtype=torch.float64)
        self.operands.append(Operand(symbol, None, (), number, meaning))
        return Rounded(number, number.abs() * torch.finfo(self._record.dtype).eps / 2, self._record.dtype)

    def exact(self, value: float, error: float = 0.0) -> Rounded:
        """A result that is more than a chain of rounded operations, with a bound of its own."""
        return Rounded(torch.tensor(float(value), dtype=torch.float64), error, self._record.dtype)

    def affine(self, x: Rounded, layer: str, row: int, letter: str) -> Rounded:
        """Element `row` of the linear layer of that path: Σ_d x[d]·W[row, d], plus b[row] where it has a bias."""
        result = x.flatten().dot(self.take(f"W_{letter}", f"{layer}.weight", row, slice(None)))
        if self._record.tensor(f"{layer}.bias") is not None:
            result = result + self.take(f"b_{letter}", f"{layer}.bias", row)
        return result

    def replace(self, values: list[float]) -> None:
        """Give the operands taken so far, which are single numbers, other values."""
        self.operands = [
            replace(operand, values=torch.tensor(value, dtype=torch.float64))
            for operand, value in zip(self.operands, values, strict=True)
        ]

    def has(self, name: str) -> bool:
        """Whether the model has a value or parameter of that name."""
        return self._record.tensor(name) is not None


# (sheet, index) -> formula and result. The sheet notes what was taken.
Step = Callable[[Sheet, Numbers], tuple[str, Rounded]]
Steps = dict[str, Step]
