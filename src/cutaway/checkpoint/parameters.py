"""A model's parameters and the tensors of its files: filled from them, spread out to them, one tensor at a time."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from cutaway.checkpoint.stored import Stored, check_range
from cutaway.checkpoint.table import SAME, Architecture, Op, Source
from cutaway.config import ModelConfig
from cutaway.errors import CutawayError, about
from cutaway.words import listed, say

# Other types hold no weights of ours: whole numbers, truth values, 8-bit floats that want scales beside them.
WEIGHT_TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class _Use:
    """A parameter that a tensor of the file is for: all its names, its shape, and what makes it."""

    names: tuple[str, ...]
    shape: torch.Size
    op: Op


def aliases(model: nn.Module) -> list[tuple[str, ...]]:
    """The names of each parameter; a tied one has several."""
    found: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        found.setdefault(id(parameter), []).append(name)
    return [tuple(names) for names in found.values()]


def fill(
    model: nn.Module,
    architecture: Architecture | None,
    tensors: Mapping[str, Stored],
    where: str,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Give the model, which may lie on the meta device, the file's tensors as its parameters, in `dtype`.

    `architecture` is None for a file with our own names. Every tensor is accounted for before the first is read, by
    name, type and shape; then each is read once and becomes the parameter itself, so that never more than the
    weights and one tensor lie in memory. Tied parameters may be stored under any of their names; two
    names must then agree. Raises CutawayError for a missing, unexpected or wrongly shaped tensor; `where` is what
    it calls the file.
    """
    wanted = check(model, architecture, tensors, where)
    done: dict[str, str] = {}  # the first name of a parameter -> the tensor that it was filled from
    with about(where):
        for theirs in [name for name in tensors if name in wanted]:
            values = _values(theirs, tensors[theirs], wanted[theirs], dtype)
            for use, value in zip(wanted[theirs], values, strict=True):
                name = use.names[0]
                if name not in done:
                    _assign(model, use.names, value)
                    done[name] = theirs
                elif not torch.equal(value, model.get_parameter(name)):
                    raise CutawayError(
                        "{one!r} and {other!r} are tied by the config but differ in the file",
                        one=done[name],
                        other=theirs,
                    )
    for names in aliases(model):
        # what the file may lack: the plan refuses every other gap
        if names[0] not in done:
            _assign(model, names, torch.zeros(model.get_parameter(names[0]).shape, dtype=dtype))


def as_stored(
    config: ModelConfig, architecture: Architecture, tensors: Mapping[str, Stored], where: str
) -> ModelConfig:
    """The config with two matrices where it says one and the file has two that differ, as transformers opens it."""
    embed = "target_embed" if config.family == "encoder-decoder" else "embed"
    pairs = {"tied": ("head.unembed.weight", f"{embed}.tokens.weight")}
    if config.family == "encoder-decoder":
        pairs["shared_tables"] = ("source_embed.tokens.weight", "target_embed.tokens.weight")
    for flag, names in pairs.items():
        if not getattr(config, flag):
            continue
        found = [there_of(architecture.theirs(name), tensors)[:1] for name in names]
        one, other = (tensors[each[0].theirs] if each else None for each in found)
        if one is None or other is None or one is other:
            continue
        with about(where):
            if one.shape != other.shape or not torch.equal(one.read(), other.read()):
                config = replace(config, **{flag: False})
    return config


def _values(theirs: str, stored: Stored, wanted: list[_Use], dtype: torch.dtype) -> list[Tensor]:
    """What the uses of a tensor make of it, each in `dtype` and in memory of its own."""
    if stored.dtype == dtype and [use.op for use in wanted] == [SAME]:
        return [stored.read()]
    # The new memory is taken first, so that the file's tensor leaves no hole between the parameters when it goes.
    values = [torch.empty(use.shape, dtype=dtype) for use in wanted]
    value = stored.read()
    check_range(value, dtype, theirs)
    for use, made in zip(wanted, values, strict=True):
        made.copy_(use.op.load(value, use.shape))
    return values


def unread(tensors: Collection[str], architecture: Architecture | None) -> list[str]:
    """The names of tensors that files of this architecture carry and no forward pass here reads."""
    patterns = architecture.ignored if architecture else ()
    return [name for name in tensors if any(re.fullmatch(pattern, name) for pattern in patterns)]


def spread(model: nn.Module, architecture: Architecture | None) -> dict[str, Stored]:
    """The model's parameters under the names of the file, tied ones once; each is made when it is read."""
    joined: dict[str, dict[int, tuple[Op, Tensor]]] = {}
    for names in aliases(model):
        sources = _sources(architecture, names)
        assert sources, f"{architecture.model_type if architecture else None} has no row for {names[0]}"
        theirs, op, _ = sources[0]
        joined.setdefault(theirs, {})[op.part] = (op, model.get_parameter(names[0]).detach())
    stored: dict[str, Stored] = {}
    for theirs, parts in joined.items():
        op, tensors = parts[min(parts)][0], [parts[i][1] for i in sorted(parts)]
        stored[theirs] = Stored(tuple(op.save(tensors).shape), tensors[0].dtype, partial(op.save, tensors))
    return stored


def check(
    model: nn.Module, architecture: Architecture | None, tensors: Mapping[str, Stored], where: str
) -> dict[str, list[_Use]]:
    """For every tensor of the file that is wanted, what it is wanted for. Raises what `fill` would, as far as names,
    types and shapes tell: nothing is read of the tensors."""
    wanted: dict[str, list[_Use]] = {}
    spare: set[str] = set()
    with about(where):
        for names in aliases(model):
            sources = _sources(architecture, names)
            there = there_of(sources, tensors)
            spare |= {each.theirs for each in sources if each.spare}
            if not there and not (architecture and names[0] in architecture.zero_if_absent):
                expected = dict.fromkeys(each.theirs for each in sources) or names[:1]
                raise CutawayError(
                    "tensor {names} is missing{remark}",
                    names=listed(expected, say(" or ")),
                    remark=architecture.remark if architecture else "",
                )
            for theirs, op, _ in there:
                use = _Use(names, model.get_parameter(names[0]).shape, op)
                _check(theirs, tensors[theirs], use)
                wanted.setdefault(theirs, []).append(use)
        if left := sorted(tensors.keys() - wanted.keys() - spare - set(unread(tensors, architecture))):
            raise CutawayError(
                "tensors ({count}) that are no part of a {kind} model: {names}{remark}",
                count=len(left),
                kind=architecture.model_type if architecture else "cutaway",
                names=listed(left[:5]),
                remark=architecture.remark if architecture else "",
            )
    return wanted


def _check(theirs: str, stored: Stored, use: _Use) -> None:
    if stored.dtype not in WEIGHT_TYPES:
        kind = stored.kind or str(stored.dtype).removeprefix("torch.")
        raise CutawayError(
            "tensor {name!r} is of type {kind}, expected floats of 16, 32 or 64 bits for {ours}",
            name=theirs,
            kind=kind,
            ours=use.names[0],
        )
    try:
        shape = use.op.load(torch.empty(stored.shape, dtype=stored.dtype, device="meta"), use.shape).shape
    # a shape that the op has no meaning for
    except (RuntimeError, IndexError, ValueError):
        shape = stored.shape
    if shape != use.shape:
        raise CutawayError(
            "tensor {name!r} gives {ours} the shape {shape}, the config asks for {expected}",
            name=theirs,
            ours=use.names[0],
            shape=list(shape),
            expected=list(use.shape),
        )


def _sources(architecture: Architecture | None, names: Sequence[str]) -> list[Source]:
    """The file's tensors that may hold a parameter with these names, the preferred one first: one that is for several
    of them, in the order of the rows otherwise."""
    if architecture is None:
        return [Source(name, SAME) for name in names]
    found = [source for name in names for source in architecture.theirs(name)]
    return sorted(dict.fromkeys(found), key=lambda source: -found.count(source))


def there_of(sources: Sequence[Source], tensors: Collection[str]) -> list[Source]:
    """Which of the sources to read: those that are there, the spare ones only where there is no other."""
    there = [source for source in sources if source.theirs in tensors]
    return [source for source in there if not source.spare] or there


def _assign(model: nn.Module, names: Sequence[str], value: Tensor) -> None:
    parameter = nn.Parameter(value, requires_grad=model.get_parameter(names[0]).requires_grad)
    for name in names:
        module, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(module), leaf, parameter)
