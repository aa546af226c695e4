"""`cutaway evaluate`: BLEU and chrF of a translator on a test set; analogies and judged pairs for word vectors."""

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.arguments import Alpha, Beam, ModelName
from cutaway.cli.help import argument, described, option
from cutaway.cli.terminal import note, one_line, tell, write, write_table
from cutaway.cli.translate import open_translator
from cutaway.errors import CutawayError, nearest
from cutaway.words import listed, say, told
from cutaway.zoo import TRANSLATOR, find

_BATCH = 64  # texts between two reports of progress


@described(
    "Translate a test set and score it with sacreBLEU: BLEU (Chinese by character) and chrF, with signatures.\n\n"
    "Word vectors are measured with --analogies, --word-pairs, and --other with --dictionary."
)
def evaluate(
    source: Annotated[Path | None, argument("The texts to translate, one a line.")] = None,
    reference: Annotated[Path | None, argument("Their translations, one a line.")] = None,
    to: Annotated[
        str | None, option("The language to translate into: zh, en, or another that the model names.")
    ] = None,
    labels: Annotated[
        Path | None, option("A file with a label for every line (Tatoeba's cmn_Hans …).")
    ] = None,
    only: Annotated[list[str] | None, option("Use the lines with this label only; may be repeated.")] = None,
    model: ModelName = TRANSLATOR,
    beam: Beam = None,
    length_penalty: Alpha = None,
    limit: Annotated[int | None, option("Use the first lines only.", min=1)] = None,
    out: Annotated[Path | None, option("Write the translations to this file.")] = None,
    analogies: Annotated[
        list[Path] | None,
        option("Word vectors: a file such as questions-words.txt, four words a line; may be repeated."),
    ] = None,
    word_pairs: Annotated[
        list[Path] | None,
        option("Word vectors: a file such as WordSim353, two words and a number a line; may be repeated."),
    ] = None,
    other: Annotated[
        str | None, option("Word vectors: those of another language, to be turned onto by --dictionary.")
    ] = None,
    dictionary: Annotated[
        Path | None, option("Of both languages: CC-CEDICT, or two words a line with a tab between.")
    ] = None,
    as_json: Annotated[bool, option("One JSON object with the scores.", "--json")] = False,
) -> None:
    if (other is None) != (dictionary is None):
        raise CutawayError(
            "--other and --dictionary belong together: the other vectors, and words of both languages"
        )
    if analogies or word_pairs or other is not None:
        if source is not None:
            raise CutawayError(
                "a test set to translate and tests of word vectors were given; give one of them"
            )
        of_translators = {
            "--to": to, "--labels": labels, "--only": only, "--beam": beam, "--length-penalty": length_penalty,
            "--limit": limit, "--out": out,
        }  # fmt: skip
        for name, value in of_translators.items():
            if value is not None:
                raise CutawayError(
                    "{name} belongs to translators: leave it out with --analogies, --word-pairs and --other",
                    name=name,
                )
        turn = None if other is None or dictionary is None else (find(other), dictionary)
        evaluate_vectors(find(model), analogies or [], word_pairs or [], turn, as_json)
        return
    if source is None or reference is None or to is None:
        raise CutawayError(
            "a translator is measured on SOURCE and REFERENCE --to LANGUAGE, word vectors with --analogies, "
            "--word-pairs or --other; see cutaway evaluate --help"
        )
    if out is not None and not out.parent.is_dir():
        raise CutawayError(
            "{out}: there is no folder {parent} to write to; make it first", out=out, parent=out.parent
        )
    sources, references = read_pairs(source, reference, labels, only or [])
    sources, references = sources[:limit], references[:limit]
    translator = open_translator(model)

    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    from cutaway.decode.search import LengthPenalty
    from cutaway.decode.translator import BEAM

    for remark in translator.own.notes:
        note(remark)
    began = time.perf_counter()
    penalty = None if length_penalty is None else LengthPenalty(length_penalty)
    search = translator.own.search(BEAM, beam=beam, length_penalty=penalty)
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))  # alike lengths share a batch
    found: dict[int, str] = {}
    cut = 0
    with typer.progressbar(
        length=len(sources), label=told("translating"), file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        for start in range(0, len(order), _BATCH):
            places = order[start : start + _BATCH]
            batch = [sources[i] for i in places]
            results = translator.translate(
                batch, to=to if translator.languages else None, search=search, truncate=True
            )
            cut += sum(result.source.cut for result in results)
            found |= {i: one_line(result.best.text) for i, result in zip(places, results, strict=True)}
            bar.update(len(batch))
    if cut:
        note(
            "{cut:,} of {count:,} texts were longer than the model's limit and were cut",
            cut=cut,
            count=len(sources),
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
    tell(
        "{count:,} pairs, {seconds:.1f} s, beam {beam}, length penalty {length_penalty}",
        count=len(outputs),
        seconds=seconds,
        beam=search.beam,
        length_penalty=search.length_penalty.alpha,
    )


def evaluate_vectors(
    path: Path, analogies: list[Path], word_pairs: list[Path], turn: tuple[Path, Path] | None, as_json: bool
) -> None:
    """Tables of what word vectors reach on files of analogies and of judged pairs, and of what is found in the other
    language of a dictionary."""
    from cutaway.checkpoint.word_vectors import holds_vectors, load_vectors
    from cutaway.inspection.bilingual import score_translations
    from cutaway.inspection.vector_scores import score_analogies, score_judged

    for each in (path, *([] if turn is None else [turn[0]])):
        if not holds_vectors(each):
            raise CutawayError(
                "{path}: no word vectors, which --analogies, --word-pairs and --other measure; name some with -m",
                path=each,
            )
    opened = load_vectors(path)
    for remark in opened.notes:
        note(remark)
    answered = {str(file): score_analogies(opened, file) for file in analogies}
    judged = {str(file): score_judged(opened, file) for file in word_pairs}
    found = None if turn is None else score_translations(opened, load_vectors(turn[0]), turn[1])
    if as_json:
        parts = {file: [vars(each) for each in sections] for file, sections in answered.items()}
        pairs = {file: vars(each) for file, each in judged.items()}
        write(
            json.dumps(
                {
                    "analogies": parts,
                    "word_pairs": pairs,
                    "translations": None if found is None else vars(found),
                },
                ensure_ascii=False,
            )
        )
        return
    for sections in answered.values():
        rows = [
            (
                each.name or told("total"),
                f"{each.right:,}",
                f"{each.asked:,}",
                f"{each.accuracy:.1%}",
                f"{each.unknown:,}",
            )
            for each in sections
        ]
        headers = (told("analogies"), told("correct"), told("asked"), told("accuracy"), told("unknown words"))
        write_table(headers, rows, right=(1, 2, 3, 4))
    if judged:
        rows = [
            (each.name, f"{each.correlation:.3f}", f"{each.pairs:,}", f"{each.unknown:,}")
            for each in judged.values()
        ]
        headers = (told("word pairs"), told("Spearman"), told("pairs"), told("unknown words"))
        write_table(headers, rows, right=(1, 2, 3))
    if found is not None:
        rows = [(f"{found.learned:,}", f"{found.asked:,}", f"{found.first:.1%}", f"{found.fifth:.1%}")]
        headers = (told("words learned from"), told("words asked"), "precision@1", "precision@5")
        write_table(headers, rows, right=(0, 1, 2, 3))


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
        counts = listed(
            say("{file} has {count:,}", file=file, count=len(lines))
            for file, lines in zip(files, texts, strict=True)
        )
        raise CutawayError(
            "files whose lines belong together have different numbers of lines: {counts}; "
            "line k of one must belong to line k of the other",
            counts=counts,
        )
    rows = list(zip(*texts, strict=True))
    if labels is not None:
        there = sorted({row[2].strip() for row in rows})
        for label in only:
            if label not in there:
                raise CutawayError(
                    "{file}: no line has the label {label!r}{hint}; labels: {there}",
                    file=labels,
                    label=label,
                    hint=nearest(label, there),
                    there=listed(there),
                )
        rows = [row for row in rows if row[2].strip() in only]
    if not rows:
        raise CutawayError(
            "{source}: there are no lines to translate; give a file with a sentence in each line",
            source=source,
        )
    return [row[0] for row in rows], [row[1] for row in rows]
