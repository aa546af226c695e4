"""What a model's files hold, before a model is made of them; every file format is brought into this one form."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cutaway.text.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Stored:
    """A tensor that lies in a file until it is read. `read` gives it in `dtype`, or dequantised to fp32 where the
    file's own type is no torch type (then `dtype` is torch.float32 and `kind` names the file's). What it gives is
    memory of its own: it may become a parameter as it is, and the file may change or go."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[], Tensor]
    kind: str = ""  # the file's own name of a quantised type, such as Q4_1


@dataclass(frozen=True)
class Contents:
    """The parts of a checkpoint. `config` has the keys of Hugging Face's config.json, `tensors` the names of its
    model.safetensors; nothing has been read of the tensors but their headers."""

    config: Mapping[str, object]
    config_file: str  # what messages call the place where `config` stands
    tensors: Mapping[str, Stored]
    weights_file: str  # and the place of the tensors
    tokenizer: Tokenizer | None = None
    generation: Mapping[str, object] = field(
        default_factory=dict
    )  # generation_config.json, empty without one
    chat_template: str | None = None

    def weights_type(self) -> torch.dtype:
        """The type that holds all weights as they are; float32 for quantised ones, and at most."""
        kinds = {stored.dtype for stored in self.tensors.values() if stored.dtype.is_floating_point}
        return kinds.pop() if kinds in ({torch.float16}, {torch.bfloat16}) else torch.float32
