"""Every measurement runs, at tiny sizes, against the real peer; speed itself is not judged here."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from benchmarks import everyday, explorer
from benchmarks.__main__ import PARTS, main
from benchmarks.measure import Effort, Row, take_turns
from benchmarks.memory import held


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Row], Path]:
    out = tmp_path_factory.mktemp("benchmarks") / "results.json"
    return main(
        ["training", "translation", "attention", "tracing", "experts", "--quick", "--out", str(out)]
    ), out


def test_ours_is_compared_with_transformers_and_computes_the_same(measured: tuple[list[Row], Path]) -> None:
    compared = [row for row in measured[0] if "transformers" in row.peer and row.ratio is not None]
    assert [row.part for row in compared] == ["training step"] * 2 + ["translation"] * 2
    for row in compared:
        assert row.theirs is not None and row.ratio == pytest.approx(row.ours / row.theirs)
        assert row.agree


def test_what_is_recorded_is_what_the_plain_pass_computes(measured: tuple[list[Row], Path]) -> None:
    (row,) = (row for row in measured[0] if row.peer == "the plain forward pass")
    assert row.agree and row.case == "all 52 recorded, random weights, 8 + 8 tokens"


def test_memory_follows_what_is_asked_for(measured: tuple[list[Row], Path]) -> None:
    pattern, head = (row for row in measured[0] if row.peer == "all taps")
    floats = 2 * 8 * 8  # of two heads, eight words by eight
    assert (pattern.ours, head.ours) == (4 * floats / 1e6, 4 * floats / 2 / 1e6)
    assert pattern.theirs is not None and pattern.theirs > 50 * pattern.ours


def test_held_memory_is_what_lives_on() -> None:
    assert held(lambda: torch.ones(100, 100) @ torch.ones(100, 100)) == 40_000
    assert held(lambda: torch.ones(100, 100)[0]) == 40_000, "a view keeps its whole alive"
    assert held(lambda: torch.ones(100, 100).sum().item()) == 0


def test_transformer_lens_runs_the_same_weights(tmp_path: Path) -> None:
    if importlib.util.find_spec("transformer_lens") is None:
        pytest.skip("TransformerLens is not here: `make bench` installs it")
    plain, recorded, *_ = rows = main(["run_with_cache", "--quick", "--out", str(tmp_path / "results.json")])
    assert all(row.peer.startswith("TransformerLens 4") for row in rows)
    assert plain.agree and recorded.agree


def test_word_vectors_beside_gensim(tmp_path: Path) -> None:
    rows = main(["word2vec", "--quick", "--out", str(tmp_path / "results.json")])
    assert [(row.part, row.peer) for row in rows] == [("word vectors", "gensim")] * 2
    for row in rows:
        assert row.theirs is not None and row.ratio is not None
        assert row.ratio == pytest.approx(row.ours / row.theirs) and row.ratio > 0


def test_every_figure_is_positive(measured: tuple[list[Row], Path]) -> None:
    assert {row.part for row in measured[0]} == {
        "training step",
        "translation",
        "attention",
        "seeing inside",
        "experts",
    }
    assert all(row.ours > 0 and (row.theirs is None or row.theirs > 0) for row in measured[0])


def test_results_name_the_machine(measured: tuple[list[Row], Path]) -> None:
    rows, out = measured
    written = json.loads(out.read_text(encoding="utf-8"))
    assert written["machine"].keys() >= {"cpu", "cores", "threads", "torch", "transformers"}
    assert [row["case"] for row in written["rows"]] == [row.case for row in rows]


def test_turns_are_taken_after_one_call_each() -> None:
    calls: list[str] = []
    seconds = take_turns([lambda: calls.append("a"), lambda: calls.append("b")], Effort(rounds=2), repeat=2)
    assert calls == ["a", "b", "a", "a", "b", "b", "b", "b", "a", "a"]
    assert len(seconds) == 2 and min(seconds) > 0


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["decoding"])
    assert stopped.value.code == 2
    assert f"unknown part 'decoding'; expected some of {', '.join(PARTS)}" in capsys.readouterr().err


def test_everyday_sentences_are_sixty_and_each_translation_is_judged() -> None:
    found = everyday.judged()
    assert len(found) == 60
    assert {verdict for translations in found.values() for verdict in translations.values()} <= {
        *everyday.VERDICTS
    }


@pytest.mark.slow
def test_the_explorer_stays_within_its_budgets() -> None:
    """Sizes and times of explorer.BUDGETS, at what they may be on a shared machine."""
    found = {row.case: row.ours for row in explorer.measure(Effort(rounds=5))}
    assert found.keys() == explorer.BUDGETS.keys()
    over = {case: ours for case, ours in found.items() if ours > explorer.BUDGETS[case][2]}
    assert not over
