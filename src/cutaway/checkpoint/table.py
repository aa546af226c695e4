"""One engine for every architecture: config keys and tensor rows, applied in both directions.

A row `(theirs, ours, op)` names a tensor family in the file and in the model; `{}` stands for a layer's number.
An op is invertible. Nothing here knows an architecture's name: what differs is data in the files beside this.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from cutaway.config import ModelConfig, parse, to_dict
from cutaway.errors import CutawayError

Value = object


@dataclass(frozen=True)
class Op:
    """How a tensor in the file becomes one in the model (`load`), and the model's tensors one in the file."""

    load: Callable[[Tensor], Tensor]
    save: Callable[[list[Tensor]], Tensor]
    part: int = 0  # which of the model's tensors, where the file joins several into one


SAME = Op(lambda w: w, lambda parts: parts[0])
TRANSPOSE = Op(lambda w: _transposed(w), lambda parts: _transposed(parts[0]))
ROW_VECTOR = Op(lambda w: w[0], lambda parts: parts[0][None])


def third(part: int) -> Op:
    """Part 0, 1 or 2 of a fused query-key-value projection whose matrix is stored transposed."""
    return Op(lambda w: _transposed(w).chunk(3)[part], lambda parts: _transposed(torch.cat(parts)), part)


def _transposed(w: Tensor) -> Tensor:
    return w.mT if w.ndim == 2 else w  # a bias stays what it is


@dataclass(frozen=True)
class Row:
    theirs: str
    ours: str
    op: Op = SAME


@dataclass(frozen=True)
class Key:
    """A config key: `read` turns the file's value into ours (it sees the whole file config), `write` ours into
    the file's. Absent keys take `default`; without one they are required. A `write_only` key is one that other
    readers want and we need not read."""

    theirs: str
    ours: str
    default: Value = ...
    write_only: bool = False
    read: Callable[[Value, Mapping[str, Value]], Value] = lambda value, _: value
    write: Callable[[Value, ModelConfig], Value] = lambda value, _: value


@dataclass(frozen=True)
class Architecture:
    """How one published architecture is read and written.

    `fixed` are our config values it always has: a model can be written in this architecture when they match.
    `constants` are keys of its file that must have one value for us, `written` such that others want to read.
    `ignored` are regular expressions of tensors that files carry and no forward pass here reads.
    """

    model_type: str
    class_name: str
    keys: tuple[Key, ...]
    rows: tuple[Row, ...]
    fixed: Mapping[str, Value]
    constants: Mapping[str, Value] = field(default_factory=dict)
    written: Mapping[str, Value] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    fits: Callable[[ModelConfig], bool] = lambda _: True

    def read_config(self, theirs: Mapping[str, Value], where: str) -> ModelConfig:
        """Raises CutawayError naming the key of the file that is missing, wrong, or not supported."""
        for key, value in self.constants.items():
            if theirs.get(key, value) != value:
                raise CutawayError(
                    f"{where}: {key} is {theirs[key]!r}; only {value!r} is supported for {self.model_type}"
                )
        ours: dict[str, Value] = dict(self.fixed)
        source: dict[str, str] = {}
        for key in (key for key in self.keys if not key.write_only):
            if key.theirs not in theirs and key.default is ...:
                raise CutawayError(f"{where}: key {key.theirs!r} is missing")
            try:
                value = key.read(theirs.get(key.theirs, key.default), theirs)
            except (TypeError, KeyError, AttributeError) as error:
                found = theirs.get(key.theirs)
                raise CutawayError(
                    f"{where}: {key.theirs} is {found!r}, which cannot be understood"
                ) from error
            except ValueError as error:
                raise CutawayError(f"{where}: {key.theirs}: {error}") from error
            if key.ours in source and ours[key.ours] != value:
                raise CutawayError(
                    f"{where}: {source[key.ours]} and {key.theirs} differ; one {key.ours} for both is supported"
                )
            ours[key.ours], source[key.ours] = value, key.theirs
        return parse(ModelConfig, ours, where)

    def expresses(self, config: ModelConfig) -> bool:
        """Whether a file of this architecture says everything that `config` says."""
        values = to_dict(config)
        if any(values[name] != value for name, value in self.fixed.items()) or not self.fits(config):
            return False
        try:
            again = self.read_config(self.write_config(config), "config")
        except CutawayError:  # a value that this architecture has no word for
            return False
        return _explicit(again) == _explicit(config)

    def write_config(self, config: ModelConfig) -> dict[str, Value]:
        written: dict[str, Value] = {"architectures": [self.class_name], "model_type": self.model_type}
        written |= {**self.constants, **self.written}
        for key in self.keys:
            written[key.theirs] = key.write(getattr(config, key.ours), config)
        return written

    def fill(self, model: nn.Module, tensors: Mapping[str, "Stored"], where: str) -> None:
        """Copy the file's tensors into the model's parameters, in place, every one accounted for.

        Tied parameters may be stored under any of their names; two names must then agree. Raises CutawayError
        for a missing, unexpected or wrongly shaped tensor.
        """
        used: set[str] = set()
        for names in aliases(model):
            target = model.get_parameter(names[0])
            filled_from: str | None = None
            for theirs, op in (found for name in names for found in self._theirs(name)):
                if theirs not in tensors:
                    continue
                used.add(theirs)
                value = op.load(tensors[theirs].read())
                if value.shape != target.shape:
                    raise CutawayError(
                        f"{where}: tensor {theirs!r} gives {names[0]} the shape {list(value.shape)}, "
                        f"the config asks for {list(target.shape)}"
                    )
                if filled_from is None:
                    with torch.no_grad():
                        target.copy_(value)
                    filled_from = theirs
                elif not torch.equal(value.to(target.dtype), target):
                    raise CutawayError(
                        f"{where}: {filled_from!r} and {theirs!r} are tied by the config but differ in the file"
                    )
            if filled_from is None:
                expected = [theirs for name in names for theirs, _ in self._theirs(name)]
                raise CutawayError(f"{where}: tensor {' or '.join(expected) or names[0]} is missing")
        left = [
            name
            for name in tensors
            if name not in used and not any(re.fullmatch(pattern, name) for pattern in self.ignored)
        ]
        if left:
            raise CutawayError(
                f"{where}: {len(left)} tensors belong to no part of a {self.model_type} model: "
                f"{', '.join(sorted(left)[:5])}"
            )

    def spread(self, model: nn.Module) -> dict[str, Tensor]:
        """The model's parameters under the names of the file; tied ones once."""
        joined: dict[str, dict[int, tuple[Op, Tensor]]] = {}
        for names in aliases(model):
            found = next((f for name in names for f in self._theirs(name)), None)
            assert found is not None, f"{self.model_type} has no row for {names[0]}"
            theirs, op = found
            joined.setdefault(theirs, {})[op.part] = (op, model.get_parameter(names[0]).detach())
        tensors: dict[str, Tensor] = {}
        for theirs, parts in joined.items():
            op = parts[0][0]
            tensors[theirs] = op.save([parts[i][1] for i in sorted(parts)]).contiguous()
        return tensors

    def _theirs(self, name: str) -> list[tuple[str, Op]]:
        """The file's names, with ops, of our tensor `name`, the preferred one first."""
        found: list[tuple[str, Op]] = []
        for row in self.rows:
            pattern = re.escape(row.ours).replace(r"\{\}", r"(\d+)")
            if match := re.fullmatch(pattern, name):
                found.append((row.theirs.format(*match.groups()), row.op))
            elif match := re.fullmatch(pattern + r"(\.weight|\.bias)", name):
                *numbers, leaf = match.groups()
                found.append((row.theirs.format(*numbers) + leaf, row.op))
        return found


def _explicit(config: ModelConfig) -> ModelConfig:
    """The same config with every value that may be left open filled in, so that equal ones compare equal."""
    encoder_layers = config.encoder_layers if config.family == "encoder-decoder" else None
    return replace(
        config,
        n_encoder_layers=encoder_layers,
        n_kv_heads=config.kv_heads,
        d_head=config.head_width,
        attn_scale=config.head_width**-0.5 if config.attn_scale is None else config.attn_scale,
        final_norm=config.has_final_norm,
    )


@dataclass(frozen=True)
class Stored:
    """A tensor that lies in a file until it is read."""

    read: Callable[[], Tensor]


def aliases(model: nn.Module) -> list[list[str]]:
    """The names of every parameter; a tied one has several."""
    found: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        found.setdefault(id(parameter), []).append(name)
    return list(found.values())
