"""A word covered, in three families: what is written without it, and where the model looked, against plain passes."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import command
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese
from torch import Tensor

from cutaway import CutawayError, find, load
from cutaway.checkpoint.folder import Loaded
from cutaway.decode.complete import continue_text
from cutaway.decode.gaps import fill
from cutaway.decode.search import GREEDY, Limits
from cutaway.decode.translator import Translator
from cutaway.inspection.changes.writing import write
from cutaway.inspection.patterns import patterns
from cutaway.inspection.questions.cover import Cover, cover
from cutaway.inspection.runs import Run, run, tokens_of
from cutaway.inspection.units import Unit
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.tap import Trace
from cutaway.zoo import MASKED, POET, TRANSLATOR, examples

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("translator", None, {"text": "今天天气很好。", "hide": [2, 1], "beam": 2}),
    ("translator", None, {"text": "好久不见", "target": "time", "to": "en"}),
    ("poet", None, {"text": "今天天气", "hide": [2], "max_new_tokens": 5}),
    ("masked", None, {"text": "Long [MASK] no see.", "hide": [1, 4]}),
    ("masked", None, {"text": "Long time"}),
]

SENTENCE, BACK = "她的妹妹在北京工作。", "Her sister works in Beijing."


@pytest.fixture(scope="module")
def translator_loaded() -> Loaded:
    return load(find(TRANSLATOR))


def place_of(found: Cover, word: str) -> int:
    return next(place for place, each in enumerate(found.source) if each.text == word)


def tokens_named(found: Cover, *words: str) -> tuple[int, ...]:
    return tuple(at for word in words for at in range(*found.source[place_of(found, word)].tokens))


def lit(found: Cover) -> str:
    assert found.light is not None
    return found.target[found.light].text


def grouped(weights: Tensor, target: tuple[Unit, ...], source: tuple[Unit, ...]) -> list[list[float]]:
    """By plain loops: the sum over a source unit's tokens, the mean over a target unit's."""
    return [
        [
            sum(float(weights[t, s]) for t in range(*row.tokens) for s in range(*column.tokens))
            / (row.tokens[1] - row.tokens[0])
            for column in source
        ]
        for row in target
    ]


def near(found: Tensor, expected: list[list[float]]) -> None:
    torch.testing.assert_close(found, torch.tensor(expected), rtol=0, atol=1e-4)


def test_a_translation_and_the_attention_of_its_units(translator_loaded: Loaded) -> None:
    found = cover(translator_loaded, SENTENCE)
    asked = run(translator_loaded, SENTENCE)
    whole = patterns(asked, "cross").values.mean(dim=(0, 1))
    near(found.weights, grouped(whole, found.target, found.source))
    torch.testing.assert_close(found.weights.sum(dim=1), torch.ones(len(found.target)))
    assert found.text == found.output == found.base.text == "Her sister works in Beijing."
    assert found.base.target == found.target and found.hidden == () and found.sentence is None
    assert [kind for kind, _, _ in found.edits] == ["equal"]
    assert lit(found) == "Beijing" and lit(cover(translator_loaded, BACK)) == "北"
    assert found.light is not None
    row = found.weights[found.light]
    percent = 100 * float(row[place_of(found, "北")] + row[place_of(found, "京")])
    expected = f"While it wrote “Beijing”, {percent:.0f} % of the cross-attention (mean of all heads) lay on 北 and 京."
    assert str(found.told[found.light]) == expected
    assert "the mark “end”" in str(found.told[-1])


@pytest.mark.parametrize(
    ("text", "words"), [(SENTENCE, ["北"]), (SENTENCE, ["京"]), (SENTENCE, ["北", "京"]), (BACK, ["Beijing"])]
)
def test_a_covered_word_is_hidden_from_the_translator(
    translator_loaded: Loaded, text: str, words: list[str]
) -> None:
    plain = cover(translator_loaded, text)
    hidden = tokens_named(plain, *words)
    found = cover(translator_loaded, text, hide=hidden)
    asked = run(translator_loaded, text)
    expected = write(asked, [{"op": "hide", "token": list(hidden)}])
    assert found.text == expected.text != plain.text and found.hidden == hidden
    assert (found.base.text, found.base.target, found.source) == (plain.text, plain.target, plain.source)
    # the model's own source mask says the same, to its numbers
    mask = torch.ones(1, len(asked.inputs["source"][0]), dtype=torch.bool)
    mask[0, list(hidden)] = False
    assert asked.target is not None
    ids = [asked.target.ids[0], *expected.ids]
    read = tokens_of(translator_loaded, ids[:-1])
    now = Run(translator_loaded, asked.source, read, tokens_of(translator_loaded, ids[1:]))
    names = [f"decoder.layers.{layer}.cross_attn.pattern" for layer in range(now.model.config.n_layers)]
    with torch.no_grad(), Trace(now.model, names) as trace:
        now.model(**now.inputs, source_mask=mask)
    whole = torch.stack([trace[name][0] for name in names]).mean(dim=(0, 1))
    near(found.weights, grouped(whole, found.target, found.source))
    for word in words:
        assert bool((found.weights[:, place_of(found, word)] == 0).all())
    assert str(found.sentence) == f"With {', '.join(words)} covered, the model writes: {found.text}"
    before = [each.text for each in found.base.target if not each.control]
    after = [each.text for each in found.target if not each.control]
    assert [word for _, old, _ in found.edits for word in old] == before
    assert [word for _, _, new in found.edits for word in new] == after


def test_what_the_bundled_translator_writes_without_words(translator_loaded: Loaded) -> None:
    plain = cover(translator_loaded, SENTENCE)

    def without(*words: str) -> str:
        return cover(translator_loaded, SENTENCE, hide=tokens_named(plain, *words)).text

    assert "Beijing" not in without("北") + without("京") + without("北", "京")
    assert "work" not in without("工作") and "Beijing" in without("工作")
    back = cover(translator_loaded, BACK)
    assert "北京" not in cover(translator_loaded, BACK, hide=tokens_named(back, "Beijing")).text


def test_a_part_of_a_word_is_named_by_its_pieces(translator_loaded: Loaded) -> None:
    first = tokens_named(cover(translator_loaded, BACK), "Beijing")[0]
    found = cover(translator_loaded, BACK, hide=(first,))
    assert str(found.sentence).startswith("With ▁Be covered, ")


def test_a_given_translation_is_looked_at_as_it_is(translator_loaded: Loaded) -> None:
    found = cover(translator_loaded, SENTENCE, target="She is in Beijing.")
    whole = patterns(run(translator_loaded, SENTENCE, target="She is in Beijing."), "cross").values
    near(found.weights, grouped(whole.mean(dim=(0, 1)), found.target, found.source))
    assert found.text == "She is in Beijing."
    with pytest.raises(CutawayError, match="target and hide are given"):
        cover(translator_loaded, SENTENCE, target="She", hide=(2,))


def test_a_poem_goes_on_without_a_word() -> None:
    loaded = load(find(POET))
    text = "床前明月光，"
    plain = cover(loaded, text)
    assert plain.text == continue_text(loaded, [text], search=GREEDY, limits=Limits(24))[0].best.text
    asked = run(loaded, text, max_new_tokens=24)
    read = len(text) + 1
    whole = patterns(asked, "decoder").values.mean(dim=(0, 1))[read - 1 :, :read]
    near(plain.weights, grouped(whole, plain.target, plain.source))
    assert (
        plain.target[0].tokens == (0, 1) and len(plain.target) == 24 and str(plain.source[0].name) == "start"
    )

    moon = tokens_named(plain, "月")
    found = cover(loaded, text, hide=moon)
    assert found.text != plain.text and found.base.text == plain.text
    assert found.text == continue_text(loaded, ["床前明光，"], search=GREEDY, limits=Limits(24))[0].best.text
    # with the same tokens as those of a text that never had it, beside the column of what is covered
    other = cover(loaded, "床前明光，")
    columns = [place for place in range(len(found.source)) if place != place_of(found, "月")]
    torch.testing.assert_close(found.weights[:, columns], other.weights, rtol=0, atol=1e-4)
    assert bool((found.weights[:, place_of(found, "月")] == 0).all())

    # at the end nothing is left of it: the model writes on from what stands before
    end = cover(loaded, "明月", hide=(2,), max_new_tokens=6)
    assert end.text == continue_text(loaded, ["明"], search=GREEDY, limits=Limits(6))[0].best.text
    assert bool((end.weights[:, 2] == 0).all())
    begun = cover(loaded, "明月", hide=(1, -1), max_new_tokens=6)
    assert begun.hidden == (1, 2) and len(begun.target) == 6
    assert begun.text == continue_text(loaded, [""], search=GREEDY, limits=Limits(6))[0].best.text


def test_a_masked_model_guesses_a_covered_word() -> None:
    loaded = load(find(MASKED))
    text = "The king sat on the throne."
    plain = cover(loaded, text)
    assert str(plain.sentence) == (
        "The text has no gap that the model could fill: cover a word, or write [MASK] in its place."
    )
    whole = patterns(run(loaded, text), "encoder").values.mean(dim=(0, 1))
    near(plain.weights, grouped(whole, plain.source, plain.source))
    assert plain.target == plain.source and str(plain.told[2]).startswith("At “king”, ")

    hidden = tokens_named(plain, "sat")
    found = cover(loaded, text, hide=hidden)
    expected = fill(loaded, "The king [MASK] on the throne.")
    assert found.text == expected.text and [each.text for each in found.target] == [
        expected.gaps[0].candidates[0].piece
    ]
    assert [each.text for each in found.base.target] == ["sat"] and found.base.text == plain.text
    gap = patterns(run(loaded, "The king [MASK] on the throne."), "encoder").values.mean(dim=(0, 1))
    near(found.weights, grouped(gap, found.target, found.source))
    assert found.source == plain.source
    assert ("replace", ("sat",), (found.target[0].text,)) in found.edits
    assert str(found.told[0]).startswith(f"Where it put “{found.target[0].text}”, ")
    # beside gaps of the text's own
    both = cover(loaded, "The [MASK] sat on the throne.", hide=hidden)
    filled = fill(loaded, "The [MASK] [MASK] on the throne.")
    assert both.text == filled.text and both.base.text == fill(loaded, "The [MASK] sat on the throne.").text
    assert [each.text for each in both.base.target][1] == "sat"


def test_positions_that_cannot_be_covered_are_refused(translator_loaded: Loaded) -> None:
    with pytest.raises(
        CutawayError, match="position 9 is not in the text, which has 9 tokens: expected 0 to 8"
    ):
        cover(translator_loaded, SENTENCE, hide=(9,))
    with pytest.raises(CutawayError, match="hide names all 9 tokens of the text"):
        cover(translator_loaded, SENTENCE, hide=tuple(range(9)))
    masked = load(find(MASKED))
    with pytest.raises(CutawayError, match=r"position 0 is \[CLS\], a control token"):
        cover(masked, "The king.", hide=(0,))
    with pytest.raises(CutawayError, match="position 3 is not in the text, which has 3 tokens"):
        cover(load(find(POET)), "明月", hide=(3,))


def test_nothing_is_computed_twice(
    translator_loaded: Loaded, passes: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[int] = []
    plain = EncoderDecoder.begin
    monkeypatch.setattr(
        EncoderDecoder, "begin", lambda *given, **named: searches.append(1) or plain(*given, **named)
    )
    for hide, begun in (((), 1), ((4,), 2)):
        searches.clear()
        passes()
        cover(translator_loaded, SENTENCE, hide=hide)
        assert (len(searches), passes()) == (begun, 1)
    masked = load(find(MASKED))
    for text, count in (("The king sat.", 1), ("The [MASK] sat.", 2)):
        passes()
        cover(masked, text, hide=(3,))
        assert passes() == count


def test_a_word_in_a_search_of_its_own(translator_loaded: Loaded) -> None:
    found = cover(translator_loaded, "你好。", to="en", beam=1)
    assert (
        found.text == Translator(translator_loaded).translate(["你好。"], to="en", search=GREEDY)[0].best.text
    )


@pytest.mark.parametrize("model", [TRANSLATOR, POET, MASKED])
def test_examples_of_bundled_models_show_something(model: str) -> None:
    loaded, given = load(find(model)), examples(model)
    assert len(given) >= 3
    for each in given:
        text, options = str(each["text"]), each["options"]
        assert isinstance(options, dict)
        found = cover(loaded, text, **options)
        covered = [unit for unit in found.source if {*range(*unit.tokens)} & {*found.hidden}]
        # whole words
        assert covered and sum(len(unit.pieces) for unit in covered) == len(found.hidden)
        assert not any(unit.control for unit in covered) and found.light is not None
        assert model == MASKED or found.text != found.base.text


def test_in_a_terminal_as_json_and_as_a_page(
    cutaway: command.Run, translator: Path, poet: Path, masked: Path
) -> None:
    asked = ("cover", "好久不见。", "-m", translator)
    out = shown(cutaway, *asked, "--hide", "1,2")
    assert out.startswith("What is written, and where the model looked\n")
    assert "[" in out and "covered, the model writes" in out and "into English" in out
    for model in (translator, poet, masked):
        chinese = shown_in_chinese(cutaway, "cover", "好久不见。", "-m", model, "--hide", "1")
        assert "遮住" in chinese
    shown_in_chinese(cutaway, "cover", "It's.", "-m", masked)
    data: dict[str, Any] = result(cutaway, *asked, "--hide", "1,2")
    assert {
        "source", "target", "weights", "told", "light", "hidden", "base", "text", "edits", "sentence", "family",
    } == set(data)  # fmt: skip
    assert len(data["weights"]) == len(data["target"]) == len(data["told"])
    assert data["hidden"] == [1, 2] and data["family"] == "encoder-decoder"
    assert set(data["source"][0]) == {"text", "tokens", "control", "name", "pieces"}
    assert data["source"][0]["name"] == {"en": "into English", "zh": "译成英文"}
    html = page_of(cutaway, *asked, "--hide", "1,2")
    assert re.search(r"<(?:del|ins|span) class=\"(?:delete|insert|replace)\"", html)
    assert "hide is" in refused(cutaway, *asked, "--hide", "x")
    assert "position 99 is not in the text" in refused(cutaway, *asked, "--hide", "99")
