"""Pages of the logit lens: all readings of a text, and those at one token."""

from typing import TYPE_CHECKING

from cutaway.inspection.pages.words import PROBABILITY, left, right
from cutaway.page.blocks import Heading, Matrix, Page, Remark, Table, Tinted, page
from cutaway.page.locale import Both
from cutaway.page.numbers import share
from cutaway.text.display import truncate

if TYPE_CHECKING:
    from cutaway.inspection.layers.lens import Lens

PIECE = 8  # columns that a piece may take
LISTED = 3  # readings of a layer at one token
STACKS = {"encoder": Both("the encoder", "编码器"), "decoder": Both("the decoder", "解码器")}
READ = Remark(
    Both(
        "Read by the model's own last norm and output matrix; no layer but the last was trained to be read so: a "
        "reading, not a thought. The reading after the last layer is what the model says.",
        "用模型自己的末端归一化和输出矩阵来读；除最后一层外，各层训练时都没有被这样读过：这只是读数，不是模型的想法。"
        "最后一层之后的读数就是模型的输出。",
    )
)


def lens_page(found: "Lens", more: Remark | None = None) -> Page:
    """Tokens down, layers across, each with its best reading in the colour of its probability. `more`: what to ask
    next."""
    which, outcome = STACKS[found.side], _outcome(found)
    rows = []
    for t, piece in enumerate(found.tokens.pieces):
        cells = [_cell(found, n, t) for n in range(len(found.layers))]
        rows.append((truncate(piece, PIECE), *cells, truncate(found.outcome.pieces[t], PIECE)))
    titles = [layer_name(layer) for layer in found.layers]
    columns = [left(Both("reads", "读入")), *map(left, titles), left(outcome)]
    probabilities = found.outcome_log_probs.exp().T.double().numpy()
    return page(
        Both(
            f"What each layer of {which.en} would say, were it the last",
            f"假如{which.zh}在某一层结束，它会说什么",
        ),
        [
            Table(columns, rows, tint=PROBABILITY, keep=1),
            READ,
            _approximate(found),
            more,
            Heading(
                Both(
                    "How probable each layer would make what stands there in the end",
                    "最终的词块在每一层之后有多大概率",
                )
            ),
            Matrix(
                probabilities,
                found.outcome.pieces,
                [layer_name(layer) for layer in found.layers],
                outcome,
                Both("read after", "在何处之后读出"),
                PROBABILITY,
                drawn=True,
            ),
        ],
    )


def lens_at_page(found: "Lens", t: int, listed: int = LISTED) -> Page:
    """One token: the best readings of each layer, and the place of what really stands there."""
    piece, outcome = found.tokens.pieces[t], truncate(found.outcome.pieces[t], PIECE + 4)
    shown = min(listed, found.ids.shape[2])
    rows = []
    for n, layer in enumerate(found.layers):
        log_probs = found.log_probs[n, t, :shown].exp().tolist()
        best = [
            Tinted(f"{truncate(each, PIECE + 4)} {share(p)}", p)
            for each, p in zip(found.pieces[n][t], log_probs, strict=False)
        ]
        probability = float(found.outcome_log_probs[n, t].exp())
        rank = f"{int(found.outcome_ranks[n, t]):,}"
        rows.append((layer_name(layer), rank, Tinted(share(probability), probability), *best))
    columns = [
        left(Both("after", "经过")),
        right(Both(f"rank of {outcome}", f"{outcome} 的名次")),
        right(Both("prob.", "概率")),
        left(Both("most probable", "概率最大的")),
        *(left(f"{place}.") for place in range(2, shown + 1)),
    ]
    return page(
        Both(
            f"Token {t}, '{piece}': what each layer would say, were it the last",
            f"第 {t} 个词块“{piece}”处：假如在某一层结束，模型会说什么",
        ),
        [Table(columns, rows, tint=PROBABILITY, keep=1), READ, _approximate(found)],
    )


def layer_name(passed: int) -> Both:
    """What was read after so many blocks."""
    if passed == 0:
        return Both("embedding", "嵌入")
    return Both(f"layer {passed - 1}", f"第 {passed - 1} 层")


def _cell(found: "Lens", n: int, t: int) -> Tinted:
    """The best reading, all of them in its hint."""
    probabilities = found.log_probs[n, t].exp().tolist()
    hint = "  ".join(
        f"{piece} {share(p)}" for piece, p in zip(found.pieces[n][t], probabilities, strict=True)
    )
    return Tinted(truncate(found.pieces[n][t][0], PIECE), probabilities[0], hint=hint)


def _outcome(found: "Lens") -> Both:
    return Both("stands", "实际") if found.side == "encoder" else Both("writes", "写出")


def _approximate(found: "Lens") -> Remark | None:
    if found.approximate is None:
        return None
    return Remark(Both(f"Approximate: {found.approximate.en}.", f"近似：{found.approximate.zh}。"))
