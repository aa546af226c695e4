"""A model in a GGUF file (llama.cpp's format) brought into Hugging Face's words, so that its architectures read it.

Source: docs/gguf.md of ggml-org/ggml, and the converter of ggml-org/llama.cpp, whose changes to a model are undone.
"""

import math
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from string import Formatter

import torch
from torch import Tensor

from cutaway.checkpoint.config_keys import FULL, SLIDING
from cutaway.checkpoint.gguf_file import MOST_TENSORS, Change, Header, Placed, read_header
from cutaway.checkpoint.gguf_names import ARCHITECTURES, KEYS, NEUTRAL, GgufArchitecture
from cutaway.checkpoint.stored import Contents, Stored
from cutaway.errors import CutawayError, about, nearest
from cutaway.text.tokens.gguf_vocabulary import from_gguf
from cutaway.words import names_of

NO_ID = 2**32 - 1  # how a file says that a token of this role does not exist
ENDS = ("eos", "eot", "eom")  # of the text, of a turn, of a message: each ends what is generated
REQUIRED = ("embedding_length", "block_count", "feed_forward_length", "attention.head_count")
ROPE_FREQS = "rope_freqs.weight"
SEGMENTS = "token_types.weight"
WINDOWS = "attention.sliding_window_pattern"
_NAME = re.compile(r"(?:blk\.(0|[1-9][0-9]*)\.)?([a-z_]+)(?:\.(0|[1-9][0-9]*))?\.(weight|bias)")


def read_gguf(path: Path) -> Contents:
    """Open a GGUF file of any version and quantisation in use; its header is read, its tensors are not.

    Quantised tensors become fp32 when they are read. A Llama model with `rope_freqs.weight` gets the `rope_scaling`
    that made it. Raises CutawayError naming the file and what in it
    is malformed, or means something that would change the result and is not supported."""
    header = read_header(path)
    metadata = header.metadata
    for key in [key for key in metadata if key.endswith("_token_id") and metadata[key] in (NO_ID, -1)]:
        del metadata[key]
    with about(path):
        architecture = _architecture(metadata)
        config = _config(header, architecture)
        tensors = _tensors(header, architecture, config)
        ends = list(dict.fromkeys(end for role in ENDS if (end := _token_id(metadata, role)) is not None))
    ids = {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    if len(ends) > 1:
        ids["eos_token_id"] = ends
    template = metadata.get("tokenizer.chat_template")
    return Contents(
        config=config,
        config_file=f"{path} (metadata)",
        tensors=tensors,
        weights_file=str(path),
        tokenizer=from_gguf(metadata, str(path)) if "tokenizer.ggml.tokens" in metadata else None,
        generation={key: value for key, value in ids.items() if value is not None},
        chat_template=template if isinstance(template, str) else None,
    )


def _architecture(metadata: Mapping[str, object]) -> GgufArchitecture:
    name, kind = metadata.get("general.architecture"), metadata.get("general.type", "model")
    if kind != "model":
        raise CutawayError("general.type is {kind!r}; only whole models are supported", kind=kind)
    parts = metadata.get("split.count", 1)
    if isinstance(parts, int) and parts > 1:
        raise CutawayError("one of {parts} parts; join them with llama-gguf-split --merge first", parts=parts)
    named = [found for found in ARCHITECTURES if found.name == name]
    if not named:
        known = list(dict.fromkeys(found.name for found in ARCHITECTURES))
        raise CutawayError(
            "general.architecture is {name!r}{hint}; supported: {known}",
            name=name,
            hint=nearest(str(name), known),
            known=names_of(known),
        )
    found = next(a for a in named if a.marked_by is None or metadata.get(f"{a.name}.{a.marked_by}"))
    for key, neutral in {**NEUTRAL, **found.neutral}.items():
        value = metadata.get(f"{found.name}.{key}", neutral[0])
        if key not in found.keys and value not in neutral:
            full = f"{found.name}.{key}"
            raise CutawayError("{key} is {value!r}, which is not supported", key=full, value=value)
    return found


def _config(header: Header, architecture: GgufArchitecture) -> dict[str, object]:
    metadata, prefix = header.metadata, architecture.name + "."
    _check_tokenizer(metadata, architecture)
    config: dict[str, object] = {"model_type": architecture.model_type, **architecture.constants}
    for key, theirs in architecture.keys.items():
        full, value = prefix + key, metadata.get(prefix + key)
        if key == WINDOWS and isinstance(value, list):
            config["layer_types"] = _layer_types(full, value, config)
            continue
        # one for each layer
        if isinstance(value, list):
            if any(other != value[0] for other in value):
                raise CutawayError("{key} differs from layer to layer, which is not supported", key=full)
            value = value[0] if value else None
        if key in REQUIRED and (type(value) is not int or value < 1):
            raise CutawayError("{key} is {value!r}, expected a number above 0", key=full, value=value)
        if value is None and key.endswith("_epsilon"):
            raise CutawayError(
                "{key} is missing, expected a number such as 1e-05: what the norms add differs from model to model",
                key=full,
            )
        if value is not None:
            config[theirs] = value
    if "attention.head_count_kv" in architecture.keys:
        # llama.cpp: as many as there are heads; config.json has other defaults
        config.setdefault("num_key_value_heads", config["num_attention_heads"])
    tokens = metadata.get("tokenizer.ggml.tokens")
    config["vocab_size"] = len(tokens) if isinstance(tokens, list) else metadata.get(prefix + "vocab_size")
    config["tie_word_embeddings"] = "output.weight" not in header.tensors
    for role, name in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        config[f"{role}_token_id"] = _token_id(metadata, name)  # None, too: other readers have defaults
    if not architecture.rotary:
        if SEGMENTS in header.tensors:
            config["type_vocab_size"] = header.tensors[SEGMENTS].shape[0]
        return config
    _add_rotary(config, header, architecture)
    return {**config, **architecture.derive(config)}


def _check_tokenizer(metadata: Mapping[str, object], architecture: GgufArchitecture) -> None:
    kind = metadata.get("tokenizer.ggml.model")
    if architecture.tokenizer is not None and kind not in (None, architecture.tokenizer):
        raise CutawayError(
            "tokenizer.ggml.model is {kind!r}; of a {name} model only {supported} is supported",
            kind=kind,
            name=architecture.name,
            supported=architecture.tokenizer,
        )


def _layer_types(key: str, value: list[object], config: Mapping[str, object]) -> list[str]:
    """config.json's `layer_types` of a list that says of each layer whether it has a window."""
    if len(value) != config["num_hidden_layers"] or any(each not in (0, 1) for each in value):
        raise CutawayError(
            "{key} has {count} entries, expected true or false for each of {layers} layers",
            key=key,
            count=len(value),
            layers=config["num_hidden_layers"],
        )
    return [SLIDING if each else FULL for each in value]


def _add_rotary(config: dict[str, object], header: Header, architecture: GgufArchitecture) -> None:
    """The keys of a decoder with rotary positions, of which files leave out what has a default."""
    metadata, prefix = header.metadata, architecture.name + "."
    heads, width = config[KEYS["attention.head_count"]], config[KEYS["embedding_length"]]
    assert isinstance(heads, int) and isinstance(width, int)
    config.setdefault("num_key_value_heads", heads)
    head_dim = config.setdefault("head_dim", width // heads)
    for key in (f"{prefix}attention.value_length", f"{prefix}rope.dimension_count"):
        if (value := metadata.get(key, head_dim)) != head_dim:
            raise CutawayError(
                "{key} is {value!r} in heads of {width}; only the full width of a head is supported",
                key=key,
                value=value,
                width=head_dim,
            )
    config["attention_bias"] = "blk.0.attn_q.bias" in header.tensors
    config["mlp_bias"] = "blk.0.ffn_up.bias" in header.tensors
    theta = config.setdefault("rope_theta", 10_000.0)
    if scaling := _rope_scaling(header, prefix, head_dim, theta):
        config["rope_scaling"] = scaling


def _token_id(metadata: Mapping[str, object], role: str) -> int | None:
    key = f"tokenizer.ggml.{role}_token_id"
    value = metadata.get(key)
    if value is not None and type(value) is not int:
        raise CutawayError("{key} is {value!r}, expected the number of a token", key=key, value=value)
    return value


def _rope_scaling(header: Header, prefix: str, head_dim: object, theta: object) -> dict[str, object] | None:
    """config.json's `rope_scaling`, None for rotary positions that are not scaled.

    Older files have a factor without a type, or it alone as `rope.scale_linear`: llama.cpp reads both as linear."""
    metadata, place = header.metadata, prefix + "rope.scaling."
    kind = metadata.get(place + "type", "linear")
    factor = metadata.get(place + "factor", metadata.get(prefix + "rope.scale_linear", 0.0))
    if factor in (0, 1):
        kind = "none"
    if ROPE_FREQS in header.tensors:
        if kind != "none":
            raise CutawayError(
                "has both {key} {kind!r} and {tensor}, expected one of them",
                key=place + "type",
                kind=kind,
                tensor=ROPE_FREQS,
            )
        return _llama3_scaling(header.tensors[ROPE_FREQS], head_dim, theta)
    if kind == "none":
        return None
    scaling = {"rope_type": kind, "factor": factor}
    for key, theirs in {
        "original_context_length": "original_max_position_embeddings",
        "yarn_beta_fast": "beta_fast",
        "yarn_beta_slow": "beta_slow",
    }.items():
        if place + key in metadata:
            scaling[theirs] = metadata[place + key]
    return scaling


def _llama3_scaling(stored: Placed, head_dim: object, theta: object) -> dict[str, object]:
    """The parameters that Llama 3.1's factors were made from: a file has only the factors, one for each frequency.

    All published models have the same three of the four, so the factors decide the fourth, and are then compared."""
    if isinstance(head_dim, int) and isinstance(theta, float) and stored.shape == (head_dim // 2,):
        found = stored.read().double()
        frequency = theta ** -(torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        smooth = (8192 * frequency / (2 * math.pi) - 1.0) / (4.0 - 1.0)
        smooth = smooth.clamp(0, 1)  # 0: lower than the low frequency; 1: higher than the high one
        expected = 1 / ((1 - smooth) / found.max() + smooth)
        if torch.allclose(found, expected, rtol=1e-4, atol=0):
            return {
                "rope_type": "llama3", "factor": round(float(found.max()), 4), "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
            }  # fmt: skip
    raise CutawayError(
        "{tensor} is not what Llama 3.1 has (low_freq_factor 1, high_freq_factor 4, "
        "original_max_position_embeddings 8192, any factor); other factors are not supported",
        tensor=ROPE_FREQS,
    )


def _tensors(
    header: Header, architecture: GgufArchitecture, config: Mapping[str, object]
) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    for name, placed in header.tensors.items():
        if name == ROPE_FREQS:
            # said by the config
            continue
        match = _NAME.fullmatch(name)
        layer, stem, expert, leaf = match.groups() if match else (None, "", None, "")
        template = architecture.tensors.get(stem, "")
        numbers = {field for _, field, _, _ in Formatter().parse(template) if field}
        stacked = expert is None and stem.endswith("_exps")
        given = {"layer"} if layer else set()
        given |= {"expert"} if expert or stacked else set()
        if not template or numbers != given:
            raise CutawayError(
                "tensor {name!r} is no part of a {kind} model (general.architecture {architecture})",
                name=name,
                kind=architecture.model_type,
                architecture=architecture.name,
            )
        change = _change(stem, leaf, name, placed, architecture, config)
        parts = {expert: placed}
        if stacked:
            experts = config.get("num_local_experts", config.get("num_experts"))
            if placed.shape[0] != experts or len(placed.shape) != 3:
                raise CutawayError(
                    "tensor {name!r} has the shape {shape}, expected {experts} matrices",
                    name=name,
                    shape=list(placed.shape),
                    experts=experts,
                )
            parts = {str(i): placed.part(i) for i in range(placed.shape[0])}
        for number, part in parts.items():
            theirs = f"{template.format(layer=layer, expert=number)}.{leaf}"
            if len(found) == MOST_TENSORS:
                raise CutawayError("has more than {most:,} matrices of experts", most=MOST_TENSORS)
            if theirs in found:
                raise CutawayError("tensor {name!r}: another one is {theirs} too", name=name, theirs=theirs)
            found[theirs] = part.stored(
                change, transposed=stem in architecture.transposed and leaf == "weight"
            )
    return found


def _change(
    stem: str,
    leaf: str,
    name: str,
    placed: Placed,
    architecture: GgufArchitecture,
    config: Mapping[str, object],
) -> Change:
    """What makes the published tensor of the file's."""
    if architecture.interleaved and stem in ("attn_q", "attn_k"):
        heads = config["num_attention_heads" if stem == "attn_q" else "num_key_value_heads"]
        if type(heads) is not int or heads < 1 or placed.shape[0] % (2 * heads):
            raise CutawayError(
                "tensor {name!r} has {rows} rows, which {heads!r} heads cannot share",
                name=name,
                rows=placed.shape[0],
                heads=heads,
            )
        return partial(_halves, heads)
    if architecture.norm_offset and stem.endswith("norm") and leaf == "weight":
        return partial(torch.add, other=-architecture.norm_offset)
    return lambda w: w


def _halves(heads: int, w: Tensor) -> Tensor:
    """Rows of each head from pairs that rotate together (0 and 1, 2 and 3, …) to halves (0 and E/2, 1 and E/2+1, …)."""
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).transpose(1, 2).reshape(w.shape)
