"""One engine for every architecture: config keys and tensor rows, applied in both directions.

A row `(theirs, ours, op)` names a tensor family in the file and in the model; `{}` stands for a layer's number.
An op is invertible. Nothing here knows an architecture's name: what differs is data in the files beside this.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from cutaway.config import ModelConfig, parse
from cutaway.errors import CutawayError, about, brief
from cutaway.words import Text

Value = object
Config = Mapping[str, Value]  # a config.json
# TensorFlow's names of a norm's scale and shift, which the first files of BERT have to this day.
OLDER_ENDS = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}


@dataclass(frozen=True)
class Op:
    """How a tensor in the file becomes one in the model, of a given shape (`load`), and the model's tensors one in the
    file."""

    load: Callable[[Tensor, torch.Size], Tensor]
    save: Callable[[list[Tensor]], Tensor]
    part: int = 0  # which of the model's tensors, where the file joins several into one


SAME = Op(lambda w, _: w, lambda parts: parts[0])
TRANSPOSE = Op(lambda w, _: _transposed(w), lambda parts: _transposed(parts[0]))
ROW_VECTOR = Op(lambda w, _: w[0], lambda parts: parts[0][None])


def third(part: int) -> Op:
    """Part 0, 1 or 2 of a fused query-key-value projection whose matrix is stored transposed."""
    return Op(lambda w, _: _transposed(w).chunk(3)[part], lambda parts: _transposed(torch.cat(parts)), part)


# Queries, keys and values in one matrix, as many rows of each as the model has; then gate and up.
FUSED_QKV = (
    Op(lambda w, shape: w[: shape[0]], torch.cat, 0),
    Op(lambda w, shape: w[w.shape[0] - 2 * shape[0] : w.shape[0] - shape[0]], torch.cat, 1),
    Op(lambda w, shape: w[w.shape[0] - shape[0] :], torch.cat, 2),
)
FUSED_GATE_UP = tuple(Op(lambda w, _, part=part: w.chunk(2)[part], torch.cat, part) for part in (0, 1))


def _transposed(w: Tensor) -> Tensor:
    # a bias stays what it is
    return w.mT if w.ndim == 2 else w


@dataclass(frozen=True)
class Row:
    """A `spare` tensor is read only where the file has no other for the same parameter: one matrix for several uses
    may lie beside those that are really used."""

    theirs: str
    ours: str
    op: Op = SAME
    spare: bool = False


class Source(NamedTuple):
    """A tensor of the file that may hold a parameter; see `Row`."""

    theirs: str
    op: Op
    spare: bool = False


@dataclass(frozen=True)
class Key:
    """A config key: `read` turns the file's value into ours (it sees the whole file config), `write` ours into
    the file's. Absent keys take `default`; without one they are required. A `write_only` key is one that other
    readers want and we need not read."""

    theirs: str
    ours: str
    default: Value = ...
    write_only: bool = False
    read: Callable[[Value, Config], Value] = lambda value, _: value
    write: Callable[[Value, ModelConfig], Value] = lambda value, _: value


@dataclass(frozen=True)
class Architecture:
    """How one published architecture is read and written.

    `fixed` are our config values it always has: a model can be written in this architecture when they match.
    `constants` are keys of its file that must have one value for us, `written` such that others want to read.
    `ignored` are regular expressions of tensors that files carry and no forward pass here reads, `zero_if_absent` our
    names of tensors that a file may lack. `base_class` is the name of the same model without its head, and `prefix`
    what stands before the names of the tensors that both share: files of the base class, and some others, are written
    without it. Of several entries of one model_type, `when` tells by the file's config which one it is. `remark` is
    what messages add where the tensors of one file do not fit.
    """

    model_type: str
    class_name: str
    keys: tuple[Key, ...]
    rows: tuple[Row, ...]
    fixed: Config
    constants: Config = field(default_factory=dict)
    written: Config = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    zero_if_absent: tuple[str, ...] = ()
    base_class: str | None = None
    prefix: str = ""
    remark: Text = ""
    when: Callable[[Config], bool] = lambda _: True
    fits: Callable[[ModelConfig], bool] = lambda _: True

    def without_prefix(self) -> "Architecture":
        """The same architecture in a file whose names lack the prefix."""
        rows = tuple(replace(row, theirs=row.theirs.removeprefix(self.prefix)) for row in self.rows)
        escaped = re.escape(self.prefix)
        ignored = tuple(pattern.removeprefix(escaped) for pattern in self.ignored)
        return replace(self, rows=rows, ignored=ignored, prefix="")

    def without_head(self) -> "Architecture":
        """The base class: its files hold no head that predicts words."""
        assert self.base_class is not None, f"{self.model_type} has no base class"
        rows = tuple(row for row in self.rows if not row.ours.startswith("head."))
        fixed = {**self.fixed, "head": "none", "head_bias": False}
        return replace(self, class_name=self.base_class, rows=rows, fixed=fixed)

    def read_config(self, theirs: Config, where: str) -> ModelConfig:
        """Raises CutawayError naming the key of the file that is missing, wrong, or not supported."""
        with about(where):
            for key, value in self.constants.items():
                if theirs.get(key) not in (None, value):
                    raise CutawayError(
                        "{key} is {value!r}; only {supported!r} is supported for {kind}",
                        key=key,
                        value=theirs[key],
                        supported=value,
                        kind=self.model_type,
                    )
            ours: dict[str, Value] = dict(self.fixed)
            source: dict[str, str] = {}
            for key in (key for key in self.keys if not key.write_only):
                value = self._read(key, theirs)
                if key.ours in source and ours[key.ours] != value:
                    raise CutawayError(
                        "{key} and {other} differ; one {ours} for both is supported",
                        key=source[key.ours],
                        other=key.theirs,
                        ours=key.ours,
                    )
                ours[key.ours], source[key.ours] = value, key.theirs
        # the reader has the file's keys before them, not ours
        return parse(ModelConfig, ours, where, source)

    def _read(self, key: Key, theirs: Config) -> Value:
        if key.theirs not in theirs and key.default is ...:
            raise CutawayError("key {key!r} is missing", key=key.theirs)
        try:
            with about(key.theirs):
                return key.read(theirs.get(key.theirs, key.default), theirs)
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            value = brief(theirs.get(key.theirs))
            raise CutawayError(
                "{key} is {value}, which cannot be understood", key=key.theirs, value=value
            ) from error

    def expresses(self, config: ModelConfig) -> bool:
        """Whether a file of this architecture says everything that `config` says."""
        if not self.fits(config) or any(getattr(config, name) != value for name, value in self.fixed.items()):
            return False
        try:
            again = self.read_config(self.write_config(config), "config")
        # a value that this architecture has no word for
        except CutawayError:
            return False
        return explicit(again) == explicit(config)

    def write_config(self, config: ModelConfig) -> dict[str, Value]:
        written: dict[str, Value] = {"architectures": [self.class_name], "model_type": self.model_type}
        written |= {**self.constants, **self.written}
        for key in self.keys:
            written[key.theirs] = key.write(getattr(config, key.ours), config)
        return written

    def theirs(self, name: str) -> list[Source]:
        """The tensors of a file that may hold our tensor `name`, the preferred one first."""
        numbers = re.findall(r"(?<=\.)\d+(?=\.)", name)
        family = re.sub(r"(?<=\.)\d+(?=\.)", "{}", name)
        stem, _, leaf = family.rpartition(".")
        found = [Source(row.theirs.format(*numbers), row.op, row.spare) for row in self._rows_of(family)]
        if leaf in ("weight", "bias"):
            found += [
                Source(f"{row.theirs.format(*numbers)}.{leaf}", row.op, row.spare)
                for row in self._rows_of(stem)
            ]
        return found + [
            source._replace(theirs=source.theirs.removesuffix(end) + old)
            for source in found
            for end, old in OLDER_ENDS.items()
            if source.theirs.endswith(end)
        ]

    def _rows_of(self, ours: str) -> list[Row]:
        return [row for row in self.rows if row.ours == ours]


def explicit(config: ModelConfig) -> ModelConfig:
    """The same config with every value that may be left open filled in, or left open where it is what it would be, so
    that equal ones compare equal."""
    side = config.encoder_side if config.family == "encoder-decoder" else None
    sides = [config] if side is None else [config, side]
    encoder_layers = None if side is None else config.encoder_layers
    return replace(
        config,
        n_encoder_layers=encoder_layers,
        n_encoder_heads=side.n_heads if side else None,
        d_encoder_ff=side.d_ff if side else None,
        source_vocab_size=side.vocab_size if side else None,
        # what only two sides, or a head, can have
        shared_tables=config.shared_tables or side is None,
        tied=config.tied or config.head == "none",
        n_kv_heads=None if config.kv_heads == config.n_heads else config.kv_heads,
        d_head=None
        if all(each.head_width * each.n_heads == config.d_model for each in sides)
        else config.head_width,
        attn_scale=None
        if all(config.attn_scale == each.head_width**-0.5 for each in sides)
        else config.attn_scale,
        final_norm=config.has_final_norm,
        attn_out_bias=config.has_out_bias,
        d_expert=config.expert_width,
        # what only a mixture of experts reads
        n_experts_per_token=config.n_experts_per_token if config.n_experts else 1,
        experts_renormalised=config.experts_renormalised or not config.n_experts,
        head_activation=config.head_activation or config.activation,
        router_aux_coef=config.router_aux_coef if config.n_experts else 0.0,
        window_layers=tuple(sorted(config.window_layers)),
        dense_layers=tuple(sorted(config.dense_layers)),
    )
