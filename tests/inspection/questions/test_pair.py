import json

import pytest
import torch
from tests import command
from tests.command import Case, refused
from torch.nn.functional import binary_cross_entropy_with_logits

from cutaway import CutawayError, find, load_vectors
from cutaway.checkpoint.word_vectors import WordVectors, first_words
from cutaway.inspection.questions.pair import Pair, pair

# asked of word vectors, and of no model
ASKED: list[Case] = []


@pytest.fixture(scope="module")
def opened() -> WordVectors:
    return first_words(load_vectors(find("words-en")), 2000)


def by_autograd(
    opened: WordVectors, found: Pair, rate: float
) -> tuple[float, float, torch.Tensor, torch.Tensor]:
    """The loss before and after a step of torch's own, and the gradients of both tables' rows."""
    embed, unembed = (
        table.weight.detach().double().clone().requires_grad_()
        for table in (opened.model.embed, opened.model.unembed)
    )
    ids = torch.tensor([each.id for each in found.outputs])
    labels = torch.tensor([each.label for each in found.outputs]).double()

    def loss() -> torch.Tensor:
        scores = unembed[ids] @ embed[opened.words.find(found.centre)]
        return binary_cross_entropy_with_logits(scores, labels, reduction="sum")

    before = loss()
    before.backward()
    to_embed, to_unembed = embed.grad, unembed.grad
    assert to_embed is not None and to_unembed is not None
    with torch.no_grad():
        embed -= rate * to_embed
        unembed -= rate * to_unembed
        return float(before), float(loss()), to_embed[opened.words.find(found.centre)], to_unembed


@pytest.mark.parametrize("negatives", [None, ("bread", "sea", "bread")])
def test_a_step_is_that_of_autograd(opened: WordVectors, negatives: tuple[str, ...] | None) -> None:
    found = pair(opened, "king", "queen", negatives=negatives, rate=0.5)
    before, after, to_centre, to_outputs = by_autograd(opened, found, 0.5)
    assert (found.loss, found.loss_after) == pytest.approx((before, after), rel=1e-12)
    assert after < before
    torch.testing.assert_close(found.hidden_gradient, to_centre)
    expected = torch.zeros_like(to_outputs)
    for each, gradient in zip(found.outputs, found.vectors_gradient, strict=True):
        expected[each.id] += gradient
    torch.testing.assert_close(expected, to_outputs)


def test_negatives_are_drawn_by_the_seed(opened: WordVectors) -> None:
    one, same, other = (pair(opened, "king", "queen", seed=seed) for seed in (1, 1, 2))
    ids = [[each.id for each in found.outputs[1:]] for found in (one, same, other)]
    assert ids[0] == ids[1] != ids[2] and len(ids[0]) == 5
    assert opened.words.find("queen") not in ids[0] + ids[2]
    assert [each.piece for each in pair(opened, "king", "queen", negatives=()).outputs] == ["queen"]


def test_what_has_no_pair(opened: WordVectors) -> None:
    with pytest.raises(CutawayError, match="queen is the context and a negative"):
        pair(opened, "king", "queen", negatives=("queen",))
    with pytest.raises(CutawayError, match="is not among the 2,000 words"):
        pair(opened, "king", "qqueen")


def test_on_the_command_line(cutaway: command.Run) -> None:
    asked = ("inspect", "pair", "king", "throne", "-m", "words-en", "--negatives", "bread,sea")
    found = json.loads(cutaway(*asked, "--json").out)["result"]
    assert [each["piece"] for each in found["outputs"]] == ["throne", "bread", "sea"]
    text = cutaway(*asked).out
    for each in found["outputs"]:
        assert each["piece"] in text and f"{each['likely']:.4f}" in text
    assert "国王" in cutaway("inspect", "pair", "国王", "大臣", "-m", "words-zh", "--lang", "zh").out
    assert "needs word vectors" in refused(cutaway, "pair", "a", "b", "-m", "bert-tiny")
