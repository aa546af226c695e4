"""Attention, number by number: from what the sublayer reads to what it writes (Vaswani et al. 2017, §3.2)."""

import math
from dataclasses import dataclass

import torch

from cutaway.inspection.arithmetic.norm import normalised
from cutaway.inspection.arithmetic.record import Numbers, Record, Sheet, Steps
from cutaway.inspection.arithmetic.rounding import Rounded, soft_cap, softmax
from cutaway.nn.attention import Attention
from cutaway.nn.bias import AlibiBias, RelativeBias
from cutaway.nn.stack import Stack
from cutaway.words import say


@dataclass(frozen=True)
class Place:
    """Where an attention stands: which names it reads, and what its stack adds to its scores."""

    path: str
    queries_from: str  # the name of what queries are made of
    keys_from: str  # and keys and values: the same, or an encoder's result
    stack: Stack | None  # None for cross-attention, which knows no positions and no mask here
    stack_path: str = ""
    rotary: str | None = None  # path of the rotation that this layer takes
    window: int | None = None


def attention_steps(record: Record, place: Place) -> Steps:
    """All taps of one attention, and `<path>.q_proj` and `<path>.k_proj` where heads are normalised after them."""
    path = place.path
    module = record.model.get_submodule(path)
    assert isinstance(module, Attention)
    width, groups = module.d_head, module.groups
    turned = "_rot" if place.rotary is not None else ""

    def projected(letter: str, source: str) -> Steps:
        """Steps of q, k or v."""
        layer, norm = f"{path}.{letter}_proj", getattr(module, f"{letter}_norm", None)

        def product(sheet: Sheet, t: int, row: int) -> Rounded:
            x = sheet.take("x", source, 0, t, slice(None))
            return sheet.affine(x, layer, row, letter)

        def plain(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
            _, h, t, e = index
            bias = f" + b_{letter}[hE+e]" if sheet.has(f"{layer}.bias") else ""
            result = product(sheet, t, h * width + e)
            return f"{letter}[h,t,e] = Σ_d x[t,d] · W_{letter}[hE+e, d]{bias}", result

        def before_norm(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
            _, t, row = index
            bias = f" + b_{letter}[i]" if sheet.has(f"{layer}.bias") else ""
            return f"{letter}_proj[t,i] = Σ_d x[t,d] · W_{letter}[i, d]{bias}", product(sheet, t, row)

        def head_normed(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
            _, h, t, e = index
            assert norm is not None
            x = sheet.take("x", layer, 0, t, slice(h * width, (h + 1) * width))
            formula, result = normalised(sheet, x, e, f"{path}.{letter}_norm", norm)
            return f"{letter}[h,t,i] = {formula}", result

        if norm is None:
            return {f"{path}.{letter}": plain}
        linear = getattr(module, f"{letter}_proj")
        record.add(layer, lambda: linear(record.need(source)))
        return {layer: before_norm, f"{path}.{letter}": head_normed}

    def rotated(letter: str) -> Steps:
        def turn(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
            _, h, t, e = index
            first = e < width // 2
            partner = e + width // 2 if first else e - width // 2
            own = sheet.take(f"{letter}[e]", f"{path}.{letter}", 0, h, t, e)
            other = sheet.take(f"{letter}[e']", f"{path}.{letter}", 0, h, t, partner)
            cos = sheet.take("cos", f"{place.rotary}.cos", t, e)
            sin = sheet.take("sin", f"{place.rotary}.sin", t, e)
            sign = "-" if first else "+"
            formula = f"{letter}_rot[h,t,e] = {letter}[h,t,e] · cos[t,e] {sign} {letter}[h,t,e'] · sin[t,e]"
            sheet.note = say(
                "e' is the other coordinate of the pair: e + E/2 for the first half, e - E/2 for the second"
            )
            turned = other * sin
            return formula, own * cos + (-turned if first else turned)

        return {f"{path}.{letter}_rot": turn}

    def scores(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, h, t, s = index
        q = sheet.take("q", f"{path}.q{turned}", 0, h, t, slice(None))
        k = sheet.take("k", f"{path}.k{turned}", 0, h // groups, s, slice(None))
        _note_groups(sheet)
        return "scores[h,t,s] = Σ_e q[h,t,e] · k[g,s,e]", q.dot(k)

    def _note_groups(sheet: Sheet) -> None:
        sheet.note = say("g = h")
        if groups > 1:
            sheet.note = say("g = ⌊h / {groups}⌋: {groups} query heads share a key/value head", groups=groups)

    def scaled(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        score = sheet.take("scores", f"{path}.scores", *index)
        usual = math.isclose(module.scale, width**-0.5)
        scale = sheet.constant("scale", module.scale, f"1/√E = 1/√{width}" if usual else "attn_scale")
        return "scaled[h,t,s] = scores[h,t,s] · scale", score * scale

    def masked(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, h, t, s = index
        value = sheet.take("scaled", f"{path}.scaled", *index)
        formula = "masked[h,t,s] = scaled[h,t,s]"
        if module.softcap is not None:
            value = soft_cap(value, sheet.constant("c", module.softcap, "attn_softcap"))
            formula = "masked[h,t,s] = c · tanh(scaled[h,t,s] / c)"
        bias = None if place.stack is None else place.stack.relative
        if isinstance(bias, RelativeBias):
            bucket = int(bias.bucket(torch.tensor([s - t], device=bias.table.weight.device)))
            name = f"{place.stack_path}.relative.table.weight"
            distance = say("the bucket of distance {s}", s=s - t)
            value = value + sheet.take("B", name, bucket, h, meaning=distance)
            formula += " + B[bucket(s - t), h]"
        elif isinstance(bias, AlibiBias):
            slope = sheet.take("m_h", f"{place.stack_path}.relative.slopes", h)
            between = say("tokens between key and query")
            value = value - slope * sheet.constant("|s - t|", abs(s - t), between)
            formula += " - m_h · |s - t|"
        later = place.stack is not None and place.stack.causal and s > t
        far = place.window is not None and s <= t - place.window
        if later or far:
            why = say("{window} or more tokens lie between", window=place.window)
            if later:
                why = say("the key stands after the query")
            value = value + sheet.constant("mask", -math.inf, why)
            formula += " + mask[t,s]"
        return formula, value

    def pattern(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, h, t, s = index
        row = sheet.take("m", f"{path}.masked", 0, h, t, slice(None))
        return "pattern[h,t,s] = exp(m[s] - max m) / Σ_j exp(m[j] - max m)", softmax(row)[s]

    def z(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, h, t, e = index
        weights = sheet.take("a", f"{path}.pattern", 0, h, t, slice(None))
        values = sheet.take("v", f"{path}.v", 0, h // groups, slice(None), e)
        _note_groups(sheet)
        return "z[h,t,e] = Σ_s a[h,t,s] · v[g,s,e]", weights.dot(values)

    def out(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, t, d = index
        heads = sheet.take("z", f"{path}.z", 0, slice(None), t, slice(None))
        bias = " + b_o[d]" if sheet.has(f"{path}.o_proj.bias") else ""
        result = sheet.affine(heads, f"{path}.o_proj", d, "o")
        return f"out[t,d] = Σ_h Σ_e z[h,t,e] · W_o[d, hE+e]{bias}", result

    steps: Steps = {
        **projected("q", place.queries_from),
        **projected("k", place.keys_from),
        **projected("v", place.keys_from),
        f"{path}.scores": scores,
        f"{path}.scaled": scaled,
        f"{path}.masked": masked,
        f"{path}.pattern": pattern,
        f"{path}.z": z,
        f"{path}.out": out,
    }
    return steps if place.rotary is None else steps | rotated("q") | rotated("k")
