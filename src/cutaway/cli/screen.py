"""What a model is, on one screen: its figure, its parameters, and the facts below."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cutaway.cli.boxes import draw
from cutaway.cli.hanging import either, hanging
from cutaway.cli.parameter_table import table
from cutaway.cli.tap_lines import compressed, packed
from cutaway.text.display import pad, truncate, visible, width
from cutaway.words import Locale, said

if TYPE_CHECKING:  # a command's module loads nothing heavy at its top
    from cutaway.inspection.questions.anatomy import Anatomy, Control

Say = Callable[[str, str], str]
LONGEST = 32  # columns a control token may take
LABEL = 12  # columns of the words at the left


def screen(name: str, found: "Anatomy", columns: int, locale: Locale = "en") -> list[str]:
    """The lines of the whole screen, each within `columns` terminal columns where no single word is longer. What is
    said about parameters stands beside the figure where there is room, else below."""
    from cutaway.inspection.terms import FAMILIES
    from cutaway.page.wrapping import wrapped

    figure = draw(found.config, columns, locale)
    left = max(map(width, figure)) + 3
    beside = table(found, columns - left, locale)
    say = partial(either, locale=locale)
    count = say(f"{found.parameters:,} parameters", f"{found.parameters:,} 个参数")
    title = f"{name} · {said(FAMILIES[found.family], locale)} · {found.architecture} · {count}"
    lines = [*wrapped(title, columns), ""]
    if left + max(map(width, beside)) <= columns:
        above = max(0, (len(figure) - len(beside)) // 2)
        beside = [""] * above + beside + [""] * (len(figure) - above - len(beside))
        figure += [""] * (len(beside) - len(figure))
        lines += [f"{pad(drawn, left)}{line}" for drawn, line in zip(figure, beside, strict=True)]
    else:
        lines += [*figure, "", *table(found, columns, locale)]
    taps = packed(compressed(found.taps), columns - LABEL)
    number = f"{len(found.taps):,}"
    facts = [*_facts(found, say, columns - LABEL), (say(f"{number} taps", f"探点 {number}"), taps)]
    lines += ["", *_laid_out(facts, columns)]
    return [line.rstrip() for line in lines]


def _laid_out(facts: Sequence[tuple[str, list[str]]], columns: int) -> list[str]:
    """Each label with its texts at its right, continued lines under them."""
    lines: list[str] = []
    for label, texts in facts:
        for text in texts:
            for line in hanging(text, columns - LABEL):
                lines.append(f"{pad(label, LABEL)}{line}")
                label = ""
    return lines


def _facts(found: "Anatomy", say: Say, room: int) -> Iterator[tuple[str, list[str]]]:
    yield say("sizes", "尺寸"), [_sizes(found, say)]
    weights = [f"{dtype} {amount(size, 'B')}" for dtype, size in found.memory.items() if dtype != "bf16"]
    if found.active_parameters != found.parameters:
        active, few, all_of_them = (
            f"{found.active_parameters:,}", found.config.n_experts_per_token, found.config.n_experts,
        )  # fmt: skip
        yield (
            say("at work", "参与计算"),
            [
                say(
                    f"{active} parameters on each token ({few} of {all_of_them} experts)",
                    f"每个词块用到 {active} 个参数（{all_of_them} 个专家选 {few} 个）",
                )
            ],
        )
    yield say("weights", "权重"), [" · ".join(weights).replace("fp16", "fp16/bf16") + _stored(found, say)]
    if found.cache is not None:
        yield say("cache", "缓存"), [_cache(found, say)]
    yield say("operations", "运算量"), [_operations(found, n, say) for n in range(len(found.operations))]
    yield say("context", "上下文"), [_context(found, say)]
    label = say("tokenizer", "分词器")
    if found.tokenizer is None:
        yield label, [say("none among the files", "文件里没有")]
        return
    controls, size = found.tokenizer.controls, f"{found.tokenizer.size:,}"
    yield (
        label,
        [
            say(
                f"{size} pieces, {len(controls)} of them control tokens",
                f"{size} 个词块，其中 {len(controls)} 个是控制词块",
            )
        ],
    )
    if controls:
        yield say("control", "控制词块"), packed(_controls(controls, say), room, " · ")


def _sizes(found: "Anatomy", say: Say) -> str:
    config = found.config
    count = f"{config.n_layers}"
    if config.family == "encoder-decoder":
        count = f"{config.encoder_layers} + {config.n_layers}"
    attention = say("attention", "注意力") if config.has_out_bias else say("q, k, v", "q、k、v")
    biases = (
        (attention, config.attn_bias),
        (say("feed-forward", "前馈网络"), config.mlp_bias),
        (say("output", "输出"), config.head_bias),
    )
    have = say(", ", "、").join(name for name, has in biases if has) or say("none", "无")
    return say(
        f"{count} layers, width {config.d_model:,}, biases: {have}",
        f"{count} 层，宽度 {config.d_model:,}，偏置：{have}",
    )


def _stored(found: "Anatomy", say: Say) -> str:
    kinds = [
        kind.dtype if len(found.stored) == 1 else f"{kind.tensors} {kind.dtype}" for kind in found.stored
    ]
    return say("; stored as ", "；存储为 ") + say(", ", "、").join(kinds) if kinds else ""


def _cache(found: "Anatomy", say: Say) -> str:
    assert found.cache is not None
    token, source = found.cache.bytes_per_token["fp16"], found.cache.bytes_per_source_token["fp16"]
    longest = found.operations[-1].context
    one, whole = amount(token, "B"), amount((token + source) * longest, "B")
    if source:
        other = amount(source, "B")
        each = say(f"{one} a target, {other} a source token", f"每个译文词块 {one}，每个原文词块 {other}")
    else:
        each = say(f"{one} a token", f"每个词块 {one}")
    return say(f"{each} in 16 bits; {whole} at {longest:,}", f"{each}（16 位）；{longest:,} 个时共 {whole}")


def _operations(found: "Anatomy", number: int, say: Say) -> str:
    counted = found.operations[number]
    token, source = counted.per_token, counted.per_source_token
    at, one = f"{counted.context:,}", amount(token.total, "FLOP")
    if source is not None:
        other = amount(source.total, "FLOP")
        return say(
            f"{one} a target token, {other} a source token at {at} tokens",
            f"{at} 个词块时，每个译文词块 {one}，每个原文词块 {other}",
        )
    share = f"{100 * token.attention / token.total:.0f} %"
    return say(
        f"{one} a token at {at} tokens, {share} of it attention",
        f"{at} 个词块时，每个词块 {one}，其中注意力占 {share}",
    )


def _context(found: "Anatomy", say: Say) -> str:
    kind = {
        "learned": say("table of learned positions", "可学习的位置表"),
        "sinusoidal": say("table of sinusoids", "正弦位置表"),
        "none": say("no positions", "没有位置"),
        "rotary": say("rotary positions", "旋转位置"),
        "relative": say("relative positions", "相对位置"),
        "alibi": say("ALiBi positions", "ALiBi 位置"),
    }[found.config.position]
    most = f"{found.max_len:,}"
    if found.config.family == "encoder-decoder":
        return say(
            f"{most} tokens of source and as many of target ({kind})",
            f"原文 {most} 个词块，译文同样多（{kind}）",
        )
    return say(f"{most} tokens ({kind})", f"{most} 个词块（{kind}）")


def _controls(controls: Sequence["Control"], say: Say, most: int = 12) -> list[str]:
    """Those with a role first."""
    ordered = sorted(controls, key=lambda control: not control.roles)
    shown = [_control(control, say) for control in ordered[:most]]
    left = len(controls) - most
    more = [say(f"and {left} more", f"还有 {left} 个")] if left > 0 else []
    return [*shown, *more]


def _control(control: "Control", say: Say) -> str:
    """A file may spell its control tokens in any way, so they are shown as a reader can see them."""
    piece = f"{control.id} {truncate(visible(control.piece), LONGEST)}"
    roles = say(", ".join(control.roles).replace("_", " "), "、".join(control.roles))
    return piece + say(f" ({roles})", f"（{roles}）") if roles else piece


def amount(number: float, unit: str) -> str:
    """Three digits and a decimal prefix: `18.8 MB`, `512 B`, `1.21 GFLOP`."""
    for prefix in ("", "k", "M", "G", "T"):
        if number < 999.5 or prefix == "T":
            break
        number /= 1000
    return f"{number:.0f} {unit}" if not prefix else f"{number:.3g} {prefix}{unit}"
