"""The published architectures that can be read and written, and which of them a checkpoint has."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from cutaway.checkpoint.architectures.bart import BART, M2M100, MARIAN, MBART
from cutaway.checkpoint.architectures.bert import BERT, DISTILBERT, MPNET, ROBERTA, XLM_ROBERTA
from cutaway.checkpoint.architectures.gemma import GEMMA, GEMMA2, GEMMA3
from cutaway.checkpoint.architectures.gpt2 import GPT2
from cutaway.checkpoint.architectures.llama import LLAMA, MISTRAL, MIXTRAL, PHI3, QWEN2, QWEN3, QWEN3_MOE
from cutaway.checkpoint.architectures.t5 import MT5, MT5_GATED, T5, T5_GATED
from cutaway.checkpoint.table import Architecture
from cutaway.config import ModelConfig
from cutaway.errors import CutawayError, nearest
from cutaway.words import listed, names_of, say

# Where several can express a model, it is written as the first.
ARCHITECTURES = (
    MARIAN, M2M100, BART, MBART, T5, T5_GATED, MT5, MT5_GATED,
    LLAMA, GPT2, MISTRAL, QWEN2, QWEN3, GEMMA, GEMMA2, GEMMA3, PHI3, MIXTRAL, QWEN3_MOE,
    BERT, ROBERTA, XLM_ROBERTA, DISTILBERT, MPNET,
)  # fmt: skip
OWN_TYPE = "cutaway"  # for models that no published architecture can express


def architecture_of(config: Mapping[str, object], tensors: Collection[str]) -> Architecture | None:
    """The architecture of a checkpoint with this config.json and tensors of these names; None for our own.

    Raises CutawayError for an unknown model_type.
    """
    kind = config.get("model_type")
    if kind == OWN_TYPE:
        return None
    known = [a for a in ARCHITECTURES if a.model_type == kind]
    if not known:
        types = [*dict.fromkeys(a.model_type for a in ARCHITECTURES), OWN_TYPE]
        raise CutawayError(
            "model_type is {kind!r}{hint}; supported: {types}",
            kind=kind,
            hint=nearest(str(kind), types),
            types=names_of(types),
        )
    found = next((a for a in known if a.when(config)), known[0])
    named = config.get("architectures")
    first = named[0] if isinstance(named, list) and named else None
    read = sorted({name for a in known for name in (a.class_name, a.base_class) if name})
    # perhaps the head of another task
    if first is not None and first not in read:
        remark = say(
            " (config.json's architectures says {first}; of a {kind} cutaway reads {classes})",
            first=str(first)[:60],
            kind=kind,
            classes=listed(read, say(" and ")),
        )
        found = replace(found, remark=remark)
    if found.base_class is not None:
        # Only a masked head has layers of its own, by whose absence it can be told.
        dense = next((row.theirs for row in found.rows if row.ours == "head.dense"), None)
        headless = dense is not None and not any(name.startswith(dense) for name in tensors)
        if headless or first == found.base_class:
            found = found.without_head()
    if found.prefix and not any(name.startswith(found.prefix) for name in tensors):
        return found.without_prefix()
    return found


def architecture_for(config: ModelConfig) -> Architecture | None:
    """The published architecture that says everything this config says, or None when none does."""
    for architecture in ARCHITECTURES:
        if config.head == "none" and architecture.base_class is None:
            continue
        written = architecture.without_head().without_prefix() if config.head == "none" else architecture
        if written.expresses(config):
            return written
    return None
