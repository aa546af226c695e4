"""A rule is a formula as it is written, and where its symbols are read; one engine works all of them out.

    reads = {"q": f"{path}.q", "k": f"{path}.k"}
    Rule("scores[h,t,s]", "Σ_e q[h,t,e] · k[g,s,e]", reads, {"g": lambda at: at["h"] // 2})

The left side names the places of a number's index. What stands in a symbol's brackets says which numbers of its value
are read: at a place of the left side, at a further place that the rule works out, or, where the formula runs over it,
a whole line.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cutaway.inspection.arithmetic.record import Record
from cutaway.inspection.arithmetic.rounding import Rounded
from cutaway.words import Phrase, Text

Index = tuple[int | slice, ...]


@dataclass(frozen=True)
class Operand:
    """What a formula reads: one number or a line of numbers of this very run, or a constant of the architecture.

    `name` is a full tap name, a parameter's name or one of the further names that `explain` knows; None for a constant,
    whose `meaning` says where it is from. `index` says which elements: a slice runs over a dimension. `labels` are the
    tokens or words that places of a line stand for.
    """

    symbol: str  # as the formula writes it
    name: str | None
    index: Index
    values: Tensor  # float64, one dimension for each slice of the index
    meaning: Text = ""
    # Of a line of which the formula takes one element before all, as `m[s]` of a softmax: that element, and its place.
    element: tuple[str, int] | None = None
    labels: Mapping[int, str] = field(default_factory=dict)

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


@dataclass(frozen=True)
class Read:
    """Where a symbol is read. With `places` it is one line, whose brackets in the formula name elements of it; without,
    its brackets are the places. `instead` is a number to take in the place of the run's."""

    name: str | Callable[["Sheet"], str]
    places: str | None = None
    meaning: Text | Callable[["Sheet"], Text] = ""
    instead: float | None = None


@dataclass(frozen=True)
class Constant:
    """A number of the architecture, which the model rounds to its own type. `meaning` says where it is from."""

    number: float | Callable[["Sheet"], float]
    meaning: Text | Callable[["Sheet"], Text]


@dataclass(frozen=True)
class Rule:
    """How every number of a value comes about: `left = right`.

    `reads` says where the symbols of the right side are read (a str: at the brackets' places of that value). The right
    side is worked out as it is written, or where it cannot be by `work`, given the symbols' values in their order.
    `follows` is the element of a line that the formula takes before all: `m[s]` of a softmax.
    """

    left: str
    right: str | Callable[["Places"], str]
    reads: Mapping[str, "str | Read | Constant"]
    further: Mapping[str, "Callable[[Sheet], int | slice]"] = field(default_factory=dict)
    note: Phrase | Callable[["Sheet"], Phrase | None] | None = None
    work: Callable[..., Rounded] | None = None
    follows: str = ""
    made: Callable[[], Tensor] | None = None  # the whole value, where no tap shows it
    places: str = ""  # of a left side without brackets

    @property
    def letters(self) -> tuple[str, ...]:
        """The places of the left side; the batch stands before them where there is one."""
        places = self.places or self.left.partition("[")[2].removesuffix("]")
        return tuple(places.split(",")) if places else ()


Rules = dict[str, Rule]
Reads = dict[str, str | Read | Constant]
Further = Callable[["Sheet"], int | slice]
FUNCTIONS: dict[str, Callable[[Rounded], Rounded]] = {
    "exp": Rounded.exp, "log": Rounded.log, "tanh": Rounded.tanh, "cos": Rounded.cos, "sin": Rounded.sin,
    "max": Rounded.max,
}  # fmt: skip


class Places:
    """Where a number of a value stands by its rule, and `formula`: how the rule is written there. No value is read."""

    def __init__(self, rule: Rule, index: tuple[int, ...]):
        self._rule = rule
        places = index[len(index) - len(rule.letters) :]
        self._places: dict[str, int | slice] = dict(zip(rule.letters, places, strict=True))

    def __getitem__(self, place: str) -> int:
        """The number that a place of an index stands for."""
        number = self.at(place)
        assert isinstance(number, int), f"the formula runs over {place}"
        return number

    def at(self, place: str) -> int | slice:
        """What is read at a place of an index: one number, or a line."""
        return self._places[place]

    @property
    def right(self) -> str:
        """The right side as it is written here."""
        return self._rule.right if isinstance(self._rule.right, str) else self._rule.right(self)

    @property
    def formula(self) -> str:
        return f"{self._rule.left} = {self.right}"


class Sheet(Places):
    """One number worked out by its rule: `operands` in the order in which they are read, `result`, `note`.

    With `slopes` the operands' values carry the gradient of the result.
    """

    def __init__(self, record: Record, rule: Rule, index: tuple[int, ...], slopes: bool = False):
        super().__init__(rule, index)
        self.record, self._slopes = record, slopes
        self._read: dict[str, Rounded] = {}
        self.operands: list[Operand] = []
        self.note: Phrase | None = None
        if rule.work is None:
            self.result = self._sum(_words(self.right, rule.reads))
        else:
            self.result = rule.work(self, *map(self.read, rule.reads))
        if slopes and self.result.value.requires_grad:
            self.result.value.backward()
        if self.note is None:
            self.note = rule.note(self) if callable(rule.note) else rule.note

    def at(self, place: str) -> int | slice:
        """What is read at a place of an index: one number, or a line."""
        if place not in self._places:
            first, colon, last = place.partition(":")
            if place in self._rule.further:
                self._places[place] = self._rule.further[place](self)
            elif first.isdecimal():
                self._places[place] = slice(int(first), int(last)) if colon else int(first)
            else:
                return slice(None)
        return self._places[place]

    def read(self, written: str) -> Rounded:
        """The numbers of a symbol as the formula writes it; what stands there twice is one operand."""
        symbol, _, brackets = written.partition("[")
        how, inner = self._rule.reads.get(symbol) or self._rule.reads[written], brackets.removesuffix("]")
        line = how.places if isinstance(how, Read) else None
        one = written if line is None else symbol
        if one not in self._read:
            self._read[one] = self._take(one, how, inner if line is None else line)
        if line is None or not inner or self.at(inner) == slice(None):
            return self._read[one]
        return self._read[one][self.at(inner)]

    def whole(self, written: str) -> int:
        """A symbol that is a whole number, such as an id."""
        return int(self.read(written).value.item())

    def _take(self, symbol: str, how: str | Read | Constant, places: str) -> Rounded:
        """An operand, exact as it is; a constant is rounded once."""
        if isinstance(how, Constant):
            number = how.number(self) if callable(how.number) else how.number
            values = torch.tensor(float(number), dtype=torch.float64)
            name, index, meaning = None, (), how.meaning
        else:
            how = Read(how) if isinstance(how, str) else how
            name, meaning = how.name if isinstance(how.name, str) else how.name(self), how.meaning
            tensor = self.record.need(name)
            index = tuple(self.at(place.strip()) for place in places.split(","))
            index = (0,) * (tensor.dim() - len(index)) + index  # the batch
            values = tensor[index].detach().to("cpu", torch.float64)
            if how.instead is not None:
                values = torch.tensor(how.instead, dtype=torch.float64)
        said = meaning(self) if callable(meaning) else meaning
        said = self.record.about(name) if name is not None and not said else said
        followed, _, place = self._rule.follows.removesuffix("]").partition("[")
        element = (self._rule.follows, self[place]) if symbol == followed else None
        self.operands.append(Operand(symbol, name, index, values, said, element))
        if self._slopes:
            values.requires_grad_()
        unit = torch.finfo(self.record.dtype).eps / 2 if name is None else 0.0
        taken = Rounded(values, values.detach().abs() * unit, self.record.dtype)
        return taken.flatten() if values.dim() > 1 else taken

    # The right side worked out as it is written: sums of products of symbols, functions, and what stands in brackets.

    def _sum(self, words: list[str]) -> Rounded:
        total = self._product(words)
        while words and words[0] in "+-":
            sign, term = words.pop(0), self._product(words)
            total = total + term if sign == "+" else total - term
        return total

    def _product(self, words: list[str]) -> Rounded:
        product = self._factor(words)
        while words and words[0] in "·/":
            sign, factor = words.pop(0), self._factor(words)
            product = product * factor if sign == "·" else product / factor
        return product

    def _factor(self, words: list[str]) -> Rounded:
        word = words.pop(0)
        if word.startswith("Σ"):
            return self._product(words).sum()
        if word == "(":
            inner = self._sum(words)
            words.pop(0)
            return inner
        if word in FUNCTIONS and word not in self._rule.reads:
            return FUNCTIONS[word](self._factor(words))
        return self.read(word)


def _words(right: str, symbols: Mapping[str, object]) -> list[str]:
    """A formula's symbols with their brackets, sums, functions and signs."""
    names = "|".join(map(re.escape, sorted({*symbols, *FUNCTIONS}, key=len, reverse=True)))
    words = re.findall(rf"(?:Σ_\w )+|(?:{names})(?:\[[^]]*\])?|[-+·/()]", right.partition(",  ")[0])
    assert "".join(words).replace(" ", "") == right.partition(",  ")[0].replace(" ", ""), right
    return words
