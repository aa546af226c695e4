"""The page of a mixture of experts: who was given what."""

from typing import TYPE_CHECKING

import numpy as np

from cutaway.inspection.pages.words import LAYER, SIDES, TOKEN, left, right
from cutaway.page.blocks import Bar, Block, Heading, Matrix, Page, Prose, Remark, Table, page
from cutaway.page.locale import Both, Text
from cutaway.page.numbers import share
from cutaway.text.display import truncate

if TYPE_CHECKING:
    from cutaway.inspection.layers.routing import LayerRouting, Routing

EXPERT = Both("expert", "专家")
LOAD = Both("load", "负载")
LISTED = 16  # experts up to which also those without a token are listed
DETAILED = 1024  # tokens, of all layers together, that are told one by one


def routing_page(found: "Routing") -> Page:
    """Layer by layer; where layers and tokens are many, token by token only in the first layers."""
    n_layers, n_tokens = len(found.layers), max(len(each.tokens) for each in found.layers)
    shown = found.layers[: max(1, DETAILED // n_tokens)]
    blocks: list[Block] = []
    for place, each in enumerate(shown):
        if place:
            blocks.append(Heading(_title(each)))
        blocks += _layer(each)
    if len(shown) < n_layers:
        n = len(shown)
        blocks.append(
            Remark(
                Both(
                    f"Token by token: the first {n} of {n_layers} layers; any other one by --layer N, or by itself: "
                    "layers[N].",
                    f"逐词块只列出 {n_layers} 层中的前 {n} 层；其他层用 --layer N，或单独显示 layers[N]。",
                )
            )
        )
    if found.dense:
        names = ", ".join(found.dense)
        blocks.append(Remark(Both(f"Layers without experts: {names}.", f"没有专家的层：{names}。")))
    blocks.append(_RUNNER_UP)
    if n_layers > 1:
        blocks += [Heading(Both("The loads of all layers", "所有层的负载")), _loads(found)]
    return page(_title(found.layers[0]), blocks)


def layer_routing_page(each: "LayerRouting") -> Page:
    return page(_title(each), [*_layer(each), _RUNNER_UP])


_RUNNER_UP = Remark(
    Both(
        "runner-up: the probability of the best expert that was not chosen. On one text a load is uneven by chance "
        "too.",
        "次优：未被选中的专家中最大的概率。只看一段文字，负载不均也可能出于偶然。",
    )
)


def _title(each: "LayerRouting") -> Both:
    side, chosen, experts = SIDES[each.side], each.chosen.shape[1], each.scores.shape[1]
    return Both(
        f"{side.en} layer {each.layer}: {chosen} of {experts} experts for each token",
        f"{side.zh}第 {each.layer} 层：每个词块选用 {experts} 个专家中的 {chosen} 个",
    )


def _loads(found: "Routing") -> Matrix:
    """Layers down, experts across."""
    several = len({each.side for each in found.layers}) > 1
    return Matrix(
        np.stack([each.load.detach().cpu().double().numpy() for each in found.layers]),
        [f"{each.side} {each.layer}" if several else str(each.layer) for each in found.layers],
        [str(expert) for expert in range(found.n_experts)],
        LAYER,
        EXPERT,
        LOAD,
        drawn=True,
    )


def _layer(each: "LayerRouting") -> list[Block]:
    pieces, n_experts = each.tokens.pieces, each.scores.shape[1]
    rows = []
    for t, piece in enumerate(pieces):
        chosen = zip(each.chosen[t].tolist(), each.weights[t].tolist(), strict=True)
        pairs = "  ".join(f"{expert} {share(weight)}" for expert, weight in chosen)
        rows.append((truncate(piece, 14), pairs, share(float(each.runner_up[t]))))
    loads: list[tuple[Text | Bar, ...]] = [
        (str(expert), str(count), share(load), Bar(load))
        for expert, (count, load) in enumerate(zip(each.counts.tolist(), each.load.tolist(), strict=True))
        if count or n_experts <= LISTED
    ]
    idle = None
    if len(loads) < n_experts:
        n = n_experts - len(loads)
        idle = Remark(Both(f"{n} experts were given no token.", f"另有 {n} 个专家没有分到词块。"))
    router = Matrix(
        each.probabilities.detach().cpu().double().numpy(),
        pieces,
        [str(expert) for expert in range(n_experts)],
        TOKEN,
        EXPERT,
        Both("probability by the router", "路由器给出的概率"),
        drawn=True,
    )
    blocks: list[Block | None] = [
        Table(
            [left(TOKEN), left(Both("experts and weights", "专家与权重")), right(Both("runner-up", "次优"))],
            rows,
        ),
        router,
        Table([right(EXPERT), right(Both("tokens", "词块数")), right(LOAD), left("")], loads),
        idle,
        Prose(
            Both("balance", "均衡"), Both(f"{each.balance:.3f} (1 even)", f"{each.balance:.3f}（1 为均匀）")
        ),
        Prose(
            Both("evenness", "均匀度"),
            Both(
                f"{each.evenness:.3f} (entropy of the load, 1 even)",
                f"{each.evenness:.3f}（负载的熵，1 为均匀）",
            ),
        ),
    ]
    return [block for block in blocks if block is not None]
