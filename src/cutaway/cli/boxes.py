"""The drawing of a model after Figure 1 of Vaswani et al. 2017: ids enter at the bottom, what comes out is on top."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from cutaway.cli.hanging import either, hanging
from cutaway.text.display import pad, width
from cutaway.words import Locale

if TYPE_CHECKING:  # a command's module loads nothing heavy at its top
    from cutaway.config import ModelConfig

Say = Callable[[str, str], str]
ACTIVATIONS = {"relu": "ReLU", "gelu": "GELU", "gelu_tanh": "GELU tanh", "silu": "SiLU"}
NORMS = {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm", "rmsnorm1p": "RMSNorm"}
CROSS = ("Cross-attention", "交叉注意力")
TEXT = 28  # columns of text in a box
FRAME = TEXT + 4
MARGIN = 6  # room for "24 ×" beside a stack
GAP = 4  # between encoder and decoder, where the memory runs
BOTH = MARGIN + FRAME + GAP + FRAME + MARGIN


def draw(config: "ModelConfig", columns: int, locale: Locale = "en") -> list[str]:
    """The lines of the figure; two stacks stand side by side where `columns` terminal columns allow."""
    say = partial(either, locale=locale)
    above, below = [*_head(config, say), *_final_norm(config, say)], _input(config, say)
    if config.family != "encoder-decoder":
        blocks = _blocks(config, say, causal=config.family == "decoder-only", cross=False)
        top = say("vectors", "向量") if config.head == "none" else "logits"
        stack = _Column(above, blocks, below)
        return [_centre(top), *_beside(stack, config.n_layers), _centre(say("ids", "编号"))]
    encoder = _Column(_final_norm(config, say), _blocks(config, say, causal=False, cross=False), below)
    decoder = _Column(above, _blocks(config, say, causal=True, cross=True), below)
    if columns < BOTH:
        return [
            _centre("logits"),
            *_beside(decoder, config.n_layers),
            _centre(
                say("target ids, and the memory for cross-attention", "译文编号，以及供交叉注意力读取的记忆")
            ),
            "",
            _centre(say("memory", "记忆")),
            *_beside(encoder, config.encoder_layers),
            _centre(say("source ids", "原文编号")),
        ]
    return _side_by_side(config, encoder, decoder, say)


@dataclass(frozen=True)
class _Column:
    """Boxes on one another: those above the repeated ones, the repeated ones, those below. A box is its lines."""

    above: list[str]
    blocks: list[list[str]]
    below: list[str]

    def lines(self) -> list[str]:
        rule = "─" * (FRAME - 2)
        double = "═" * (FRAME - 2)
        arrow = rule[: len(rule) // 2] + "▲" + rule[len(rule) // 2 + 1 :]
        drawn = [f"┌{arrow}┐", *_framed(self.above), *([f"╞{double}╡"] if self.above else [])]
        for number, box in enumerate(self.blocks):
            drawn += [*([f"├{rule}┤"] if number else []), *_framed(box)]
        return [*drawn, f"╞{double}╡", *_framed(self.below), f"└{arrow}┘"]

    def middle(self) -> int:
        """The line beside which the number of repetitions stands."""
        return self.first() + (sum(map(len, self.blocks)) + len(self.blocks) - 1) // 2

    def first(self) -> int:
        """The line where the repeated boxes begin."""
        return 1 + (len(self.above) + 1 if self.above else 0)

    def find(self, start: str) -> int:
        return next(row for row, line in enumerate(self.lines()) if line.startswith(f"│ {start}"))


def _framed(lines: Iterable[str]) -> list[str]:
    return [f"│ {pad(line, TEXT)} │" for line in lines]


def _centre(text: str) -> str:
    return pad(text, FRAME, "center").rstrip()


def _beside(column: _Column, times: int) -> list[str]:
    return [
        f"{line} {times} ×" if row == column.middle() else line for row, line in enumerate(column.lines())
    ]


def _side_by_side(config: "ModelConfig", encoder: _Column, decoder: _Column, say: Say) -> list[str]:
    """The encoder on the left, standing on the same ground; the memory goes over its top into cross-attention."""
    right, left = decoder.lines(), encoder.lines()
    lift = len(right) - len(left)  # the decoder has a box more, so this is at least 1
    enters = decoder.find(say(*CROSS))
    drawn = [" " * (MARGIN + FRAME + GAP) + _centre("logits")]
    for row, line in enumerate(right):
        times = ""
        if row < lift - 1:
            start, way = "", " " * GAP
        elif row == lift - 1:
            label = pad(say("memory", "记忆"), FRAME // 2, "right")
            start, way = f"{label} {'─' * (FRAME - width(label) - 1)}", "─┐  "
        else:
            start, way = left[row - lift], " │  " if row < enters else " └─►" if row == enters else " " * GAP
            times = f"{config.encoder_layers} ×" if row - lift == encoder.middle() else ""
        after = f" {config.n_layers} ×" if row == decoder.middle() else ""
        drawn.append(f"{pad(times, MARGIN - 1, 'right')} {pad(start, FRAME)}{way}{line}{after}")
    ids = pad(_centre(say("source ids", "原文编号")), FRAME + GAP) + _centre(say("target ids", "译文编号"))
    return [*drawn, " " * MARGIN + ids]


# What stands in the boxes, top line first.


def _lines(*texts: str) -> list[str]:
    """Each text in the width of a box, continued lines set in."""
    return [line for text in texts for line in hanging(text, TEXT)]


def _norm(config: "ModelConfig", say: Say) -> str:
    return NORMS[config.norm] + (say(", 1 + weight", "，1 + 权重") if config.norm == "rmsnorm1p" else "")


def _head(config: "ModelConfig", say: Say) -> list[str]:
    if config.head == "none":
        return []
    extras = [say(", tied", "，共享权重")] if config.tied else []
    extras += [say(", bias", "，偏置")] if config.head_bias else []
    if config.logit_scale != 1.0:
        extras.append(say(f", ×{config.logit_scale:.4g}", f"，×{config.logit_scale:.4g}"))
    if config.logit_softcap is not None:
        extras.append(say(f", soft cap ±{config.logit_softcap:g}", f"，软上限 ±{config.logit_softcap:g}"))
    linear = say("Linear", "线性")
    lines = _lines(f"{linear} {config.d_model:,} → {config.vocab_size:,}{''.join(extras)}")
    if config.head == "masked":
        comma = say(", ", "，")
        lines += _lines(
            _norm(config, say), f"{linear} {config.d_model:,}{comma}{ACTIVATIONS[config.activation]}"
        )
    return lines


def _final_norm(config: "ModelConfig", say: Say) -> list[str]:
    return _lines(_norm(config, say)) if config.has_final_norm else []


def _input(config: "ModelConfig", say: Say) -> list[str]:
    lines = _lines(_norm(config, say)) if config.embed_norm else []
    if config.n_segments:
        lines += _lines(say(f"+ {config.n_segments} segments", f"+ {config.n_segments} 种段"))
    if config.position == "learned":
        lines += _lines(say("+ learned positions", "+ 可学习的位置"))
    if config.position == "sinusoidal":
        lines += _lines(say("+ sinusoidal positions", "+ 正弦位置"))
    scale = f"{say(', ', '，')}×{config.embed_scale:.4g}" if config.embed_scale != 1.0 else ""
    return lines + _lines(f"{say('Embedding', '嵌入')} {config.vocab_size:,}×{config.d_model:,}{scale}")


def _blocks(config: "ModelConfig", say: Say, causal: bool, cross: bool) -> list[list[str]]:
    boxes = [_feed_forward(config, say)]
    if cross:
        boxes.append(_attention(config, say, say(*CROSS), ()))
    title = say("Causal self-attention", "因果自注意力") if causal else say("Self-attention", "自注意力")
    boxes.append(_attention(config, say, title, _positions(config, say)))
    norm = _norm(config, say)
    if config.norm_order == "post":
        return [[*_lines(say(f"Add & {norm}", f"相加，{norm}")), *box] for box in boxes]
    after = _lines(norm) if config.norm_order == "sandwich" else []
    return [[say("Add", "相加"), *after, *box, *_lines(norm)] for box in boxes]


def _attention(config: "ModelConfig", say: Say, title: str, positions: Sequence[str]) -> list[str]:
    details: list[str] = []
    if (few := config.kv_heads) != config.n_heads:
        details.append(say(f"{few} key/value head{'s' if few > 1 else ''}", f"{few} 个键/值头"))
    details += positions
    if config.qk_norm:
        norm = _norm(config, say)
        details.append(say(f"{norm} of queries and keys", f"查询和键先经 {norm}"))
    if config.attn_scale is not None and config.attn_scale != config.head_width**-0.5:
        unscaled, scale = config.attn_scale == 1.0, f"×{config.attn_scale:.4g}"
        details.append(
            say("scores not scaled", "分数不缩放") if unscaled else say(f"scores {scale}", f"分数 {scale}")
        )
    if config.attn_softcap is not None:
        details.append(say(f"soft cap ±{config.attn_softcap:g}", f"软上限 ±{config.attn_softcap:g}"))
    return _lines(f"{title} {config.n_heads}×{config.head_width}", *(f"· {text}" for text in details))


def _positions(config: "ModelConfig", say: Say) -> list[str]:
    """What self-attention alone knows of positions."""
    found: list[str] = []
    comma, base = say(", ", "，"), say("base", "底数")
    if config.position == "rotary":
        scaling = config.rope_scaling
        stretched = f"{comma}{scaling.kind} ×{scaling.factor:g}" if scaling is not None else ""
        found.append(f"{say('rotary', '旋转位置')}{comma}{base} {config.rope_base:,.0f}{stretched}")
    elif config.position == "relative":
        found.append(say("relative position bias", "相对位置偏置"))
    elif config.position == "alibi":
        found.append(say("ALiBi position bias", "ALiBi 位置偏置"))
    if config.window is not None:
        where = ""
        if len(config.window_layers) != config.n_layers:
            some = layers(config.window_layers, say)
            where = say(f" in layers {some}", f"，层 {some}")
        local = "" if config.rope_local_base is None else f"{comma}{base} {config.rope_local_base:,.0f}"
        found.append(f"{say('window', '窗口')} {config.window:,}{where}{local}")
    return found


def _feed_forward(config: "ModelConfig", say: Say) -> list[str]:
    comma, plain = say(", ", "，"), f"{say('Feed-forward', '前馈网络')} {config.d_ff:,}"
    how = f"{say('gated ', '门控 ') if config.gated else ''}{ACTIVATIONS[config.activation]}"
    if not config.n_experts:
        return _lines(f"{plain}{comma}{how}")
    details = [f"· {say('each', '各')} {config.expert_width:,}{comma}{how}"]
    if not config.experts_renormalised:
        details.append(say("· weights as the router has them", "· 权重照路由器所给"))
    if config.dense_layers:
        some = layers(config.dense_layers, say)
        details.append(say(f"· layers {some}: {plain}", f"· 层 {some}：{plain}"))
    chosen, all_of_them = config.n_experts_per_token, config.n_experts
    title = say(f"Experts, {chosen} of {all_of_them} a token", f"专家，每词块 {all_of_them} 选 {chosen}")
    return _lines(title, *details)


def ranges(numbers: Iterable[int]) -> str:
    """`0–3,5,8–9`."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{first}–{last}" if last > first else f"{first}" for first, last in found)


def layers(numbers: Iterable[int], say: Say) -> str:
    """`ranges`, or `0–22 step 2` where that says it."""
    ordered = sorted(numbers)
    steps = {after - before for before, after in pairwise(ordered)}
    if len(ordered) > 2 and len(steps) == 1 and steps != {1}:
        return f"{ordered[0]}–{ordered[-1]} {say('step', '步长')} {steps.pop()}"
    return ranges(ordered)
