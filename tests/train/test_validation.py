import math

import pytest
import torch
from tests.nearness import tolerance
from tests.train.conftest import FAMILIES, examples, objective_for, tiny

from cutaway.models.build import build
from cutaway.train.objective import next_token
from cutaway.train.validation import Direction, Validator, mean_loss, translation_scores


@pytest.mark.parametrize("family", ["encoder-decoder", "decoder-only"])
def test_loss_does_not_depend_on_the_batches(family: str) -> None:
    """faults.md 36: each token is scored once, padding never, at any batch size."""
    torch.manual_seed(0)
    model = build(tiny(family)).eval()
    results = []
    with torch.no_grad():
        for rows in (1, 3, 40):
            results.append(mean_loss(model, list(examples(family, rows=rows).once()), next_token()))
    (n,) = {tokens for _, tokens in results}
    losses = [loss for loss, _ in results]
    assert losses == pytest.approx([losses[0]] * 3, rel=tolerance(1, n))


@pytest.mark.parametrize("family", FAMILIES)
def test_validating_twice_gives_the_same(family: str) -> None:
    torch.manual_seed(0)
    model = build(tiny(family)).eval()
    validator = Validator(batches=list(examples(family).once()), objective=objective_for(family))
    with torch.no_grad():
        assert validator(model) == validator(model)


def test_bits_per_byte() -> None:
    torch.manual_seed(0)
    model = build(tiny("decoder-only")).eval()
    batches = list(examples("decoder-only").once())
    with torch.no_grad():
        scores = Validator(batches=batches, objective=next_token(), n_bytes=500)(model)
    assert scores is not None and scores.bits_per_byte is not None
    assert scores.bits_per_byte * 500 * math.log(2) == pytest.approx(scores.loss * scores.tokens)
    assert scores.values() == {"loss": scores.loss, "bits_per_byte": scores.bits_per_byte}


def test_an_empty_set_has_no_loss() -> None:
    model = build(tiny("decoder-only")).eval()
    with pytest.raises(ValueError, match="no token to predict"):
        mean_loss(model, [], next_token())


def test_translations_are_scored_and_shown() -> None:
    model = build(tiny("encoder-decoder")).eval()
    asked = []

    def translate(model: object, texts: list[str], to: str) -> list[str]:
        asked.append((len(texts), to))
        return [text.upper() for text in texts]

    texts = [f"sentence number {n} is here" for n in range(70)]
    direction = Direction(source="zh", target="en", texts=texts, references=[text.upper() for text in texts])
    validator = Validator(
        batches=list(examples("encoder-decoder").once()),
        objective=next_token(),
        directions=[direction],
        samples=2,
        translate=translate,
    )
    with torch.no_grad():
        scores = validator(model)
    assert scores is not None and asked == [(64, "en"), (6, "en")]
    assert scores.translation == {"bleu zh>en": pytest.approx(100), "chrf zh>en": pytest.approx(100)}
    assert scores.samples[1] == (texts[1], texts[1].upper(), texts[1].upper())
    answers = iter([False] * 3)
    with torch.no_grad():
        assert validator(model, lambda: next(answers, True)) is None


def test_chinese_is_scored_by_characters() -> None:
    outputs, references = ["我们今天下午去公园散步吧。"], ["我们今天上午去公园散步吧。"]
    by_characters, chrf = translation_scores(outputs, references, "zh")
    by_words, _ = translation_scores(outputs, references, "en")
    assert by_characters > 50 > by_words and chrf > 50
