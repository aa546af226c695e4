"""The rules of a stack: the residual stream, attention, the feed-forward network, the mixture of experts."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cutaway.inspection.arithmetic.formula import Constant, Further, Places, Read, Reads, Rule, Rules, Sheet
from cutaway.inspection.arithmetic.input_rules import alibi_rules, embedding_rules, rotary_rules
from cutaway.inspection.arithmetic.record import Record
from cutaway.inspection.arithmetic.rounding import ACTIVATIONS, Rounded, softmax
from cutaway.inspection.arithmetic.shared_rules import linear, norm_rule
from cutaway.inspection.wiring import Place, Side, Sublayer, places, stack_entry, stack_of, stack_result
from cutaway.nn.bias import AlibiBias, RelativeBias
from cutaway.nn.mlp import MLP, GatedMLP
from cutaway.nn.moe import MoE
from cutaway.nn.norm import PostNorm, SandwichNorm
from cutaway.words import Phrase, say


def stack_rules(record: Record, side: Side, memory: str, layer: int | None = None) -> Rules:
    """Of a side's whole stack with the embedding that feeds it, or of one layer alone with what stands before and after
    all layers; `memory` is the name of what cross-attention reads."""
    stack = stack_of(record.model, side)
    rules = embedding_rules(record, side, stack_entry(side))
    for name in ("rotary", "local_rotary"):
        if getattr(stack, name) is not None:
            rules |= rotary_rules(record, f"{side}.{name}", record.need(record.ids_of(side)).shape[1])
    if isinstance(stack.relative, AlibiBias):
        rules |= alibi_rules(record, f"{side}.relative")
    last = ""
    for place in places(record.model, side):
        if layer not in (None, place.layer):
            last = f"{place.path}.resid_post"
            continue
        if last:
            rules[f"{place.path}.resid_pre"] = _same("resid_pre", last, say("the block before leaves it"))
        for sublayer in place.sublayers:
            rules |= _residual_rules(record, place, sublayer)
            reads = f"{place.path}.{sublayer.residual}.normed"
            if isinstance(place.residual(sublayer), PostNorm):
                reads = place.before(sublayer)
            if sublayer.part == "attention":
                rules |= _attention_rules(record, place, reads, reads)
            elif sublayer.part == "cross":
                rules |= _attention_rules(record, Place("cross", place.layer, stack), reads, memory)
            else:
                network = _moe_rules if isinstance(place.block.mlp, MoE) else _mlp_rules
                rules |= network(record, f"{place.path}.{sublayer.module}", reads)
            last = f"{place.path}.{sublayer.after}"
    normed = stack_result(side)
    if isinstance(stack.norm, nn.Identity):
        return {**rules, normed: _same("normed", last, say("this model has no norm after the last block"))}
    return {**rules, normed: norm_rule(record, "normed[t,i]", f"{side}.norm", last)}


# The residual stream.


def _same(letter: str, source: str, why: Phrase) -> Rule:
    return Rule(f"{letter}[t,d]", "resid_post[t,d]", {"resid_post": source}, note=why)


def _residual_rules(record: Record, place: Place, sublayer: Sublayer) -> Rules:
    """Of one residual connection. `<residual>.sum` is stream + sublayer before a post-norm, `<residual>.out_norm` what
    a sublayer writes after a sandwich's second norm."""
    module, path = place.residual(sublayer), f"{place.path}.{sublayer.residual}"
    before, out = place.before(sublayer), f"{place.path}.{sublayer.module}.out"
    stream, written = before.removeprefix(f"{place.path}."), f"{sublayer.module}.out"
    after, left = f"{place.path}.{sublayer.after}", sublayer.after
    total, reads = f"{stream}[t,d] + {written}[t,d]", {stream: before, written: out}
    if isinstance(module, PostNorm):
        made = Rule("sum[t,d]", total, reads, made=lambda: record.need(before) + record.need(out))
        return {f"{path}.sum": made, after: norm_rule(record, f"{left}[t,i]", f"{path}.norm", f"{path}.sum")}
    rules = {f"{path}.normed": norm_rule(record, "normed[t,i]", f"{path}.norm", before)}
    if isinstance(module, SandwichNorm):
        norm, name = module.out_norm, f"{path}.out_norm"
        rules[name] = norm_rule(record, "out_norm[t,i]", name, out, made=lambda: norm(record.need(out)))
        total, reads = f"{stream}[t,d] + out_norm[t,d]", {stream: before, "out_norm": name}
    return {**rules, after: Rule(f"{left}[t,d]", total, reads)}


# Attention (Vaswani et al. 2017, §3.2). h is a query head, g the key/value head that it reads; t a query, s a key.


def _attention_rules(record: Record, place: Place, queries_from: str, keys_from: str) -> Rules:
    """All taps of one attention, and `<path>.q_proj` and `<path>.k_proj` where heads are normalised after them."""
    path, module = place.attention_path, place.attention
    groups, turned = module.groups, "" if place.rotary is None else "_rot"
    usual = f"1/√E = 1/√{module.d_head}" if math.isclose(module.scale, module.d_head**-0.5) else "attn_scale"
    shared: dict[str, Further] = {"g": lambda at: at["h"] // groups}
    note = say("g = h")
    if groups > 1:
        note = say("g = ⌊h / {groups}⌋: {groups} query heads share a key/value head", groups=groups)
    scores: Reads = {"q": f"{path}.q{turned}", "k": f"{path}.k{turned}"}
    scaled: Reads = {"scores": f"{path}.scores", "scale": Constant(module.scale, usual)}
    pattern: Reads = {"m": Read(f"{path}.masked", "h,t,j")}
    values: Reads = {"a": f"{path}.pattern", "v": f"{path}.v"}
    out = linear(record, f"{path}.o_proj", "o", "d", f"{path}.z", "z[h,t,e]", "Σ_h Σ_e", "hE+e")
    softmax = "exp(m[s] - max m) / Σ_j exp(m[j] - max m)"
    return {
        **_projected(record, place, "q", queries_from, "h", "t"),
        **_projected(record, place, "k", keys_from, "g", "s"),
        **_projected(record, place, "v", keys_from, "g", "s"),
        **_rotated(place, "q", "h", "t"),
        **_rotated(place, "k", "g", "s"),
        f"{path}.scores": Rule("scores[h,t,s]", "Σ_e q[h,t,e] · k[g,s,e]", scores, shared, note),
        f"{path}.scaled": Rule("scaled[h,t,s]", "scores[h,t,s] · scale", scaled),
        f"{path}.masked": _masked(place),
        f"{path}.pattern": Rule("pattern[h,t,s]", softmax, pattern, follows="m[s]"),
        f"{path}.z": Rule("z[h,t,e]", "Σ_s a[h,t,s] · v[g,s,e]", values, shared, note),
        f"{path}.out": Rule("out[t,d]", *out),
    }


def _projected(record: Record, place: Place, letter: str, source: str, head: str, token: str) -> Rules:
    """Queries, keys or values, made of what `source` has at a token."""
    path, width = place.attention_path, place.attention.d_head
    layer, left = f"{path}.{letter}_proj", f"{letter}[{head},{token},"
    x, row, own = f"x[{token},d]", f"{head}E+e", f"{head}E:{head}E+E"
    if getattr(place.attention, f"{letter}_norm", None) is None:
        further: dict[str, Further] = {row: lambda at: at[head] * width + at["e"]}
        plain = linear(record, layer, letter, row, source, x)
        return {f"{path}.{letter}": Rule(f"{left}e]", *plain, further)}
    module = record.model.get_submodule(layer)
    further = {own: lambda at: slice(at[head] * width, (at[head] + 1) * width)}
    plain = linear(record, layer, letter, "i", source, x)
    normed = norm_rule(record, f"{left}i]", f"{path}.{letter}_norm", layer, f"{token},{own}", further)
    made = Rule(f"{letter}_proj[{token},i]", *plain, made=lambda: module(record.need(source)))
    return {layer: made, f"{path}.{letter}": normed}


def _rotated(place: Place, letter: str, head: str, token: str) -> Rules:
    rotary, half = place.rotary, place.attention.d_head // 2
    if rotary is None:
        return {}
    name, q = f"{place.attention_path}.{letter}", f"{letter}[{head},{token},"

    def right(at: Places) -> str:
        return f"{q}e] · cos[{token},e] {'-' if at['e'] < half else '+'} {q}e'] · sin[{token},e]"

    pair = say("e' is the other coordinate of the pair: e + E/2 for the first half, e - E/2 for the second")
    reads: Reads = {letter: name, "cos": f"{rotary}.cos", "sin": f"{rotary}.sin"}
    further: dict[str, Further] = {"e'": lambda at: (at["e"] + half) % (2 * half)}
    return {f"{name}_rot": Rule(f"{letter}_rot[{head},{token},e]", right, reads, further, pair)}


def _masked(place: Place) -> Rule:
    """Scaled scores with all that their stack adds to them; cross-attention knows no positions and no mask here."""
    stack, bias, text = place.stack, place.stack.relative, "scaled[h,t,s]"
    window = stack.window if place.layer in stack.window_layers else None
    reads: Reads = {"scaled": f"{place.attention_path}.scaled"}
    further: dict[str, Further] = {}
    if place.attention.softcap is not None:
        text, reads["c"] = "c · tanh(scaled[h,t,s] / c)", Constant(place.attention.softcap, "attn_softcap")
    if place.side == "cross":
        return Rule("masked[h,t,s]", text, reads)

    def why(at: Places) -> Phrase | None:
        if stack.causal and at["s"] > at["t"]:
            return say("the key stands after the query")
        if window is not None and at["s"] <= at["t"] - window:
            return say("{window} or more tokens lie between", window=window)
        return None

    if isinstance(bias, RelativeBias):
        table, device = f"{place.side}.relative.table.weight", bias.table.weight.device
        reads["B"] = Read(table, meaning=lambda at: say("the bucket of distance {s}", s=at["s"] - at["t"]))
        text += " + B[bucket(s - t), h]"
        further["bucket(s - t)"] = lambda at: int(
            bias.bucket(torch.tensor([at["s"] - at["t"]], device=device))
        )
    elif isinstance(bias, AlibiBias):
        text += " - m_h · |s - t|"
        reads["m_h"] = Read(f"{place.side}.relative.slopes", "h")
        reads["|s - t|"] = Constant(lambda at: abs(at["s"] - at["t"]), say("tokens between key and query"))
    reads["mask"] = Constant(-math.inf, lambda at: why(at) or "")
    return Rule("masked[h,t,s]", lambda at: f"{text} + mask[t,s]" if why(at) else text, reads, further)


# Feed-forward networks (Vaswani et al. 2017, §3.3; gated: Shazeer 2020).


def _mlp_rules(record: Record, path: str, source: str, given: Sequence[int] | None = None) -> Rules:
    """Of the network at `path`, which reads `source`.

    `<path>.up` (B, T, F) is what the gate of a gated network is multiplied with. `given` are the tokens that an expert
    was given, which it counts from 0 by n; None: every token t.
    """
    module, (function, written) = record.model.get_submodule(path), ACTIVATIONS[record.config.activation]
    assert isinstance(module, MLP)
    gated, n = isinstance(module, GatedMLP), "t" if given is None else "n"
    further: dict[str, Further] = {} if given is None else {"t": lambda at: given[at["n"]]}

    def which(at: Sheet) -> Phrase | None:
        if given is None:
            return None
        return say("n counts the tokens that this expert was given, t those of the text: t = {t}", t=at["t"])

    def product(name: str, layer: str) -> Rule:
        plain = linear(record, f"{path}.{layer}", layer, "f", source)
        return Rule(f"{name}[{n},f]", *plain, further, which, made=up if name == "up" else None)

    def up() -> Tensor:
        x = record.need(source)
        return module.up(x if given is None else x[:, list(given)])

    def hidden(at: Sheet, x: Rounded, up: Rounded | None = None) -> Rounded:
        return function(x) if up is None else function(x) * up

    reads: Reads = {"x": Read(f"{path}.pre", f"{n},f", f"pre[{n},f]")}
    if gated:
        written, reads[f"up[{n},f]"] = f"{written} · up[{n},f]", f"{path}.up"
    down = linear(record, f"{path}.down", "down", "d", f"{path}.hidden", f"hidden[{n},f]", "Σ_f", "f")
    return {
        f"{path}.pre": product("pre", "gate" if gated else "up"),
        **({f"{path}.up": product("up", "up")} if gated else {}),
        f"{path}.hidden": Rule(f"hidden[{n},f]", written, reads, further, work=hidden),
        f"{path}.out": Rule(f"out[{n},d]", *down, further),
    }


# Mixtures of experts (Shazeer et al. 2017, §2; Jiang et al. 2024, §2.1).


def _moe_rules(record: Record, path: str, source: str) -> Rules:
    """Of the mixture of experts at `path`, and of each expert that was given a token."""
    module, index = record.model.get_submodule(path), f"{path}.expert_index"
    assert isinstance(module, MoE)
    # The tokens of each expert, in the order in which it has them.
    given: dict[int, list[int]] = {}
    for t, experts in enumerate(record.need(index)[0].tolist()):  # (T, A)
        for expert in experts:
            given.setdefault(expert, []).append(t)

    def best(at: Sheet, r: Rounded) -> Rounded:
        """Of two experts that are equally probable but for rounding, the one that the run took."""
        p = softmax(r)
        best = int(p.value.argsort(descending=True, stable=True)[at["a"]])
        taken = int(record.need(index)[0, at["t"], at["a"]])
        if taken != best and p.value[best] - p.value[taken] <= p.error[best] + p.error[taken]:
            best = taken
            at.note = say("two experts are equally probable but for rounding: either may come first")
        return Rounded(torch.tensor(float(best), dtype=torch.float64), 0.0, p.dtype)

    def weight(at: Sheet, r: Rounded, chosen: Rounded) -> Rounded:
        weights = softmax(r)[chosen.value.long()]
        return weights[at["a"]] / weights.sum() if module.renormalise else weights[at["a"]]

    def expert_of(at: Sheet) -> int:
        return at.whole("i[t,a]")

    def which(at: Sheet) -> Phrase:
        return say(
            "n = {n}: which of the tokens that expert {expert} was given this is",
            n=at["n"],
            expert=expert_of(at),
        )

    router: Reads = {"r": Read(f"{path}.router", "t,j")}
    right = f"p[i_a]{' / Σ_b p[i_b]' if module.renormalise else ''},  p = softmax(r)"
    outs: Reads = {"i": index, "out_i": Read(lambda at: f"{path}.experts.{expert_of(at)}.out")}
    place: dict[str, Further] = {"n": lambda at: given[expert_of(at)].index(at["t"])}
    weighed: Reads = {"w": f"{path}.expert_weight", "o": f"{path}.expert_out"}
    greatest = "the number of the a-th greatest r[i]"
    rules = {
        f"{path}.router": Rule("router[t,j]", *linear(record, f"{path}.router", "r", "j", source)),
        index: Rule("expert_index[t,a]", greatest, router, work=best),
        f"{path}.expert_weight": Rule(
            "expert_weight[t,a]", right, {**router, "i": Read(index, "t,b")}, work=weight
        ),
        f"{path}.expert_out": Rule("expert_out[t,a,d]", "out_i[n,d]", outs, place, which),
        f"{path}.out": Rule("out[t,d]", "Σ_a w[t,a] · o[t,a,d]", weighed),
    }
    for expert in sorted(given):
        rules |= _mlp_rules(record, f"{path}.experts.{expert}", source, given[expert])
    return rules
