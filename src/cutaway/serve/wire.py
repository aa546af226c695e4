"""What travels: pages and results as JSON values, every phrase in both languages, arrays packed.

A text is a string (data) or `{"en": …, "zh": …}` (a phrase), an array `{"shape": […], "f16": "<base64>"}`, its numbers
as little-endian float16, or as "f32" where one of them is too large for that, or whole and not exact in it, or where
the result holds them in float64 because every digit counts.
"""

import base64
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutaway.inspection.answers import Answer, plain
from cutaway.page.blocks import Page
from cutaway.serve.refusal import Refusal, text_value
from cutaway.words import Phrase, say

LARGEST = 16_000_000  # bytes of an answer


class Packer:
    """Values as JSON has them. Raises Refusal (too_large) once the arrays of one answer are more than may travel."""

    def __init__(self) -> None:
        self._room = LARGEST

    def page(self, page: Page) -> dict[str, object]:
        """A page's title, blocks and terms, and its caption's fields."""
        return {
            "title": text_value(page.title),
            "blocks": [self.block(each) for each in page.blocks],
            "caption": None if page.caption is None else dataclasses.asdict(page.caption),
            "terms": [[text_value(term), text_value(about)] for term, about in page.terms],
        }

    def block(self, value: object) -> Any:
        """A block with all that it holds: a dataclass has its name as `kind` beside its fields, of which one named
        `kind` itself is sent as `of`."""
        match value:
            case str() | Phrase():
                return text_value(value)
            case float():
                return value if math.isfinite(value) else None
            case None | bool() | int():
                return value
            case np.ndarray():
                return self.array(value)
            case np.generic():
                return self.block(value.item())
            case Sequence():
                return [self.block(each) for each in value]
        assert dataclasses.is_dataclass(value) and not isinstance(value, type), f"{value!r} is in no block"
        fields = {each.name: self.block(getattr(value, each.name)) for each in dataclasses.fields(value)}
        own = {"of": fields.pop("kind")} if "kind" in fields else {}
        return {"kind": type(value).__name__, **fields, **own}

    def result(self, result: object) -> Any:
        """A result as plain values, its tensors as arrays."""
        return plain(result, self.tensor)

    def tensor(self, tensor: Tensor) -> dict[str, object]:
        held = tensor.detach().cpu()
        exact = held.dtype == torch.float64
        return self.array((held.float() if held.is_floating_point() else held).numpy(), exact)

    def array(self, values: np.ndarray, exact: bool = False) -> dict[str, object]:
        with np.errstate(over="ignore"):
            packed, kind = values.astype("<f2"), "f16"
        # ids are whole also where they are held as floats
        inexact = np.array_equal(values, np.trunc(values)) and not np.array_equal(packed, values)
        if exact or inexact or np.isfinite(values).sum() > np.isfinite(packed).sum():
            packed, kind = values.astype("<f4"), "f32"
        # in base64 three bytes are four
        self._room -= 4 * packed.nbytes // 3
        if self._room < 0:
            raise too_large()
        return {"shape": list(values.shape), kind: base64.b64encode(packed.tobytes()).decode("ascii")}


def too_large() -> Refusal:
    return Refusal(
        "too_large",
        say(
            "the answer has more than {most} MB; ask for less of it: a shorter text, one layer, one head",
            most=LARGEST // 1_000_000,
        ),
    )


def answer_value(answer: Answer, model: str, want: Sequence[str], ms: int) -> dict[str, object]:
    """An answer with what was wanted of it, under the name that the server gives its model."""
    packer = Packer()
    value: dict[str, object] = {
        "question": answer.question.name,
        "model": model,
        "text": answer.text,
        "options": plain(answer.options),
        "output": answer.output,
        "notes": [text_value(each) for each in answer.notes],
        "command": answer.command(),
        "python": answer.python(),
        "ms": ms,
    }
    if "page" in want:
        value["page"] = packer.page(answer.page())
    if "result" in want:
        value["result"] = packer.result(answer.result)
    return value


def limited(answer: bytes) -> bytes:
    """An answer that may travel. Raises Refusal (too_large) for one that is too large."""
    if len(answer) > LARGEST:
        raise too_large()
    return answer
