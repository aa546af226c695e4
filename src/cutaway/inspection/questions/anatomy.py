"""What a model is: its parts and their parameters, what it needs in memory and in work, what its taps are called.

Everything is read off the model's structure on the meta device and the headers of its files, so that a model of
billions of parameters costs no memory; no weight is looked at.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated

from cutaway.checkpoint.folder import read_config
from cutaway.checkpoint.parameters import aliases, check
from cutaway.checkpoint.published import OWN_TYPE
from cutaway.checkpoint.stored import Contents, Stored
from cutaway.checkpoint.table import Architecture
from cutaway.config import ModelConfig
from cutaway.decode.own_settings import settings_of
from cutaway.errors import CutawayError, brief
from cutaway.inspection.model_diagram import diagram
from cutaway.inspection.model_size import Operations, Part, operations, parts
from cutaway.inspection.options import Option
from cutaway.inspection.question import question
from cutaway.inspection.terms import FAMILIES, SIDES, left, right
from cutaway.inspection.wiring import ranges, tap_names
from cutaway.models.build import skeleton
from cutaway.page.blocks import Block, Line, Page, Prose, Table, page
from cutaway.page.drawn import Drawn
from cutaway.text.display import truncate, visible
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.words import Phrase, Text, listed, say

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}  # of one parameter; the scales of int8 are not counted
CACHED = ("fp32", "fp16", "bf16")  # what keys and values are kept in
CONTEXT = 512  # tokens in view at which operations are counted when nothing else is asked for
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


@dataclass(frozen=True, repr=False)
class Anatomy(Drawn):
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
    decoding: Mapping[str, object]  # settings of its own (generation_config.json) that decoding follows
    not_followed: Mapping[str, object]  # and those that it does not

    def page(self) -> Page:
        return _page(self)


@question(
    say("What the model is: its layers, sizes, parameters, memory, operations, tokens and taps."), "model"
)
def anatomy(
    files: Contents,
    *,
    contexts: Annotated[
        tuple[int, ...],
        Option(say("Tokens in view at which operations are counted; 512 and the limit unless given.")),
    ] = (),
) -> Anatomy:
    """Describe the model in a checkpoint's files, of which the headers are read and the tokenizer, and no weights.

    Raises CutawayError where a tensor is missing in the files, is no part of the model, or has another shape or type
    than its config asks for, and for a context beyond the model's limit.
    """
    config, architecture = read_config(files)
    limit = config.max_len
    for context in contexts:
        if not 1 <= context <= limit:
            raise CutawayError(
                "contexts has {context}, expected 1 to {limit}, this model's limit",
                context=context,
                limit=limit,
            )
    return anatomy_of(config, architecture=architecture, contents=files, contexts=contexts)


def anatomy_of(
    config: ModelConfig,
    *,
    architecture: Architecture | None = None,
    contents: Contents | None = None,
    contexts: Sequence[int] = (),
) -> Anatomy:
    """Describe the model of `config` without making its weights; `contents` are the files that it lies in."""
    model = skeleton(config)
    if contents is not None:
        check(model, architecture, contents.tensors, contents.weights_file)
    tokenizer = None if contents is None else contents.tokenizer
    own = None if contents is None else settings_of(contents.generation, config.vocab_size)
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
        operations=tuple(
            operations(model, context)
            for context in contexts or sorted({min(CONTEXT, config.max_len), config.max_len})
        ),
        max_len=config.max_len,
        stored=() if contents is None else _stored(contents.tensors),
        tokenizer=None if tokenizer is None else _vocabulary(tokenizer, config),
        taps=tap_names(model),
        decoding={} if own is None else own.stated,
        not_followed={} if own is None else own.unsupported,
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
    found: dict[str, list[int]] = defaultdict(list)
    for tensor in tensors.values():
        found[tensor.kind or str(tensor.dtype).removeprefix("torch.")].append(prod(tensor.shape))
    kinds = [StoredKind(kind, len(values), sum(values)) for kind, values in found.items()]
    return tuple(sorted(kinds, key=lambda kind: -kind.values))


def _vocabulary(tokenizer: Tokenizer, config: ModelConfig) -> Vocabulary:
    roles: dict[int, list[str]] = defaultdict(list)
    for role, number in tokenizer.roles.items():
        roles[number].append(role)
    for role in CONFIG_ROLES:
        number = getattr(config, f"{role}_id")
        if number is not None and role not in roles[number]:
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


# Its page.

POSITIONS = {
    "learned": say("table of learned positions"),
    "sinusoidal": say("table of sinusoids"),
    "none": say("no positions"),
    "rotary": say("rotary positions"),
    "relative": say("relative positions"),
    "learned_relative": say("table of learned positions, and relative ones"),
    "alibi": say("ALiBi positions"),
}
PARTS = {
    "token embedding": say("token embedding"),
    "positions": say("positions"),
    "segments": say("segments"),
    "embedding norm": say("embedding norm"),
    "self-attention": say("self-attention"),
    "cross-attention": say("cross-attention"),
    "feed-forward": say("feed-forward"),
    "router": say("router"),
    "experts": say("experts"),
    "norms": say("norms"),
    "final norm": say("final norm"),
    "relative positions": say("relative positions"),
    "output dense": say("output dense layer"),
    "output norm": say("output norm"),
    "output matrix": say("output matrix"),
    "output bias": say("output bias"),
}
PLACES = ("input", "encoder", "decoder", "output")
ORDER = ("self-attention", "cross-attention", "feed-forward", "router", "experts", "norms", "final norm")
CONTROLS = 12  # control tokens that are listed
LONGEST = 32  # columns that one may take


def _page(found: Anatomy) -> Page:
    title = say(
        "{family}, {architecture}, {n:,} parameters",
        family=FAMILIES[found.family], architecture=found.architecture, n=found.parameters,
    )  # fmt: skip
    taps = Prose(say("{n:,} taps", n=len(found.taps)), "\n".join(compressed(found.taps)))
    return page(title, [diagram(found.config), _table(found), *_facts(found), taps])


# The table of parameters.


def _table(found: Anatomy) -> Table:
    """Parameters of one layer and of all, exact, in data-flow order."""

    def order(part: Part) -> tuple[int, int]:
        inner = ORDER.index(part.name) if part.name in ORDER else -1
        return PLACES.index(part.place), inner if part.place in SIDES else 0

    rows: list[list[Text]] = []
    for part in sorted(found.parts, key=order):
        name = PARTS[part.name]
        if part.place in SIDES and found.config.family == "encoder-decoder":
            name = say("{stack}: {part}", stack=SIDES[part.place], part=name)
        per_layer = "" if part.per_layer is None else f"{part.per_layer:,}"
        share = f"{100 * part.parameters / found.parameters:.1f} %"
        rows.append([name, per_layer, f"{part.parameters:,}", share])
    if found.config.tied and found.config.head != "none":
        rows.append([PARTS["output matrix"], "", say("tied"), ""])
    rows.append([say("total"), "", f"{found.parameters:,}", ""])
    titles = (left(say("parameters")), right(say("a layer")), right(say("in all")), right(say("percentage")))
    return Table(titles, rows)


# What else there is to say.


def _facts(found: Anatomy) -> Iterator[Block]:
    config = found.config
    yield Prose(say("sizes"), _sizes(found))
    if found.active_parameters != found.parameters:
        few, of = config.n_experts_per_token, config.n_experts
        at_work = say(
            "{n:,} parameters on each token ({few} of {of} experts)",
            n=found.active_parameters,
            few=few,
            of=of,
        )
        yield Prose(say("at work"), at_work)
    sizes = {
        dtype.replace("fp16", "fp16/bf16"): size for dtype, size in found.memory.items() if dtype != "bf16"
    }
    weights = listed((f"{dtype} {amount(size, 'B')}" for dtype, size in sizes.items()), " · ")
    kinds = [
        each.dtype if len(found.stored) == 1 else f"{each.tensors} {each.dtype}" for each in found.stored
    ]
    stored = say("{weights}; stored as {kinds}", weights=weights, kinds=listed(kinds))
    yield Prose(say("weights"), stored if kinds else weights)
    if found.cache is not None:
        yield Prose(say("cache"), _cached(found, found.cache))
    for n, each in enumerate(found.operations):
        yield Prose(say("operations") if n == 0 else "", _spent(each))
    most, kind = found.max_len, POSITIONS[config.position]
    context = say("{n:,} tokens ({kind})", n=most, kind=kind)
    if config.family == "encoder-decoder":
        context = say("{n:,} tokens of source and as many of target ({kind})", n=most, kind=kind)
    yield Prose(say("context"), context)
    if found.decoding:
        yield Prose(say("decoding"), _settings(found.decoding))
    if found.not_followed:
        yield Prose(say("not followed"), _settings(found.not_followed))
    if found.tokenizer is None:
        yield Prose(say("tokenizer"), say("none among the files"))
        return
    controls, size = found.tokenizer.controls, found.tokenizer.size
    pieces = say("{n:,} pieces, {controls} of them control tokens", n=size, controls=len(controls))
    yield Prose(say("tokenizer"), pieces)
    if controls:
        ordered = sorted(controls, key=lambda control: not control.roles)  # those with a role first
        shown: list[Text] = [_control(control) for control in ordered[:CONTROLS]]
        if len(controls) > CONTROLS:
            shown.append(say("and {n} more", n=len(controls) - CONTROLS))
        yield Line(say("controls"), shown)


def _sizes(found: Anatomy) -> Phrase:
    config = found.config
    layers = f"{config.n_layers}"
    if config.family == "encoder-decoder":
        layers = f"{config.encoder_layers} + {config.n_layers}"
    attention = say("attention") if config.has_out_bias else say("q, k, v")
    have = [attention] if config.attn_bias else []
    have += [say("feed-forward")] if config.mlp_bias else []
    have += [say("output")] if config.head_bias else []
    return say(
        "{layers} layers, width {width:,}, biases: {have}",
        layers=layers, width=config.d_model, have=listed(have) if have else say("none"),
    )  # fmt: skip


def _settings(values: Mapping[str, object]) -> Text:
    return listed((visible(f"{key}={brief(value)}") for key, value in values.items()), " · ")


def _cached(found: Anatomy, cache: Cache) -> Phrase:
    token, source = cache.bytes_per_token["fp16"], cache.bytes_per_source_token["fp16"]
    longest = found.operations[-1].context
    one, whole = amount(token, "B"), amount((token + source) * longest, "B")
    if source:
        return say(
            "{one} a target, {other} a source token in 16 bits; {whole} at {longest:,}",
            one=one, other=amount(source, "B"), whole=whole, longest=longest,
        )  # fmt: skip
    return say("{one} a token in 16 bits; {whole} at {longest:,}", one=one, whole=whole, longest=longest)


def _spent(counted: Operations) -> Phrase:
    token, source = counted.per_token, counted.per_source_token
    one = amount(token.total, "FLOP")
    if source is not None:
        return say(
            "{one} a target token, {other} a source token at {at:,} tokens",
            one=one, other=amount(source.total, "FLOP"), at=counted.context,
        )  # fmt: skip
    return say(
        "{one} a token at {at:,} tokens, {share:.0f} % of it attention",
        one=one, at=counted.context, share=100 * token.attention / token.total,
    )  # fmt: skip


def _control(control: Control) -> Text:
    """A file may spell its control tokens in any way, so they are shown as a reader can see them."""
    piece = f"{control.id} {truncate(visible(control.piece), LONGEST)}"
    roles = ", ".join(control.roles).replace("_", " ")
    return say("{piece} ({roles})", piece=piece, roles=roles) if roles else piece


def amount(number: float, unit: str) -> str:
    """Three digits and a decimal prefix: `18.8 MB`, `512 B`, `1.21 GFLOP`."""
    for prefix in ("", "k", "M", "G", "T"):
        if number < 999.5 or prefix == "T":
            break
        number /= 1000
    return f"{number:.0f} {unit}" if not prefix else f"{number:.3g} {prefix}{unit}"


def compressed(names: Sequence[str]) -> list[str]:
    """Full tap names, one text for those that differ by layer, stack, module or last part only:
    `{encoder, decoder}.layers.0-3.{self_attn, cross_attn}.{q, k, v}`."""
    leaves: dict[str, list[str]] = defaultdict(list)
    for name in names:
        owner, _, leaf = name.rpartition(".")
        leaves[owner].append(leaf)
    numbers: dict[tuple[str, ...], list[list[int]]] = defaultdict(list)
    for owner, found in leaves.items():
        template, layers = re.sub(r"\b\d+\b", "#", owner), re.findall(r"\b\d+\b", owner)
        numbers[template, *found].append(list(map(int, layers)))
    stacks: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for (template, *found), places in numbers.items():
        first, dot, rest = template.partition(".")
        for place in zip(*places, strict=True):
            rest = rest.replace("#", ranges(set(place)), 1)
        stacks[dot + rest, *found].append(first)
    modules: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for (rest, *found), firsts in stacks.items():
        way, dot, module = rest.rpartition(".")
        modules[_braced(firsts) + way + dot, *found].append(module)
    return [f"{start}{_braced(ends)}.{_braced(found)}" for (start, *found), ends in modules.items()]


def _braced(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"
