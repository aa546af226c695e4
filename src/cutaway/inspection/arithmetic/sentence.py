"""The sentence vector of a model without output head, number by number (Reimers and Gurevych 2019, §3)."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from cutaway.decode.sentence_settings import read_settings
from cutaway.decode.sentence_vectors import pool
from cutaway.inspection.arithmetic.record import Numbers, Record, Sheet, Steps
from cutaway.inspection.arithmetic.rounding import Rounded
from cutaway.inspection.sentences import sentence_settings
from cutaway.nn.head import Head


def sentence_steps(record: Record, hidden: str) -> Steps:
    """Of `pooled` (B, D), made of the last hidden states of that name, and of `sentence_vector` (B, D) where the
    model's folder wants vectors of length 1."""
    if isinstance(record.model.head, Head):
        return {}
    settings, last = read_settings(record.loaded.path), record.need(hidden).shape[1] - 1

    def pooled(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, d = index
        if settings.pooling in ("cls", "last"):
            t = 0 if settings.pooling == "cls" else last
            return f"pooled[d] = x[{t},d]", sheet.take("x", hidden, 0, t, d)
        x = sheet.take("x", hidden, 0, slice(None), d)
        if settings.pooling == "max":
            return "pooled[d] = max_t x[t,d]", x.max()
        return f"pooled[d] = Σ_t x[t,d] / {last + 1}", x.mean()

    def vector(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, d = index
        x = sheet.take("p", "pooled", 0, slice(None))
        return "v[d] = p[d] / √(Σ_j p[j]²)", x[d] * (x * x).sum().rsqrt()

    def make_pooled() -> Tensor:
        states = record.need(hidden).float()
        real = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
        return pool(states, real, sentence_settings(record.loaded).pooling)

    record.add("pooled", make_pooled)
    if not settings.normalise:
        return {"pooled": pooled}
    record.add("sentence_vector", lambda: normalize(record.need("pooled"), dim=-1))
    return {"pooled": pooled, "sentence_vector": vector}
