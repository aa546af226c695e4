"""The rules of what enters a stack: token vectors, positions, the angles of rotation."""

import math

import torch
from torch import Tensor

from cutaway.inspection.arithmetic.formula import Constant, Further, Places, Read, Reads, Rule, Rules, Sheet
from cutaway.inspection.arithmetic.record import Record
from cutaway.inspection.arithmetic.rounding import Rounded
from cutaway.inspection.arithmetic.shared_rules import norm_rule
from cutaway.inspection.wiring import Side, embedding_of
from cutaway.nn.bias import AlibiBias
from cutaway.nn.embedding import Embedding
from cutaway.nn.norm import NORMS
from cutaway.nn.position import Rotary, Sinusoidal
from cutaway.words import Phrase, say


def embedding_rules(record: Record, side: Side, first: str) -> Rules:
    """Of the embedding that feeds a side's stack and gives the residual stream `first` (Vaswani et al. 2017, §3.4–3.5;
    segments as in BERT: Devlin et al. 2019, §3). `<path>.sum` is the sum before the embedding's own norm, where it has
    one."""
    path, module = embedding_of(record.model, side)
    scale = Constant(module.scale, "embed_scale")
    embed: Reads = {"id_t": Read(record.ids_of(side), "t"), "E": f"{path}.tokens.weight", "scale": scale}
    row: dict[str, Further] = {"id_t": lambda at: at.whole("id_t")}
    rules = {f"{path}.embed": Rule("embed[t,d]", "E[id_t, d] · scale", embed, row)}
    total, reads = "embed[t,d]", Reads({"embed": f"{path}.embed"})
    if module.positions is not None:
        rules[f"{path}.position"] = _position(record, path, module)
        total, reads["position"] = f"{total} + position[t,d]", f"{path}.position"
    if module.segments is not None:
        total += " + segment[A,d]"
        reads["segment"] = Read(f"{path}.segments.weight", "A,d", say("sentence A"))

    def made() -> Tensor:
        x = record.need(f"{path}.embed")
        if module.positions is not None:
            x = x + record.need(f"{path}.position")
        return x if module.segments is None else x + module.segments.weight[0]

    if not isinstance(module.norm, tuple(NORMS.values())):
        return {**rules, first: Rule("resid_pre[t,d]", total, reads, {"A": lambda at: 0})}
    rules[f"{path}.sum"] = Rule("sum[t,d]", total, reads, {"A": lambda at: 0}, made=made)
    return {**rules, first: norm_rule(record, "resid_pre[t,i]", f"{path}.norm", f"{path}.sum")}


def _position(record: Record, path: str, module: Embedding) -> Rule:
    """A learned row, or a row of sines and cosines."""
    name, offset = "t + position_offset", module.offset
    if not isinstance(module.positions, Sinusoidal):
        rows: Reads = {"P": f"{path}.positions.weight"}
        return Rule("position[t,d]", f"P[{name}, d]", rows, {name: lambda at: at["t"] + offset})
    half = record.config.d_model // 2
    steps = max(half - 1 if record.config.sinusoid == "halves_m2m" else half, 1)

    def right(at: Places) -> str:
        return f"{'sin' if at['d'] < half else 'cos'}(pos / 10000^(i/n))"

    def wave(at: Sheet, pos: Rounded, i: Rounded, n: Rounded) -> Rounded:
        place = pos.value.item()
        angle = place * 10_000 ** (-i.value.item() / n.value.item())
        # The table is made in float64 and rounded once.
        return _once(math.sin(angle) if at["d"] < half else math.cos(angle), pos.dtype, 1e-14 * place)

    reads: Reads = {
        "pos": Constant(lambda at: at["t"] + offset, name),
        "i": Constant(lambda at: at["d"] % half, say("d mod D/2: the pair of coordinates")),
        "n": Constant(steps, say("D/2 frequencies, or one less in M2M100's layout")),
    }
    return Rule("position[t,d]", right, reads, work=wave)


def _once(value: float, dtype: torch.dtype, error: float = 0.0) -> Rounded:
    """A number that was rounded to a type once."""
    bound = torch.finfo(dtype).eps / 2 * abs(value) + error
    return Rounded(torch.tensor(value, dtype=torch.float64), bound, dtype)


def rotary_rules(record: Record, path: str, length: int) -> Rules:
    """`<path>.cos` and `<path>.sin` (T, E), what queries and keys are turned by, and the frequencies (E/2,) behind them
    (Su et al. 2021, §3.4.2)."""
    module = record.model.get_submodule(path)
    assert isinstance(module, Rotary)
    half, rules = module.d_head // 2, {f"{path}.frequency": _frequency(module)}
    reads: Reads = {
        "a": Constant(module.amplitude, say("1, but for YaRN's attention factor")),
        "t": Constant(lambda at: at["t"], say("the position")),
        "θ_i": Read(f"{path}.frequency", "i"),
    }
    for place, name in enumerate(("cos", "sin")):

        def made(place: int = place) -> Tensor:
            device = record.tables[f"{path}.frequency"].device
            return module.angles(torch.arange(length, device=device)[None])[place][0, 0]

        right, further = f"a · {name}(t · θ_i),  i = e mod E/2", {"i": lambda at: at["e"] % half}
        rules[f"{path}.{name}"] = Rule(f"{name}[t,e]", right, reads, further, made=made)
    return rules


def _frequency(module: Rotary) -> Rule:
    """base^(-2i/E), stretched for longer texts (see `config.RopeScaling` for the kinds).

    r is how much of a frequency is kept as it was: by its turns within the length first trained at (Llama 3.1), or by
    pair (YaRN: Peng et al. 2023, §3.2).
    """
    half, scaling, plain = module.d_head // 2, module.scaling, "base^(-2i/E)"
    reads: Reads = {
        "base": Constant(module.base, say("rope_base, or rope_local_base in layers with a window")),
        "2i/E": Constant(lambda at: at["i"] / half, say("the pair's place in the head")),
    }
    if scaling is None or scaling.kind == "dynamic":
        return Rule("θ_i", plain, reads, work=_unstretched, places="i")
    reads["factor"] = Constant(scaling.factor, "rope_scaling")
    if scaling.kind == "linear":
        return Rule("θ_i", f"{plain} / factor", reads, work=_stretched, places="i")
    length = scaling.original_max_len or 1

    def turning(name: str, turns: float) -> tuple[float, Phrase]:
        """Which pair turns so many times within the length first trained at."""
        text = say(
            "the pair that turns {turns:g} times ({name}) within {length} tokens (original_max_len)",
            turns=turns,
            name=name,
            length=scaling.original_max_len,
        )
        return half * math.log(length / (turns * 2 * math.pi)) / math.log(module.base), text

    if scaling.kind == "llama3":
        kept = f"(n · {plain} / 2π - low) / (high - low) within 0 and 1"
        reads["n"] = Constant(length, "original_max_len")
        reads["low"] = Constant(scaling.low_freq_factor, "low_freq_factor")
        reads["high"] = Constant(scaling.high_freq_factor, "high_freq_factor")
    else:
        kept = "1 - (i - first) / (last - first) within 0 and 1"
        reads["i"] = Constant(lambda at: at["i"], say("the pair"))
        (first, fast), (last, slow) = (
            turning("beta_fast", scaling.beta_fast),
            turning("beta_slow", scaling.beta_slow),
        )
        reads["first"] = Constant(max(math.floor(first), 0), fast)
        reads["last"] = Constant(min(math.ceil(last), 2 * half - 1), slow)

    def work(at: Sheet, base: Rounded, power: Rounded, factor: Rounded, *ends: Rounded) -> Rounded:
        plain, first = _unstretched(at, base, power), ends[0]
        low, high = (each.value.item() for each in ends[1:])
        if scaling.kind == "llama3":
            kept = ((plain * first / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
        else:
            kept = -((first - low) / max(high - low, 1e-3)).clamp(0, 1) + 1
        return plain / factor * (-kept + 1) + plain * kept

    right = f"r · {plain} + (1 - r) · {plain} / factor,  r = {kept}"
    return Rule("θ_i", right, reads, work=work, places="i")


def _unstretched(at: Sheet, base: Rounded, power: Rounded) -> Rounded:
    return (-(power * base.log())).exp()


def _stretched(at: Sheet, base: Rounded, power: Rounded, factor: Rounded) -> Rounded:
    return _unstretched(at, base, power) / factor


def alibi_rules(record: Record, path: str) -> Rules:
    """`<path>.slopes` (H,): 2^(-8h/H) for H a power of two, the heads counted from 1 (Press et al. 2022, §3)."""
    module = record.model.get_submodule(path)
    assert isinstance(module, AlibiBias)
    heads = module.slopes.numel()
    power, note = 2 ** math.floor(math.log2(heads)), None
    if power < heads:
        note = say("the heads beyond the greatest power of two take every other slope of twice as many")

    def slope(at: Sheet, n: Rounded, of: Rounded) -> Rounded:
        return _once(2 ** (-8 * n.value.item() / of.value.item()), n.dtype)

    def number(at: Sheet) -> int:
        return at["h"] + 1 if at["h"] < power else 2 * (at["h"] - power) + 1

    reads: Reads = {
        "n": Constant(number, say("the head's number, from 1")),
        "H": Constant(lambda at: power if at["h"] < power else 2 * power, say("heads: a power of two")),
    }
    return {f"{path}.slopes": Rule("m_h", "2^(-8n/H)", reads, note=note, work=slope, places="h")}
