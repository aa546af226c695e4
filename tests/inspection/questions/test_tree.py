"""The tree is the search's own: its winner, its sums, its fates, and where each hypothesis looked."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese
from tests.command import Run as Command
from torch import Tensor

from cutaway import CutawayError, Translator, find, load
from cutaway.decode.search import LengthPenalty
from cutaway.inspection.patterns import patterns
from cutaway.inspection.questions.tree import Tree, tree
from cutaway.inspection.runs import Run, Tokens, tokens_of

ASKED: list[Case] = [
    ("translator", None, {"text": "好久不见。", "beam": 3, "length_penalty": 1.0, "layer": 1, "to": "en"}),
    ("translator", None, {"text": "今天", "changes": [{"op": "token", "at": 0, "ban": ["▁I"]}], "head": 0}),
]
SENTENCE = "她的妹妹在北京工作。"


@pytest.fixture(scope="module")
def found() -> Tree:
    return tree(load(find("translate-zh-en")), SENTENCE)


def forced(found: Tree, node: int) -> tuple[Run, list[int]]:
    """A run that writes a node's hypothesis."""
    loaded, ids = load(find("translate-zh-en")), [found.nodes[at].id for at in found.way(node)]
    whole = [*found.start.ids, *ids]
    source = Tokens(found.source.ids, found.source.pieces)
    return Run(loaded, source, tokens_of(loaded, whole[:-1]), tokens_of(loaded, whole[1:])), ids


def test_the_winner_is_what_the_translator_writes(found: Tree) -> None:
    translator = Translator(load(find("translate-zh-en")))
    [[best]] = translator.write([translator.prepare(SENTENCE)])
    assert [found.nodes[at].id for at in found.way(found.best)] == best.ids
    assert found.output == best.text == "Her sister works in Beijing."
    winner = found.nodes[found.best]
    assert winner.score == pytest.approx(best.score, abs=1e-5) and winner.fate == best.finish == "stop"
    assert winner.total == pytest.approx(sum(best.log_probs), abs=1e-5)
    ended = [each.score for each in found.nodes if each.fate in ("stop", "length")]
    assert max(ended) == winner.score and len(ended) > 1
    assert (found.beam, found.length_penalty) == (4, LengthPenalty(0.6))


def test_sums_and_attention_are_those_of_forced_passes(found: Tree) -> None:
    ends = [at for at in range(len(found.nodes)) if at not in {each.parent for each in found.nodes}]
    assert len(ends) > 20
    for at in ends[::3]:
        read, ids = forced(found, at)
        log_probs = read.forward()[0].log_softmax(dim=-1)[len(found.start) - 1 :]
        each = log_probs.gather(1, torch.tensor(ids)[:, None])[:, 0]
        way = [found.nodes[place] for place in found.way(at)]
        assert [node.log_prob for node in way] == pytest.approx(each.tolist(), abs=2e-4)
        assert way[-1].total == pytest.approx(float(each.sum()), abs=1e-3)
        assert way[-1].score == pytest.approx(way[-1].total / LengthPenalty(0.6).divisor(len(way)))
        weights: Tensor = patterns(read, "cross").values.mean(dim=(0, 1))[len(found.start) - 1 :]
        torch.testing.assert_close(found.attention[found.way(at)], weights, rtol=1e-3, atol=1e-4)
    assert found.attention.sum(dim=1) == pytest.approx(torch.ones(len(found.nodes)), abs=1e-5)


def test_fates_are_those_of_the_beam(found: Tree) -> None:
    steps = {each.step for each in found.nodes}
    assert sorted(steps) == list(range(1, max(steps) + 1))
    for step in sorted(steps):
        here = [each for each in found.nodes if each.step == step]
        assert [each.total for each in here] == sorted((each.total for each in here), reverse=True)
        live = [each for each in here if each.fate == "live"]
        assert len(live) == found.beam
        # what is dropped is worse than all that stays, unless it ends
        for each in here:
            if each.fate == "dropped" and each.piece != "</s>":
                assert each.total <= min(other.total for other in live)
            if each.fate == "stop":
                assert each.piece == "</s>" and each in here[: found.beam]
    tokenizer = load(find("translate-zh-en")).require_tokenizer()
    for at, node in enumerate(found.nodes):
        assert node.text == tokenizer.decode([found.nodes[each].id for each in found.way(at)])
        parent = None if node.parent is None else found.nodes[node.parent]
        assert (parent is None) == (node.step == 1)
        if parent is not None:
            assert parent.fate == "live" and parent.step == node.step - 1
            assert node.total == pytest.approx(parent.total + node.log_prob) and node.total < parent.total


def test_what_became_of_each_is_told(found: Tree) -> None:
    assert len(found.told) == len(found.nodes)
    told = [phrase.said("en") for phrase in found.told]
    assert [at for at, each in enumerate(told) if each.startswith("It won")] == [found.best]
    last, goes_on = found.nodes[-1].step, {each.parent for each in found.nodes if each.fate != "dropped"}
    for at, (node, each) in enumerate(zip(found.nodes, told, strict=True)):
        assert node.score == node.total / node.divisor
        if node.fate == "dropped":
            kept = [other.total for other in found.nodes if (other.step, other.fate) == (node.step, "live")]
            below = f"{node.total:.2f} is below {min(kept):.2f}"
            assert each.startswith("Dropped") and (below in each) == (node.total < min(kept))
        elif node.fate == "live":
            assert each.startswith(
                "Left open" if node.step == last else "It goes on" if at in goes_on else "It went"
            )
        elif at != found.best:
            assert f"{node.score:.3f}" in each and f"{found.nodes[found.best].score:.3f}" in each


def test_one_head_and_its_layer() -> None:
    loaded = load(find("translate-zh-en"))
    narrow = tree(loaded, SENTENCE, beam=2, layer=-1, head=1)
    read, _ = forced(narrow, narrow.best)
    weights = patterns(read, "cross").values[-1, 1][len(narrow.start) - 1 :]
    torch.testing.assert_close(narrow.attention[narrow.way(narrow.best)], weights, rtol=1e-3, atol=1e-4)
    assert (narrow.layer, narrow.head, narrow.beam) == (loaded.config.n_layers - 1, 1, 2)


def test_a_token_is_forced_and_banned(found: Tree) -> None:
    loaded = load(find("translate-zh-en"))
    place = next(step for step, at in enumerate(found.way(found.best)) if found.nodes[at].piece == "▁works")
    at = len(found.start) - 1 + place
    banned = tree(loaded, SENTENCE, changes=[{"op": "token", "at": at, "ban": ["▁works"]}])
    third = [each.piece for each in banned.nodes if each.step == place + 1 and each.fate == "live"]
    assert "▁works" not in third and banned.output != found.output
    forcing = tree(loaded, SENTENCE, changes=[{"op": "token", "at": at, "force": "▁is"}])
    assert {each.piece for each in forcing.nodes if each.step == place + 1} == {"▁is"}
    assert " is " in forcing.output
    assert tree(loaded, SENTENCE, changes=[]).nodes == found.nodes


def test_a_length_penalty_ranks(found: Tree) -> None:
    short = tree(load(find("translate-zh-en")), SENTENCE, length_penalty=0.0)
    assert all(each.score == each.total for each in short.nodes) and short.length_penalty.alpha == 0
    assert found.length_penalty.alpha != 0
    for each in (short, found):
        ended = [node for node in each.nodes if node.fate in ("stop", "length")]
        assert each.nodes[each.best].score == max(node.score for node in ended)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beam": 1}, "beam is 1, expected 2 to 32"),
        ({"layer": 9}, "there is no layer 9"),
        ({"head": 4}, "there is no head 4"),
        ({"length_penalty": 11.0}, "length penalty alpha is 11.0"),
        ({"text": " "}, "the text is empty"),
        ({"changes": [{"op": "tokn"}]}, "tokn"),
    ],
)
def test_what_cannot_be_searched_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(CutawayError, match=message):
        tree(load(find("translate-zh-en")), **{"text": SENTENCE, **arguments})


# As it is asked for.


def test_the_page_tells_what_was_weighed(cutaway: Command, translator: Path) -> None:
    asked = ("tree", "好久不见。", "-m", translator, "--beam", "3")
    out = shown(cutaway, *asked)
    grown = tree(load(translator), "好久不见。", beam=3)
    assert out.startswith("What the search weighed\n") and f"{len(grown.nodes)} hypotheses weighed" in out
    assert sum(" won " in line for line in out.splitlines()) == 1
    assert [each["fate"] for each in result(cutaway, *asked)["nodes"]] == [each.fate for each in grown.nodes]
    html = page_of(cutaway, *asked)
    assert "Where each hypothesis looked" in html
    assert "假设" in shown_in_chinese(cutaway, *asked)


def test_refused_on_the_command_line(cutaway: Command, poet: Path, translator: Path) -> None:
    assert "tree needs an encoder-decoder model" in refused(cutaway, "tree", "好", "-m", poet)
    assert "--beam is 1, expected at least 2" in refused(
        cutaway, "tree", "好", "-m", translator, "--beam", "1"
    )


def test_what_is_suggested_next_can_be_asked(found: Tree) -> None:
    asked = {each.question: each for each in found.suggestions()}
    assert set(asked) == {"align", "tree", "candidates"}
    options: dict[str, Any] = dict(asked["tree"].options)
    again = tree(load(find("translate-zh-en")), SENTENCE, **options)
    assert again.output != found.output
