"""Page of a run: what is about to be asked of."""

from typing import TYPE_CHECKING

from cutaway.inspection.pages.words import FAMILIES, SOURCE
from cutaway.page.blocks import Line, Page, Prose, Remark, page
from cutaway.page.locale import Both

if TYPE_CHECKING:
    from cutaway.inspection.runs.run import Run

TOKENS = Both("tokens", "词块")


def run_page(run: "Run") -> Page:
    name = run.loaded.name
    read = run.target if run.source is None else run.source
    written = run.source is not None and run.target is not None
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    family = FAMILIES[run.model.config.family]
    size = Both(f"{family.en}, {parameters:,} parameters", f"{family.zh}，{parameters:,} 个参数")
    return page(
        Both(f"A text on its way through {name}", f"一段文字在 {name} 中的一次运行"),
        [
            Line(SOURCE if written else TOKENS, [] if read is None else read.pieces),
            Line(Both("writes", "写出"), run.outcome.pieces) if written else None,
            Prose(Both("model", "模型"), size),
            Remark(
                Both(
                    "Ask it: overview(run), patterns(run, side), lens(run), compare(run, changes), "
                    "explain(run, name, index) … of cutaway.inspection.",
                    "接着提问：cutaway.inspection 的 overview(run)、patterns(run, side)、lens(run)、"
                    "compare(run, changes)、explain(run, name, index) ……",
                )
            ),
        ],
    )
