from pathlib import Path

import pytest

from cutaway.errors import CutawayError
from cutaway.train.recipe import changes, fingerprint, read_recipe, refuse_changes

RECIPE = """
[run]
name = "toy"
[model]
preset = "m2m100-tiny"
[data]
directions = ["zh>en"]
[[data.sources]]
path = "pairs.tsv"
[train]
objective = "seq2seq"
steps = 10
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    path = tmp_path / "toy.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def test_reads_values_and_defaults(toy: Path) -> None:
    recipe = read_recipe(toy)
    assert recipe.folder == Path("runs/toy")
    assert recipe.model == {"preset": "m2m100-tiny"}
    assert (recipe.train.steps, recipe.train.optimizer, recipe.data.sources[0].format) == (10, "adamw", "tsv")


def test_overrides_with_and_without_a_table(toy: Path) -> None:
    recipe = read_recipe(toy, ["steps=20", "seed=3", "model.dropout=0.2", "run.folder=elsewhere", "lr=1e-4"])
    assert (recipe.train.steps, recipe.run.seed, recipe.train.lr) == (20, 3, 1e-4)
    assert recipe.model["dropout"] == 0.2 and recipe.folder == Path("elsewhere")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("train.stepz=1", r"unknown key 'stepz' \(did you mean 'steps'\?\)"),
        ("objective=seq2sec", r"expected one of seq2seq, causal, masked \(did you mean 'seq2seq'\?\)"),
        ("steps=many", r"train\.steps is 'many'"),
        ("steps=0", r"steps is 0, expected more than 0"),
        ("minutes=3", r"exactly one of steps, tokens and minutes .* given: steps, minutes"),
        ("lr=-1.0", r"lr is -1\.0, expected a number above 0"),
        ("lr", r"'train\.lr' is not of the form key=value"),
        ("smoothing=1.0", r"smoothing is 1\.0, expected 0 <= smoothing < 1"),
        ("betas=[0.9]", r"betas is \[0\.9\], expected two numbers"),
        ("patience=3", r"patience needs validate_every"),
        ("data.sources=[]", r"there are no sources"),
        ('data.directions=["zh-en"]', r"direction 'zh-en' is not of the form"),
        ("schedule=cosinus", r"expected one of .*did you mean 'cosine'"),
        ("decay=0.0", r"decay is 0\.0"),
        ("average_decay=1.0", r"average_decay is 1\.0"),
        ("clip=0.0", r"clip is 0\.0, expected a number above 0"),
    ],
)
def test_mistakes_are_named(toy: Path, assignment: str, message: str) -> None:
    with pytest.raises(CutawayError, match=message) as error:
        read_recipe(toy, [assignment])
    assert str(toy) in str(error.value)


def test_what_may_change_between_runs_and_what_may_not(toy: Path) -> None:
    before = fingerprint(read_recipe(toy))
    free = read_recipe(toy, ["steps=20", "save_every=7", "keep=9", "run.threads=1", "run.folder=moved"])
    assert changes(before, fingerprint(free)) == []
    other = fingerprint(read_recipe(toy, ["lr=0.5", "model.dropout=0.2", "seed=9"]))
    with pytest.raises(CutawayError) as error:
        refuse_changes(before, other, Path("runs/toy"))
    for part in ("runs/toy", "run.seed: 1 -> 9", "train.lr: 0.001 -> 0.5", "model.dropout: None -> 0.2"):
        assert part in str(error.value)


def test_the_recipes_that_come_along_are_valid() -> None:
    folder = Path(__file__).parents[2] / "recipes"
    names = {path.stem: read_recipe(path).run.name for path in folder.glob("*.toml")}
    assert len(names) >= 5 and all(stem == name for stem, name in names.items())


@pytest.mark.parametrize("name", ["../escape", "a/b", "..", ""])
def test_a_run_s_name_leads_nowhere_else(name: str) -> None:
    with pytest.raises(CutawayError, match="expected a plain folder name"):
        read_recipe(Path("recipes/gpt-shakespeare.toml"), [f'run.name="{name}"'])
