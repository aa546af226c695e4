"""`cutaway translate`: text in one language to text in the other, and how it came about."""

import json
from dataclasses import asdict
from enum import StrEnum
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cutaway.cli.arguments import Alpha, Beam, ModelName, OneObjectEach, OneText, RepetitionPenalty, own
from cutaway.cli.help import described, option
from cutaway.cli.terminal import note, one_line, open_model, tell, texts_from, write, write_page, write_table
from cutaway.errors import CutawayError, TooLong
from cutaway.words import names_of, reader_locale, said, say, told
from cutaway.zoo import TRANSLATOR

if TYPE_CHECKING:
    from cutaway.decode.text_model import Hypothesis
    from cutaway.decode.translation import Sentence, Translation
    from cutaway.decode.translator import Translator


class Show(StrEnum):
    """What to show beside the translation."""

    ALIGNMENT = "alignment"
    TOKENS = "tokens"
    SCORES = "scores"


_BATCH = 32  # texts whose translations are printed together
_NAMED = 10  # lines that an error names


@described(
    "Translate between Chinese and English, sentence by sentence. A line of a file or of standard input gives "
    "one line (--n-best N: N lines); a blank line stays blank."
)
def translate(
    text: OneText = None,
    file: Annotated[Path | None, option("Translate the lines of a file.", "--file", "-f")] = None,
    to: Annotated[
        str | None,
        option(
            "zh, en, or another language that the model names; not given: English when there are Chinese "
            "characters, else Chinese."
        ),
    ] = None,
    model: ModelName = TRANSLATOR,
    beam: Beam = None,
    n_best: Annotated[int, option("How many translations of a text to print, best first.")] = 1,
    length_penalty: Alpha = None,
    max_new_tokens: Annotated[
        int | None,
        option("Most tokens of a translation; not given: the model's own, else twice the source's and 20."),
    ] = None,
    min_new_tokens: Annotated[
        int | None, option("Fewest tokens of a translation.", show_default=own(0))
    ] = None,
    repetition_penalty: RepetitionPenalty = None,
    split: Annotated[
        bool, option("Sentence by sentence, or each text in one piece.", "--split/--no-split")
    ] = True,
    truncate: Annotated[
        bool, option("Cut sentences that are too long for the model, with a note.", "--truncate")
    ] = False,
    show: Annotated[
        list[Show] | None,
        option("Also show where it looked, how texts were cut, or how sure it was; may be repeated."),
    ] = None,
    as_json: OneObjectEach = False,
) -> None:
    texts = texts_from(text, file)
    translator = open_translator(model)

    from cutaway.decode.search import LengthPenalty
    from cutaway.decode.translator import BEAM

    for remark in translator.own.notes:
        note(remark)
    wanted = list(dict.fromkeys(show or []))
    limits = translator.own.limits(max_new_tokens, min_new_tokens)
    search = translator.own.search(
        BEAM,
        beam=beam,
        n_best=n_best,
        length_penalty=None if length_penalty is None else LengthPenalty(length_penalty),
        repetition_penalty=repetition_penalty,
        alternatives=3 if as_json or Show.SCORES in wanted else 0,
        attention="mean" if as_json or Show.ALIGNMENT in wanted else None,
    )
    left_out: dict[int, TooLong] = {}
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        numbers = range(start + 1, start + 1 + len(batch))
        too_long: dict[int, TooLong] = {}
        found = translator.translate(
            batch,
            to=to,
            search=search,
            limits=limits,
            truncate=truncate,
            split=split,
            # a text alone is the whole request
            names=[say("line {number}", number=number) for number in numbers] if text is None else None,
            on_too_long=too_long.__setitem__ if text is None else None,
        )
        left_out |= {numbers[place]: error for place, error in too_long.items()}
        for number, translation in zip(numbers, found, strict=True):
            for remark in [left_out[number].message] if number in left_out else translation.notes:
                line = say("line {number}: {remark}", number=number, remark=remark)
                note(remark if len(texts) == 1 or number in left_out else line)
            if as_json:
                write(json.dumps(as_object(translation), ensure_ascii=False))
            else:
                _print(translation, n_best, wanted, in_lines=text is None)
    if left_out:
        numbers = list(left_out)
        raise CutawayError(
            "lines that are too long for the model and stayed empty: {numbers}{more} ({n} in all); make shorter "
            "sentences of them, or cut them (--truncate)",
            n=len(numbers),
            numbers=names_of(numbers[:_NAMED]),
            more=", …" if len(numbers) > _NAMED else "",
        )


def open_translator(model: str) -> "Translator":
    """The translator of a bundled name or a folder."""
    loaded = open_model(model)

    from cutaway.decode.translator import Translator

    return Translator(loaded)


def _print(translation: "Translation", n_best: int, wanted: list[Show], in_lines: bool) -> None:
    """As many rows as there are to be, whatever a model writes; then what else is wanted, sentence by sentence."""
    shown = one_line if in_lines or n_best > 1 else str
    # what was left as it is has no score
    scores = [f"{each.score:.3f}" if each.ids else "" for each in translation.hypotheses]
    rows = [
        f"{score}\t{shown(each.text)}" for score, each in zip(scores, translation.hypotheses, strict=True)
    ]
    if n_best == 1:
        rows = [shown(translation.best.text)]
    for row in rows + ["\t"] * (n_best - len(rows)):
        write(row)
    translated = [sentence for sentence in translation.sentences if sentence.source.ids]
    for sentence in translated:
        for what in wanted:
            _show(sentence, what)
    if wanted and translated:
        write()


def _show(sentence: "Sentence", what: Show) -> None:
    source = sentence.source
    if what == Show.TOKENS:
        write()
        show_tokens(told("source piece"), source.ids, source.pieces)
    for hypothesis in sentence.hypotheses:
        write()
        if what == Show.ALIGNMENT:
            from cutaway.inspection.questions.align import alignment_map

            assert hypothesis.alignment is not None
            write_page(alignment_map(hypothesis.alignment, hypothesis.pieces, source.pieces))
        elif what == Show.TOKENS:
            show_tokens(told("translation piece"), hypothesis.ids, hypothesis.pieces)
        else:
            show_scores(hypothesis)


def show_tokens(title: str, ids: list[int], pieces: list[str]) -> None:
    """A table of pieces with their ids; `title` stands over the pieces."""
    rows = [(piece, str(id)) for piece, id in zip(pieces, ids, strict=True)]
    write_table((title, told("id")), rows, right=(1,))


def show_scores(hypothesis: "Hypothesis") -> None:
    """A table of the probability of each token, and of what else the model considered."""
    rows = []
    for piece, id, log_prob, others in zip(
        hypothesis.pieces, hypothesis.ids, hypothesis.log_probs, hypothesis.alternatives, strict=True
    ):
        rivals = [f"{other.piece} {exp(other.log_prob):.3f}" for other in others if other.id != id]
        rows.append((piece, f"{exp(log_prob):.3f}", f"{log_prob:.3f}", "  ".join(rivals)))
    headers = (told("piece"), told("probability"), told("log"), told("instead"))
    write_table(headers, rows, right=(1, 2))
    total, score = f"{sum(hypothesis.log_probs):.3f}", f"{hypothesis.score:.3f}"
    stopped = hypothesis.finish == "stop"
    ended = say("the model ended the text") if stopped else say("cut by the length limit")
    tell("log-probability {total}, score {score}; {ended}", total=total, score=score, ended=ended)


def as_object(translation: "Translation") -> dict[str, object]:
    """A translation as JSON holds it: numbers as they are, weights as rows over the source pieces; of each sentence its
    place in the text, and how many of the source's and of each translation's pieces are its own, in order."""
    return {
        "source": translation.source.text,
        "to": translation.source.to,
        "source_ids": translation.source.ids,
        "source_pieces": translation.source.pieces,
        "source_offsets": translation.source.offsets,
        "notes": [said(remark, reader_locale()) for remark in translation.notes],
        "translations": [
            {
                name: getattr(hypothesis, name)
                for name in ("text", "score", "finish", "ids", "pieces", "log_probs")
            }
            | {
                "alternatives": [[asdict(other) for other in others] for others in hypothesis.alternatives],
                "alignment": None if hypothesis.alignment is None else hypothesis.alignment.tolist(),
            }
            for hypothesis in translation.hypotheses
        ],
        "sentences": [
            {
                "start": sentence.start,
                "end": sentence.end,
                "source_pieces": len(sentence.source.pieces),
                "translations": [
                    {"text": each.text, "score": each.score, "pieces": len(each.pieces)}
                    for each in sentence.hypotheses
                ],
            }
            for sentence in translation.sentences
        ],
    }
