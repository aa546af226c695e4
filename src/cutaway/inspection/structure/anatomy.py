"""What a model is: its parts and their parameters, what it needs in memory and in work, what its taps are called.

Everything is read off the model's structure on the meta device and the headers of its files, so that a model of
billions of parameters costs no memory; no weight is looked at.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from cutaway.checkpoint.parameters import aliases, check
from cutaway.checkpoint.published import OWN_TYPE
from cutaway.checkpoint.stored import Contents, Stored
from cutaway.checkpoint.table import Architecture
from cutaway.config import ModelConfig
from cutaway.inspection.structure.operations import Operations, operations
from cutaway.inspection.structure.parts import Part, parts
from cutaway.inspection.structure.tap_names import tap_names
from cutaway.models.build import skeleton
from cutaway.text.tokenizer import Tokenizer

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}  # of one parameter; the scales of int8 are not counted
CACHED = ("fp32", "fp16", "bf16")  # what keys and values are kept in
CONFIG_ROLES = ("pad", "bos", "eos", "mask", "decoder_start")


@dataclass(frozen=True)
class Cache:
    """Numbers that decoding keeps for each token: keys and values of all layers."""

    per_token: int
    per_source_token: int  # of the memory, for cross-attention; 0 in other families
    bytes_per_token: Mapping[str, int]  # by dtype
    bytes_per_source_token: Mapping[str, int]


@dataclass(frozen=True)
class StoredKind:
    """Tensors of one type in the files, as their headers tell it."""

    dtype: str
    tensors: int
    values: int


@dataclass(frozen=True)
class Control:
    id: int
    piece: str
    roles: tuple[str, ...]  # what the tokenizer and the config use it for


@dataclass(frozen=True)
class Vocabulary:
    size: int
    controls: tuple[Control, ...]


@dataclass(frozen=True)
class Anatomy:
    """One model, described. Counts are exact; memory is in bytes."""

    family: str
    architecture: str  # the published one's model_type, or "cutaway"
    config: ModelConfig
    parts: tuple[Part, ...]
    parameters: int
    active_parameters: int  # per token; fewer than `parameters` where there are experts
    tied: tuple[tuple[str, ...], ...]  # names that share one tensor
    memory: Mapping[str, int]  # bytes of the weights at each dtype
    cache: Cache | None  # None where nothing is decoded step by step
    operations: tuple[Operations, ...]  # at each context length asked for
    max_len: int
    stored: tuple[StoredKind, ...]  # empty where no files were given
    tokenizer: Vocabulary | None
    taps: tuple[str, ...]


def anatomy(
    config: ModelConfig,
    *,
    architecture: Architecture | None = None,
    contents: Contents | None = None,
    contexts: Sequence[int] = (),
) -> Anatomy:
    """Describe the model of `config` without making its weights.

    `contents` are the files that it lies in, of which the headers are read and the tokenizer; `contexts` the numbers
    of tokens in view at which its operations are counted (none given: the limit). Raises CutawayError where a
    tensor is missing in the files, is no part of the model, or has another shape or type than `config` asks for.
    """
    model = skeleton(config)
    if contents is not None:
        check(model, architecture, contents.tensors, contents.weights_file)
    tokenizer = None if contents is None else contents.tokenizer
    of_parts = parts(model)
    total = sum(part.parameters for part in of_parts)
    return Anatomy(
        family=config.family,
        architecture=OWN_TYPE if architecture is None else architecture.model_type,
        config=config,
        parts=of_parts,
        parameters=total,
        active_parameters=sum(part.active for part in of_parts),
        tied=tuple(names for names in aliases(model) if len(names) > 1),
        memory={dtype: size * total for dtype, size in BYTES.items()},
        cache=_cache(config),
        operations=tuple(operations(model, context) for context in contexts or (config.max_len,)),
        max_len=config.max_len,
        stored=() if contents is None else _stored(contents.tensors),
        tokenizer=None if tokenizer is None else _vocabulary(tokenizer, config),
        taps=tap_names(model),
    )


def _cache(config: ModelConfig) -> Cache | None:
    if config.family == "encoder-only":
        return None
    values = 2 * config.n_layers * config.kv_heads * config.head_width
    source = values if config.family == "encoder-decoder" else 0
    return Cache(
        per_token=values,
        per_source_token=source,
        bytes_per_token={dtype: BYTES[dtype] * values for dtype in CACHED},
        bytes_per_source_token={dtype: BYTES[dtype] * source for dtype in CACHED},
    )


def _stored(tensors: Mapping[str, Stored]) -> tuple[StoredKind, ...]:
    found: dict[str, list[int]] = {}
    for tensor in tensors.values():
        kind = tensor.kind or str(tensor.dtype).removeprefix("torch.")
        found.setdefault(kind, []).append(prod(tensor.shape))
    kinds = [StoredKind(kind, len(values), sum(values)) for kind, values in found.items()]
    return tuple(sorted(kinds, key=lambda kind: -kind.values))


def _vocabulary(tokenizer: Tokenizer, config: ModelConfig) -> Vocabulary:
    roles: dict[int, list[str]] = {}
    for role, number in tokenizer.roles.items():
        roles.setdefault(number, []).append(role)
    for role in CONFIG_ROLES:
        number = getattr(config, f"{role}_id")
        if number is not None and role not in roles.setdefault(number, []):
            roles[number].append(role)
    controls = tokenizer.controls
    return Vocabulary(
        size=tokenizer.vocab_size,
        controls=tuple(
            Control(number, controls.get(number) or tokenizer.readable(number), tuple(roles.get(number, ())))
            for number in sorted({*controls, *roles})
            if number < tokenizer.vocab_size
        ),
    )
