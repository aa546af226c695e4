"""`cutaway evaluate`: BLEU and chrF of a translator on a test set."""

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.help import in_chinese
from cutaway.cli.terminal import note, write
from cutaway.cli.translate import open_translator
from cutaway.errors import CutawayError, nearest
from cutaway.page.locale import told
from cutaway.zoo import TRANSLATOR

_BATCH = 64  # texts between two reports of progress


@in_chinese("翻译一个测试集，用 sacreBLEU 打分：BLEU（中文按字）与 chrF，并附签名。")
def evaluate(
    source: Annotated[
        Path, typer.Argument(help=told("The texts to translate, one a line.", "要翻译的文字，每行一段。"))
    ],
    reference: Annotated[
        Path, typer.Argument(help=told("Their translations, one a line.", "参考译文，每行一段。"))
    ],
    to: Annotated[
        str, typer.Option(help=told("The language to translate into: zh or en.", "译成哪种语言：zh 或 en。"))
    ],
    labels: Annotated[
        Path | None,
        typer.Option(
            help=told(
                "A file with a label for every line (Tatoeba's cmn_Hans …).",
                "逐行给出标签的文件（如 Tatoeba 的 cmn_Hans）。",
            )
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help=told(
                "Use the lines with this label only; may be repeated.", "只用带此标签的行；可多次给出。"
            )
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help=told("A bundled model's name, or a model's folder.", "自带模型的名字，或模型文件夹。"),
        ),
    ] = TRANSLATOR,
    beam: Annotated[
        int,
        typer.Option(
            help=told(
                "Hypotheses kept side by side; 1 is greedy.", "束宽：束搜索同时保留几个候选；1 即贪心。"
            )
        ),
    ] = 4,
    length_penalty: Annotated[
        float, typer.Option(help=told("Exponent of the length penalty (GNMT).", "长度惩罚的指数（GNMT）。"))
    ] = 0.6,
    limit: Annotated[
        int | None, typer.Option(min=1, help=told("Use the first lines only.", "只用前面这么多行。"))
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help=told("Write the translations to this file.", "把译文写进这个文件。"))
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help=told("One JSON object with the scores.", "以一个 JSON 对象输出各项分数。")
        ),
    ] = False,
) -> None:
    """Translate a test set and score it with sacreBLEU: BLEU (Chinese by character) and chrF, with signatures."""
    if out is not None and not out.parent.is_dir():
        raise CutawayError(f"{out}: there is no folder {out.parent} to write to")
    sources, references = read_pairs(source, reference, labels, only or [])
    sources, references = sources[:limit], references[:limit]
    translator = open_translator(model)

    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    from cutaway.decode.length_penalty import LengthPenalty

    began = time.perf_counter()
    penalty = LengthPenalty(length_penalty)
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))  # alike lengths share a batch
    found: dict[int, str] = {}
    cut = 0
    with typer.progressbar(
        length=len(sources),
        label=told("translating", "翻译中"),
        file=sys.stderr,
        hidden=not sys.stderr.isatty(),
    ) as bar:
        for start in range(0, len(order), _BATCH):
            places = order[start : start + _BATCH]
            batch = [sources[i] for i in places]
            results = translator.translate(
                batch,
                to=to if translator.languages else None,
                beam=beam,
                length_penalty=penalty,
                truncate=True,
            )
            cut += sum(result.cut for result in results)
            found |= {i: result.text for i, result in zip(places, results, strict=True)}
            bar.update(len(batch))
    if cut:
        note(
            told(
                f"{cut:,} of {len(sources):,} texts were longer than the model's limit and were cut",
                f"{len(sources):,} 段文字中有 {cut:,} 段超出模型上限，已截断",
            )
        )
    outputs = [found[i] for i in range(len(sources))]
    seconds = time.perf_counter() - began

    bleu, chrf = BLEU(tokenize="zh" if to == "zh" else "13a"), CHRF()
    scores = {
        "BLEU": bleu.corpus_score(outputs, [references]),
        "chrF": chrf.corpus_score(outputs, [references]),
    }
    signatures = {"BLEU": str(bleu.get_signature()), "chrF": str(chrf.get_signature())}
    if out is not None:
        out.write_text("".join(f"{line}\n" for line in outputs), encoding="utf-8", newline="\n")
    if as_json:
        values: dict[str, object] = {name: score.score for name, score in scores.items()}
        write(json.dumps(values | {"signatures": signatures, "pairs": len(outputs), "seconds": seconds}))
        return
    for name, score in scores.items():
        write(f"{name} {score.score:.2f}  {signatures[name]}")
    write(
        told(
            f"{len(outputs):,} pairs, {seconds:.1f} s, beam {beam}, length penalty {length_penalty}",
            f"{len(outputs):,} 对，{seconds:.1f} 秒，束宽 {beam}，长度惩罚 {length_penalty}",
        )
    )


def read_pairs(
    source: Path, reference: Path, labels: Path | None, only: list[str]
) -> tuple[list[str], list[str]]:
    """The lines of both files, those with a wanted label only. Raises CutawayError when the files do not have as
    many lines, when no line is left, or for a label that does not occur."""
    from cutaway.text.corpus import read_lines

    if bool(only) != (labels is not None):
        raise CutawayError(
            "--labels and --only belong together: the file of labels, and which of them to use"
        )
    files = [source, reference] + ([labels] if labels else [])
    texts = [list(read_lines(file)) for file in files]
    if len({len(lines) for lines in texts}) > 1:
        counts = ", ".join(f"{file} has {len(lines):,}" for file, lines in zip(files, texts, strict=True))
        raise CutawayError(f"files whose lines belong together differ in length: {counts} lines")
    rows = list(zip(*texts, strict=True))
    if labels is not None:
        there = sorted({row[2].strip() for row in rows})
        for label in only:
            if label not in there:
                raise CutawayError(
                    f"{labels}: no line has the label {label!r}{nearest(label, there)}; labels: {', '.join(there)}"
                )
        rows = [row for row in rows if row[2].strip() in only]
    if not rows:
        raise CutawayError(f"{source}: there are no lines to translate")
    return [row[0] for row in rows], [row[1] for row in rows]
