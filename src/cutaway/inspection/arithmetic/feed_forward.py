"""The feed-forward network and the mixture of experts, number by number."""

from collections.abc import Sequence

import torch

from cutaway.inspection.arithmetic.record import Numbers, Record, Sheet, Steps
from cutaway.inspection.arithmetic.rounding import ACTIVATIONS, Rounded, softmax
from cutaway.nn.mlp import MLP, GatedMLP
from cutaway.nn.moe import MoE
from cutaway.words import say


def mlp_steps(record: Record, path: str, source: str, given: Sequence[int] | None = None) -> Steps:
    """Of the network at `path`, which reads `source` (Vaswani et al. 2017, §3.3; gated: Shazeer 2020).

    `<path>.up` (B, T, F) is what the gate of a gated network is multiplied with. `given` are the tokens that an expert
    was given, in its own order; None: every token.
    """
    module = record.model.get_submodule(path)
    assert isinstance(module, MLP)
    function, written = ACTIVATIONS[record.config.activation]
    gated = isinstance(module, GatedMLP)
    letters = {"gate": "g", "up": "u"}

    def product(layer: str, name: str) -> Steps:
        def step(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
            _, n, f = index
            t = n if given is None else given[n]
            x = sheet.take("x", source, 0, t, slice(None))
            letter = letters[layer]
            bias = f" + b_{letter}[f]" if sheet.has(f"{path}.{layer}.bias") else ""
            result = sheet.affine(x, f"{path}.{layer}", f, letter)
            return f"{name}[t,f] = Σ_d x[t,d] · W_{letter}[f, d]{bias}", result

        return {f"{path}.{name}": step}

    def hidden(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        value = function(sheet.take("x", f"{path}.pre", *index, meaning="pre[t,f]"))
        if not gated:
            return f"hidden[t,f] = {written}", value
        return f"hidden[t,f] = {written} · up[t,f]", value * sheet.take("up", f"{path}.up", *index)

    def out(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, n, d = index
        neurons = sheet.take("hidden", f"{path}.hidden", 0, n, slice(None))
        bias = " + b_d[d]" if sheet.has(f"{path}.down.bias") else ""
        return (
            f"out[t,d] = Σ_f hidden[t,f] · W_d[d, f]{bias}",
            sheet.affine(neurons, f"{path}.down", d, "d"),
        )

    def up() -> torch.Tensor:
        x = record.need(source)
        return module.up(x if given is None else x[:, list(given)])

    steps: Steps = {f"{path}.hidden": hidden, f"{path}.out": out}
    if not gated:
        return steps | product("up", "pre")
    record.add(f"{path}.up", up)
    return steps | product("gate", "pre") | product("up", "up")


def moe_steps(record: Record, path: str, source: str) -> Steps:
    """Of the mixture of experts at `path`, and of each expert that was given a token (Shazeer et al. 2017, §2; Jiang et
    al. 2024, §2.1)."""
    module = record.model.get_submodule(path)
    assert isinstance(module, MoE)

    def router(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, t, x = index
        value = sheet.take("x", source, 0, t, slice(None))
        return "router[t,i] = Σ_d x[t,d] · W_r[i, d]", sheet.affine(value, f"{path}.router", x, "r")

    def probabilities(sheet: Sheet, t: int) -> Rounded:
        return softmax(sheet.take("r", f"{path}.router", 0, t, slice(None)))

    def expert_index(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, t, a = index
        p = probabilities(sheet, t)
        best = int(p.value.argsort(descending=True, stable=True)[a])
        recorded = int(record.need(f"{path}.expert_index")[index])
        if p.value[best] - p.value[recorded] <= p.error[best] + p.error[recorded] and recorded != best:
            best = recorded
            sheet.note = say("two experts are equally probable but for rounding: either may come first")
        return "expert_index[t,a] = the number of the a-th greatest r[i]", sheet.exact(best)

    def expert_weight(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, t, a = index
        p = probabilities(sheet, t)
        chosen = sheet.take("i", f"{path}.expert_index", 0, t, slice(None)).value.long()
        weights = p[chosen]
        if not module.renormalise:
            return "expert_weight[t,a] = p[i_a],  p = softmax(r)", weights[a]
        return "expert_weight[t,a] = p[i_a] / Σ_b p[i_b],  p = softmax(r)", weights[a] / weights.sum()

    def expert_out(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, t, a, d = index
        expert = sheet.whole("i", f"{path}.expert_index", 0, t, a)
        n = tokens(expert).index(t)
        value = sheet.take("out_i", f"{path}.experts.{expert}.out", 0, n, d)
        sheet.note = say(
            "n = {n}: which of the tokens that expert {expert} was given this is", n=n, expert=expert
        )
        return "expert_out[t,a,d] = out_i[n,d] of expert i", value

    def out(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, t, d = index
        weights = sheet.take("w", f"{path}.expert_weight", 0, t, slice(None))
        outs = sheet.take("o", f"{path}.expert_out", 0, t, slice(None), d)
        return "out[t,d] = Σ_a w[t,a] · o[t,a,d]", weights.dot(outs)

    chosen = record.need(f"{path}.expert_index")[0].tolist()  # (T, A)

    def tokens(expert: int) -> list[int]:
        """In the order in which the expert has them."""
        return [t for t, experts in enumerate(chosen) for one in experts if one == expert]

    steps: Steps = {
        f"{path}.router": router,
        f"{path}.expert_index": expert_index,
        f"{path}.expert_weight": expert_weight,
        f"{path}.expert_out": expert_out,
        f"{path}.out": out,
    }
    for expert in sorted({one for experts in chosen for one in experts}):
        steps |= mlp_steps(record, f"{path}.experts.{expert}", source, tokens(expert))
    return steps
