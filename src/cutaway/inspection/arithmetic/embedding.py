"""How token vectors, positions and the angles of rotation come about, number by number."""

import math

import torch

from cutaway.inspection.arithmetic.norm import normalised
from cutaway.inspection.arithmetic.record import Numbers, Record, Sheet, Steps
from cutaway.inspection.arithmetic.rounding import Rounded
from cutaway.nn.bias import AlibiBias
from cutaway.nn.embedding import Embedding
from cutaway.nn.norm import NORMS
from cutaway.nn.position import Rotary, Sinusoidal
from cutaway.words import say


def embedding_steps(record: Record, path: str, ids: str, first: str) -> Steps:
    """Of the embedding at `path`, which reads the ids of that name and gives the residual stream `first`.

    Vaswani et al. 2017, §3.4–3.5; segments as in BERT (Devlin et al. 2019, §3). `<path>.sum` is the sum before the
    embedding's own norm, where it has one.
    """
    module = record.model.get_submodule(path)
    assert isinstance(module, Embedding)
    normed = isinstance(module.norm, tuple(NORMS.values()))

    def embed(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, t, d = index
        id = sheet.whole("id_t", ids, 0, t)
        row = sheet.take("E", f"{path}.tokens.weight", id, d)
        scale = sheet.constant("scale", module.scale, "embed_scale")
        return "embed[t,d] = E[id_t, d] · scale", row * scale

    def position(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, t, d = index
        place = t + module.offset
        if not isinstance(module.positions, Sinusoidal):
            row = sheet.take("P", f"{path}.positions.weight", place, d)
            return "position[t,d] = P[t + position_offset, d]", row
        half = record.config.d_model // 2
        i = d % half
        steps = max(half - 1 if record.config.sinusoid == "halves_m2m" else half, 1)
        sheet.constant("pos", place, "t + position_offset")
        sheet.constant("i", i, say("d mod D/2: the pair of coordinates"))
        frequencies = say("D/2 frequencies, or one less in M2M100's layout")
        sheet.constant("n", steps, frequencies)
        wave, name = (math.sin, "sin") if d < half else (math.cos, "cos")
        value = wave(place * 10_000 ** (-i / steps))
        u = torch.finfo(record.dtype).eps / 2  # the table is made in float64 and rounded once
        return f"position[t,d] = {name}(pos / 10000^(i/n))", sheet.exact(
            value, u * abs(value) + 1e-14 * place
        )

    def total(sheet: Sheet, index: Numbers) -> Rounded:
        _, t, d = index
        value = sheet.take("embed", f"{path}.embed", 0, t, d)
        if module.positions is not None:
            value = value + sheet.take("position", f"{path}.position", 0, t, d)
        if module.segments is not None:
            first = say("sentence A")
            value = value + sheet.take("segment", f"{path}.segments.weight", 0, d, meaning=first)
        return value

    written = "embed[t,d]"
    written += "" if module.positions is None else " + position[t,d]"
    written += "" if module.segments is None else " + segment[A,d]"

    def plain(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        return f"resid_pre[t,d] = {written}", total(sheet, index)

    def summed(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        return f"sum[t,d] = {written}", total(sheet, index)

    def after_norm(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, t, d = index
        x = sheet.take("x", f"{path}.sum", 0, t, slice(None))
        formula, result = normalised(sheet, x, d, f"{path}.norm", module.norm)
        return f"resid_pre[t,i] = {formula}", result

    def sum_value() -> torch.Tensor:
        x = record.need(f"{path}.embed")
        if module.positions is not None:
            x = x + record.need(f"{path}.position")
        return x if module.segments is None else x + module.segments.weight[0]

    steps: Steps = {f"{path}.embed": embed, first: plain}
    if module.positions is not None:
        steps[f"{path}.position"] = position
    if normed:
        record.add(f"{path}.sum", sum_value)
        steps |= {f"{path}.sum": summed, first: after_norm}
    return steps


def rotary_steps(record: Record, path: str, length: int) -> Steps:
    """`<path>.cos` and `<path>.sin` (T, E), what queries and keys are turned by, and the frequencies (E/2,) behind them
    (Su et al. 2021, §3.4.2)."""
    module = record.model.get_submodule(path)
    assert isinstance(module, Rotary)
    half = module.d_head // 2

    def angle(sheet: Sheet, index: Numbers) -> tuple[Rounded, Rounded]:
        t, e = index
        frequency = sheet.take("θ_i", f"{path}.frequency", e % half)
        turned = frequency * sheet.constant("t", t, say("the position"))
        factor = say("1, but for YaRN's attention factor")
        return turned, sheet.constant("a", module.amplitude, factor)

    def cos(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        turned, amplitude = angle(sheet, index)
        return "cos[t,e] = a · cos(t · θ_i),  i = e mod E/2", turned.cos() * amplitude

    def sin(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        turned, amplitude = angle(sheet, index)
        return "sin[t,e] = a · sin(t · θ_i),  i = e mod E/2", turned.sin() * amplitude

    def frequency(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        (i,) = index
        source = say("rope_base, or rope_local_base in layers with a window")
        base = sheet.constant("base", module.base, source)
        power = sheet.constant("2i/E", i / half, say("the pair's place in the head"))
        plain = (-(power * base.log())).exp()
        if module.scaling is None or module.scaling.kind == "dynamic":
            return "θ_i = base^(-2i/E)", plain
        factor = sheet.constant("factor", module.scaling.factor, "rope_scaling")
        if module.scaling.kind == "linear":
            return "θ_i = base^(-2i/E) / factor", plain / factor
        kept = _kept(sheet, module, plain, i)
        formula = "θ_i = r · base^(-2i/E) + (1 - r) · base^(-2i/E) / factor"
        return formula, plain / factor * (-kept + 1) + plain * kept

    def value(which: int) -> torch.Tensor:
        place = record.tables[f"{path}.frequency"].device
        return module.angles(torch.arange(length, device=place)[None])[which][0, 0]

    record.add(f"{path}.cos", lambda: value(0))
    record.add(f"{path}.sin", lambda: value(1))
    return {f"{path}.cos": cos, f"{path}.sin": sin, f"{path}.frequency": frequency}


def _kept(sheet: Sheet, module: Rotary, plain: Rounded, i: int) -> Rounded:
    """How much of a frequency is kept as it was, from 0 to 1: by turns within the length first trained at (Llama 3.1),
    or by pair (YaRN: Peng et al. 2023, §3.2)."""
    scaling = module.scaling
    assert scaling is not None and scaling.original_max_len is not None
    if scaling.kind == "llama3":
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        length = sheet.constant("n", scaling.original_max_len, "original_max_len")
        turns = plain * length / (2 * math.pi)
        kept = "r = (n·base^(-2i/E)/2π - low_freq_factor) / (high_freq_factor - low_freq_factor)"
        sheet.note = say("{kept}, within 0 and 1", kept=kept)
        return ((turns - low) / (high - low)).clamp(0, 1)
    half = module.d_head // 2

    def pair(turns: float) -> float:
        return (
            half * math.log((scaling.original_max_len or 1) / (turns * 2 * math.pi)) / math.log(module.base)
        )

    first = max(math.floor(pair(scaling.beta_fast)), 0)
    last = min(math.ceil(pair(scaling.beta_slow)), 2 * half - 1)
    sheet.note = say(
        "r = 1 - (i - first) / (last - first), within 0 and 1, between the pairs of beta_fast and beta_slow"
    )
    step = (sheet.constant("i", i, say("the pair")) - first) / max(last - first, 1e-3)
    return -step.clamp(0, 1) + 1


def alibi_steps(record: Record, path: str) -> Steps:
    """`<path>.slopes` (H,): 2^(-8h/H) for H a power of two, the heads counted from 1 (Press et al. 2022, §3)."""
    module = record.model.get_submodule(path)
    assert isinstance(module, AlibiBias)
    heads = module.slopes.numel()
    power = 2 ** math.floor(math.log2(heads))

    def slope(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        (h,) = index
        number, of = (h + 1, power) if h < power else (2 * (h - power) + 1, 2 * power)
        sheet.constant("n", number, say("the head's number, from 1"))
        sheet.constant("H", of, say("heads: a power of two"))
        if of != heads:
            sheet.note = say(
                "the heads beyond the greatest power of two take every other slope of twice as many"
            )
        value = 2 ** (-8 * number / of)
        return "m_h = 2^(-8n/H)", sheet.exact(value, torch.finfo(record.dtype).eps / 2 * value)

    return {f"{path}.slopes": slope}
