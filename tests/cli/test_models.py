from pathlib import Path

from cutaway import bundled, load
from cutaway.cli.models import card_scores, family, parameters


def test_facts_are_those_of_the_opened_model(translator: Path, poet: Path, masked: Path):
    for folder in (translator, poet, masked):
        loaded = load(folder)
        assert family(folder) == loaded.config.family
        assert parameters(folder) >= sum(weight.numel() for weight in loaded.model.parameters())


def test_scores_come_from_the_card(tmp_path: Path):
    (tmp_path / "README.md").write_text(
        "# A model\n\n## Scores\n\nOn a test set:\n\n| what | score |\n|---|---|\n| BLEU zh>en | 21.3 |\n"
        "| chrF | 40 |\n\n## Limits\n\n| not | this |\n|---|---|\n| a | b |\n"
    )
    assert card_scores(tmp_path) == ["BLEU zh>en 21.3", "chrF 40"]
    assert card_scores(tmp_path / "missing") == []


def test_the_table_names_every_bundled_model(cutaway):
    result = cutaway("models")
    assert (result.code, result.err) == (0, "")
    for folder in bundled():
        assert folder.name in result.out
        assert f"{parameters(folder):,}" in result.out
        for score in card_scores(folder):
            assert score.split()[-1] in result.out
