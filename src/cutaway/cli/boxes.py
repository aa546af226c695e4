"""The drawing of a model after Figure 1 of Vaswani et al. 2017: ids enter at the bottom, what comes out is on top."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import wrap
from typing import TYPE_CHECKING

from cutaway.text.display import pad, width

if TYPE_CHECKING:  # a command's module loads nothing heavy at its top
    from cutaway.config import ModelConfig

ACTIVATIONS = {"relu": "ReLU", "gelu": "GELU", "gelu_tanh": "GELU tanh", "silu": "SiLU"}
NORMS = {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm", "rmsnorm1p": "RMSNorm, 1 + weight"}
TEXT = 28  # columns of text in a box
FRAME = TEXT + 4
MARGIN = 6  # room for "24 ×" beside a stack
GAP = 4  # between encoder and decoder, where the memory runs
BOTH = MARGIN + FRAME + GAP + FRAME + MARGIN


def draw(config: "ModelConfig", columns: int) -> list[str]:
    """The lines of the figure; two stacks stand side by side where `columns` terminal columns allow."""
    if config.family != "encoder-decoder":
        causal = config.family == "decoder-only"
        blocks = _blocks(config, causal, cross=False)
        stack = _Column([*_head(config), *_final_norm(config)], blocks, _input(config))
        ids, top = "ids", "vectors" if config.head == "none" else "logits"
        return [_centre(top), *_beside(stack, config.n_layers), _centre(ids)]
    encoder = _Column(_final_norm(config), _blocks(config, causal=False, cross=False), _input(config))
    decoder = _Column(
        [*_head(config), *_final_norm(config)], _blocks(config, causal=True, cross=True), _input(config)
    )
    if columns < BOTH:
        return [
            _centre("logits"),
            *_beside(decoder, config.n_layers),
            _centre("target ids, and the memory for cross-attention"),
            "",
            _centre("memory"),
            *_beside(encoder, config.encoder_layers),
            _centre("source ids"),
        ]
    return _side_by_side(config, encoder, decoder)


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


def _side_by_side(config: "ModelConfig", encoder: _Column, decoder: _Column) -> list[str]:
    """The encoder on the left, standing on the same ground; the memory goes over its top into cross-attention."""
    right, left = decoder.lines(), encoder.lines()
    lift = len(right) - len(left)  # the decoder has a box more, so this is at least 1
    enters = decoder.find("Cross-attention")
    drawn = [" " * (MARGIN + FRAME + GAP) + _centre("logits")]
    for row, line in enumerate(right):
        times = ""
        if row < lift - 1:
            start, way = "", " " * GAP
        elif row == lift - 1:
            label = pad("memory", FRAME // 2, "right")
            start, way = f"{label} {'─' * (FRAME - width(label) - 1)}", "─┐  "
        else:
            start, way = left[row - lift], " │  " if row < enters else " └─►" if row == enters else " " * GAP
            times = f"{config.encoder_layers} ×" if row - lift == encoder.middle() else ""
        after = f" {config.n_layers} ×" if row == decoder.middle() else ""
        drawn.append(f"{pad(times, MARGIN - 1, 'right')} {pad(start, FRAME)}{way}{line}{after}")
    ids = pad(_centre("source ids"), FRAME + GAP) + _centre("target ids")
    return [*drawn, " " * MARGIN + ids]


# What stands in the boxes, top line first.


def _lines(*texts: str) -> list[str]:
    """Each text in the width of a box, continued lines set in."""
    return [line for text in texts for line in wrap(text, TEXT, subsequent_indent="  ")]


def _head(config: "ModelConfig") -> list[str]:
    if config.head == "none":
        return []
    extras = [", tied" if config.tied else "", ", bias" if config.head_bias else ""]
    if config.logit_scale != 1.0:
        extras.append(f", ×{config.logit_scale:.4g}")
    if config.logit_softcap is not None:
        extras.append(f", soft cap ±{config.logit_softcap:g}")
    lines = _lines(f"Linear {config.d_model:,} → {config.vocab_size:,}{''.join(extras)}")
    if config.head == "masked":
        lines += _lines(NORMS[config.norm], f"Linear {config.d_model:,}, {ACTIVATIONS[config.activation]}")
    return lines


def _final_norm(config: "ModelConfig") -> list[str]:
    return _lines(NORMS[config.norm]) if config.has_final_norm else []


def _input(config: "ModelConfig") -> list[str]:
    lines = _lines(NORMS[config.norm]) if config.embed_norm else []
    if config.n_segments:
        lines += _lines(f"+ {config.n_segments} segments")
    if config.position in ("learned", "sinusoidal"):
        lines += _lines(f"+ {config.position} positions")
    scale = f", ×{config.embed_scale:.4g}" if config.embed_scale != 1.0 else ""
    return lines + _lines(f"Embedding {config.vocab_size:,}×{config.d_model:,}{scale}")


def _blocks(config: "ModelConfig", causal: bool, cross: bool) -> list[list[str]]:
    boxes = [_feed_forward(config)]
    if cross:
        boxes.append(_attention(config, "Cross-attention", ()))
    title = "Causal self-attention" if causal else "Self-attention"
    boxes.append(_attention(config, title, _positions(config)))
    norm = _lines(NORMS[config.norm])
    if config.norm_order == "post":
        return [[*_lines(f"Add & {NORMS[config.norm]}"), *box] for box in boxes]
    after = norm if config.norm_order == "sandwich" else []
    return [["Add", *after, *box, *norm] for box in boxes]


def _attention(config: "ModelConfig", title: str, positions: Sequence[str]) -> list[str]:
    details: list[str] = []
    if config.kv_heads != config.n_heads:
        details.append(f"{config.kv_heads} key/value head{'s' if config.kv_heads > 1 else ''}")
    details += positions
    if config.qk_norm:
        details.append(f"{NORMS[config.norm]} of queries and keys")
    if config.attn_scale is not None and config.attn_scale != config.head_width**-0.5:
        unscaled = config.attn_scale == 1.0
        details.append("scores not scaled" if unscaled else f"scores ×{config.attn_scale:.4g}")
    if config.attn_softcap is not None:
        details.append(f"soft cap ±{config.attn_softcap:g}")
    return _lines(f"{title} {config.n_heads}×{config.head_width}", *(f"· {text}" for text in details))


def _positions(config: "ModelConfig") -> list[str]:
    """What self-attention alone knows of positions."""
    found: list[str] = []
    if config.position == "rotary":
        scaling = config.rope_scaling
        stretched = f", {scaling.kind} ×{scaling.factor:g}" if scaling is not None else ""
        found.append(f"rotary, base {config.rope_base:,.0f}{stretched}")
    elif config.position == "relative":
        found.append("relative position bias")
    elif config.position == "alibi":
        found.append("ALiBi position bias")
    if config.window is not None:
        every = len(config.window_layers) == config.n_layers
        where = "" if every else f" in layers {layers(config.window_layers)}"
        local = "" if config.rope_local_base is None else f", base {config.rope_local_base:,.0f}"
        found.append(f"window {config.window:,}{where}{local}")
    return found


def _feed_forward(config: "ModelConfig") -> list[str]:
    how = f"{'gated ' if config.gated else ''}{ACTIVATIONS[config.activation]}"
    if not config.n_experts:
        return _lines(f"Feed-forward {config.d_ff:,}, {how}")
    details = [f"· each {config.expert_width:,}, {how}"]
    if not config.experts_renormalised:
        details.append("· weights as the router has them")
    if config.dense_layers:
        details.append(f"· layers {layers(config.dense_layers)}: Feed-forward {config.d_ff:,}")
    return _lines(f"Experts, {config.n_experts_per_token} of {config.n_experts} a token", *details)


def ranges(numbers: Iterable[int]) -> str:
    """`0–3,5,8–9`."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{first}–{last}" if last > first else f"{first}" for first, last in found)


def layers(numbers: Iterable[int]) -> str:
    """`ranges`, or `0–22 step 2` where that says it."""
    ordered = sorted(numbers)
    steps = {after - before for before, after in pairwise(ordered)}
    if len(ordered) > 2 and len(steps) == 1 and steps != {1}:
        return f"{ordered[0]}–{ordered[-1]} step {steps.pop()}"
    return ranges(ordered)
