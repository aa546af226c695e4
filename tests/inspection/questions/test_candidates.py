"""What may be written at a place is what decoding draws from: held to decoding, and to plain arithmetic."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese
from tests.command import Run as Command

from cutaway import CutawayError, Translator, find, load
from cutaway.decode.complete import continue_text
from cutaway.decode.gaps import fill
from cutaway.decode.sampling import Sampling
from cutaway.decode.search import Limits, Search
from cutaway.inspection.outcome import never_written
from cutaway.inspection.questions.candidates import Candidates, candidates
from cutaway.inspection.runs import Run, run
from cutaway.page.numbers import share

ASKED: list[Case] = [
    ("poet", "今天天气", {"at": 2, "temperature": 0.5, "top_k": 5, "top": 3}),
    ("masked", "今天[MASK]", {"top_p": 0.9, "repetition_penalty": 1.5}),
]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0},
    {"temperature": 0.0},
    {"top_p": 0.0},
    {"top_k": 7},
    {"top_p": 0.8},
    {"min_p": 0.1},
    {"temperature": 2.0, "top_k": 30, "top_p": 0.9, "min_p": 0.05},
    {"temperature": 0.5, "repetition_penalty": 1.7, "top_k": 9},
]


def plain(logits: np.ndarray, never: list[int], seen: list[int], **given: float) -> np.ndarray:
    """The probabilities of sampling, spelled out once more."""
    scores = logits.astype(np.float64)
    penalty = given.get("repetition_penalty", 1.0)
    for id in set(seen):
        scores[id] = scores[id] * penalty if scores[id] < 0 else scores[id] / penalty
    scores[never] = -np.inf
    if given.get("temperature", 1.0) == 0 or given.get("top_p", 1.0) == 0:
        return (np.arange(len(scores)) == scores.argmax()).astype(float)
    scores = scores / given.get("temperature", 1.0)
    order = np.argsort(-scores, kind="stable")
    if k := int(given.get("top_k", 0)):
        scores[order[k:]] = -np.inf

    def softmax() -> np.ndarray:
        powers = np.exp(scores - scores.max())
        return powers / powers.sum()

    nucleus, mass = softmax(), 0.0
    for id in order:
        if mass >= given.get("top_p", 1.0):
            scores[id] = -np.inf
        mass += nucleus[id]
    chances = softmax()
    scores[chances < given.get("min_p", 0.0) * chances.max()] = -np.inf
    return softmax()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("structure", ["pre-norm pair", "Llama", "masked, pre-norm"])
def test_probabilities_are_those_that_sampling_draws_with(
    run_of: Callable[..., Run], structure: str, settings: dict[str, Any]
) -> None:
    read = run_of(structure)
    found = candidates(read, at=3, top=10_000, **settings)
    logits = read.forward()[0][3]
    stands = read.outcome.ids if read.target is None else read.target.ids[:4]
    never = never_written(read)
    expected = plain(logits.numpy(), never, stands, **settings)
    by_id = {each.id: each for each in found.rows}
    assert len(by_id) == found.words == len(logits)
    assert [by_id[id].after for id in range(len(logits))] == pytest.approx(expected, abs=1e-6)
    before = logits.double().softmax(dim=-1)
    assert [by_id[id].before for id in range(len(logits))] == pytest.approx(before.tolist(), abs=1e-6)
    afters = [each.after for each in found.rows]
    assert afters == sorted(afters, reverse=True)
    assert found.kept == sum(each.cut is None for each in found.rows) == int((expected > 0).sum())
    assert found.kept_before == pytest.approx(float(before[torch.tensor(expected > 0)].sum()), abs=1e-6)
    assert all((each.after == 0) == (each.cut is not None) for each in found.rows)
    assert {each.id for each in found.rows if each.cut == "never"} == set(never)
    ranked = sorted(found.rows, key=lambda each: each.rank)
    assert [each.logit for each in ranked] == sorted((each.logit for each in ranked), reverse=True)
    assert found.entropy_after == pytest.approx(
        -(expected[expected > 0] * np.log(expected[expected > 0])).sum(), abs=1e-5
    )


def test_a_cut_is_told_by_the_setting_that_made_it(run_of: Callable[..., Run]) -> None:
    read = run_of("Llama")
    cold, k = {"temperature": 0.4, "top": 10_000}, {"top_k": 12}
    by_k, by_p = candidates(read, **cold, **k), candidates(read, **cold, **k, top_p=0.9)
    found = candidates(read, **cold, **k, top_p=0.9, min_p=0.6)

    def kept(asked: Candidates) -> set[int]:
        return {each.id for each in asked.rows if each.cut is None}

    cuts = {each.id: each.cut for each in found.rows}
    assert len(kept(by_k)) == 12 and kept(found) < kept(by_p) < kept(by_k)
    assert {id for id, cut in cuts.items() if cut == "min_p"} == kept(by_p) - kept(found)
    assert {id for id, cut in cuts.items() if cut == "top_p"} == kept(by_k) - kept(by_p)


def test_what_is_not_listed_is_told(run_of: Callable[..., Run]) -> None:
    read = run_of("GPT-2")
    few, all_of_them = candidates(read, top=4), candidates(read, top=10_000)
    assert len(few.rows) == 4 and few.rows == all_of_them.rows[:4]
    assert few.left_before + sum(each.before for each in few.rows) == pytest.approx(1, abs=1e-6)
    assert few.left_after + sum(each.after for each in few.rows) == pytest.approx(1, abs=1e-6)
    assert (all_of_them.left_before, all_of_them.left_after) == (0, 0)
    assert few.written.id == read.outcome.ids[-1] and few.written in all_of_them.rows


def test_log_probabilities_are_those_of_decoding() -> None:
    loaded = load(find("translate-zh-en"))
    translator = Translator(loaded)
    source = translator.prepare("她的妹妹在北京工作。")
    [[best]] = translator.write([source], search=Search(alternatives=5))
    read = run(loaded, "她的妹妹在北京工作。", beam=1)
    assert read.outcome.ids == best.ids
    for position, (log_prob, alternatives) in enumerate(zip(best.log_probs, best.alternatives, strict=True)):
        found = candidates(read, at=position)
        assert found.written.log_prob == pytest.approx(log_prob, abs=1e-5)
        of_id = {each.id: each.log_prob for each in found.rows}
        for each in alternatives[:5]:
            assert of_id[each.id] == pytest.approx(each.log_prob, abs=1e-5)
        # a search without a penalty takes the best that may be written
        assert found.rows[0].id == best.ids[position]


def test_drawn_tokens_are_among_those_kept_and_as_frequent(poet: Path) -> None:
    loaded, many = load(poet), 400
    found = candidates(run(loaded, "今天", max_new_tokens=1), at=-1, temperature=1.5, top_k=4)
    drawn: dict[int, int] = {}
    search = Search(sampling=Sampling(temperature=1.5, top_k=4, seed=3))
    for each in continue_text(loaded, ["今天"] * many, search=search, limits=Limits(1)):
        (id,) = each.best.ids
        drawn[id] = drawn.get(id, 0) + 1
    kept = {each.id: each.after for each in found.rows if each.cut is None}
    assert drawn.keys() <= kept.keys() and len(kept) == 4
    for id, chance in kept.items():
        # five standard deviations
        assert abs(drawn.get(id, 0) / many - chance) < 5 * (chance * (1 - chance) / many) ** 0.5 + 1e-9


def test_a_gap_has_what_fill_would_put_there(masked: Path) -> None:
    loaded, text = load(masked), "The [MASK] is fine [MASK]."
    filled = fill(loaded, text, top=5)
    read = run(loaded, text)
    for gap in filled.gaps:
        found = candidates(read, at=gap.position, top=5)
        assert [each.id for each in found.rows] == [each.id for each in gap.candidates]
        assert [each.after for each in found.rows] == pytest.approx(
            [each.probability for each in gap.candidates], abs=1e-6
        )
        assert found.written.id == gap.candidates[0].id
    assert candidates(read).position == filled.gaps[0].position


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"top": 0}, "top is 0, expected at least 1"),
        ({"temperature": -1.0}, "temperature is -1.0, expected at least 0"),
        ({"top_p": 1.5}, "top_p is 1.5, expected 0 to 1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0, expected a number above 0"),
        ({"at": 7}, "position 7 is not in the text"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    run_of: Callable[..., Run], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(CutawayError, match=message):
        candidates(run_of("GPT-2"), **arguments)


def test_nothing_may_be_written(run_of: Callable[..., Run]) -> None:
    read = run_of("GPT-2")
    generation = {"suppress_tokens": list(range(read.model.config.vocab_size))}
    with pytest.raises(CutawayError, match="no token may be written"):
        candidates(replace(read, loaded=replace(read.loaded, generation=generation)))


# As it is asked for.


def test_the_page_shows_both_probabilities(cutaway: Command, poet: Path) -> None:
    asked = ("candidates", "今天天气", "-m", poet, "--at", "1", "--top-k", "2", "--top", "3")
    lines = shown(cutaway, *asked).splitlines()
    assert lines[0].startswith("What might be written at token 1, ")
    found = candidates(run(load(poet), "今天天气"), at=1, top_k=2, top=3)
    kept = (
        f"kept         2 of {found.words} tokens, with {share(found.kept_before)} of the probability before"
    )
    assert kept in lines
    assert sum(line.endswith("top-k") for line in lines) >= 1
    html = page_of(cutaway, *asked)
    assert found.rows[0].piece in html and "top-k" in html
    assert result(cutaway, *asked)["kept"] == 2
    assert "截断" in shown_in_chinese(cutaway, *asked)


def test_refused_on_the_command_line(cutaway: Command, poet: Path, headless: Path) -> None:
    assert "temperature" in refused(cutaway, "candidates", "好", "-m", poet, "--temperature", "-1")
    assert "candidates needs an output head" in refused(cutaway, "candidates", "今天", "-m", headless)


def test_every_token_together_is_certain(run_of: Callable[..., Run]) -> None:
    found = candidates(run_of("experts"), temperature=1e-4)
    assert found.rows[0].after == pytest.approx(1.0)
    assert torch.isfinite(torch.tensor(found.entropy_after))
