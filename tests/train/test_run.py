import json
from pathlib import Path

import pytest
import torch
from tests.train.toy import TEXTS, write_data, write_recipe

from cutaway.checkpoint import folder as checkpoint
from cutaway.errors import CutawayError
from cutaway.train.recipe import read_recipe
from cutaway.train.run import train
from cutaway.train.state import Position, damage, sha256


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_data(tmp_path)
    return tmp_path


def run(recipe: Path, *overrides: str) -> Position:
    return train(read_recipe(recipe, overrides))


def steps(place: Path, name: str = "run") -> list[tuple[int, float]]:
    lines = (place / name / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [(e["step"], e["loss"]) for e in map(json.loads, lines) if "loss" in e]


def test_a_translator_from_recipe_to_model_folder(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_recipe(place)
    position = run(recipe)
    said = capsys.readouterr().err
    assert "20 pairs held out" in said and "validation: loss" in said and "bleu zh>en" in said
    assert position.step == 8 and [entry["step"] for entry in position.history] == [4, 8]
    model = place / "run" / "model"
    assert damage(model) is None and not (model / "training.json").exists()
    loaded = checkpoint.load(model)
    assert loaded.tokenizer is not None and loaded.tokenizer.id(">>eng<<") is not None
    best = place / "run" / f"step-{position.best_step:08d}"
    for name, p in checkpoint.load(best).model.named_parameters():
        assert torch.equal(p, loaded.model.get_parameter(name))
    before = steps(place)
    assert run(recipe).step == 8 and steps(place) == before
    assert "resumed from" in capsys.readouterr().err


def test_more_steps_go_on_and_equal_a_straight_run(place: Path) -> None:
    recipe = write_recipe(place)
    common = ("schedule=constant", "data.validation.translations=0")
    run(recipe, *common, "steps=5", "save_every=100")
    run(recipe, *common, "steps=9", "save_every=100")
    straight = f"run.folder={place}/straight"
    run(recipe, *common, "steps=9", "save_every=100", straight)
    assert len(steps(place)) == 9 and steps(place) == steps(place, "straight")
    one, other = (place / name / "step-00000009" for name in ("run", "straight"))
    for name in ("model.safetensors", "training.safetensors"):
        assert sha256(one / name) == sha256(other / name)


def test_a_changed_recipe_is_refused_by_field(place: Path) -> None:
    recipe = write_recipe(place)
    run(recipe, "steps=1")
    with pytest.raises(CutawayError, match=r"train\.lr: 0\.003 -> 0\.1.*another run\.name"):
        run(recipe, "lr=0.1")
    lines = (place / "pairs.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    (place / "pairs.tsv").write_text("".join(lines[:200]), encoding="utf-8")
    with pytest.raises(CutawayError, match=r"state of the batches: examples was .* now it is"):
        run(recipe, "steps=2")


@pytest.mark.parametrize(
    ("preset", "kind", "objective"),
    [
        ("llama-tiny", "characters", "causal"),
        ("gpt2-small", "bpe-bytes", "causal"),
        ("bert-tiny", "wordpiece", "masked"),
    ],
)
def test_the_other_branches(place: Path, preset: str, kind: str, objective: str) -> None:
    recipe = write_recipe(place, TEXTS, preset=preset, kind=kind, objective=objective)
    position = run(recipe)
    assert position.step == 4
    loss = position.history[-1]["loss"]
    assert isinstance(loss, float) and 0 < loss < 7
    assert ("bits_per_byte" in position.history[-1]) == (objective == "causal")
    assert checkpoint.load(place / "run" / "model").tokenizer is not None


def test_one_long_text_in_windows(place: Path) -> None:
    recipe = write_recipe(place, TEXTS, preset="llama-tiny", kind="characters", objective="causal")
    text = recipe.read_text(encoding="utf-8").replace(
        'format = "text"\n', 'format = "text"\nsplit = "file"\n'
    )
    text = text.replace("hold_out = 20", 'sources = [{ path = "text.txt", format = "text", split = "file" }]')
    recipe.write_text(text, encoding="utf-8")
    position = run(recipe)
    characters = len((place / "text.txt").read_text(encoding="utf-8"))
    log = [json.loads(line) for line in (place / "run" / "log.jsonl").read_text().splitlines()]
    assert {entry["tokens"] for entry in log if "tokens" in entry} == {8 * 24}
    assert position.history[-1]["bits_per_byte"] == pytest.approx(
        float(str(position.history[-1]["loss"])) / 0.6931471805599453 * (characters - 1) / characters
    )


def test_every_format_of_pairs_trains_alike(place: Path) -> None:
    recipe = write_recipe(place)
    text = recipe.read_text(encoding="utf-8").replace("weights = { two = 0.5 }\n", "")
    tsv = 'path = "pairs.tsv"\ncolumns = ["domain", "en", "zh"]'
    runs = []
    for n, source in enumerate(
        (
            tsv + '\ndomain = "all"',
            'format = "jsonl"\npath = "pairs.jsonl"',
            'format = "parallel"\npath = "pairs.zh"\nother = "pairs.en"\ncolumns = ["zh", "en"]',
            'format = "parallel"\npath = "pairs.en"\nother = "pairs.zh"\ncolumns = ["en", "zh"]',
        )
    ):
        recipe.write_text(text.replace(tsv, source), encoding="utf-8")
        run(recipe, "steps=2", "data.validation.translations=0", f"run.folder={place}/run{n}")
        runs.append(steps(place, f"run{n}"))
    assert len(runs[0]) == 2 and all(losses == runs[0] for losses in runs)


def test_weights_can_come_from_another_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_recipe(place)
    run(recipe)
    start = place / "run" / "model"
    few = ("steps=1", f"run.folder={place}/warm", f"tokenizer.path={start}", "lr=1e-9", "average=none")
    run(recipe, *few, f"init={start}")
    assert "weights from" in capsys.readouterr().err
    warm = checkpoint.load(place / "warm" / "model").model
    for name, p in checkpoint.load(start).model.named_parameters():
        torch.testing.assert_close(warm.get_parameter(name), p, atol=1e-7, rtol=0)
    with pytest.raises(CutawayError, match=r"train\.init .* is \(\d+, 16\) there, \(\d+, 32\) here"):
        run(recipe, *few, f"init={start}", "model.d_model=32", f"run.folder={place}/wide")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.folder=/nowhere", r"data\.folder is '/nowhere', which is no folder here"),
        ("init=/nowhere", r"train\.init is '/nowhere', which is no folder here"),
        ("run.device=meta", r"run\.device is 'meta', expected auto, cpu or cuda"),
        ("tokenizer.path=/nowhere", r"/nowhere: no such file or folder"),
        (
            'data.validation.sources=[{path = "pars.tsv"}]',
            r"pars\.tsv: no such file \(did you mean 'pairs\.tsv'",
        ),
        ("model.n_heads=3", r"d_model \(16\) must be a multiple of n_heads \(3\)"),
    ],
)
def test_mistakes_are_named_before_any_data_are_read(
    place: Path, override: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CutawayError, match=message):
        run(write_recipe(place), override)
    assert capsys.readouterr().err == "" and not (place / "run" / "tokenizer").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.weights={ tow = 1.0 }", r"data\.weights\.tow: .*did you mean 'two'"),
        ('data.validation.domains=["onne"]', r"domain 'onne'.*did you mean 'one'"),
        (
            "data.validation.hold_out=1000",
            r"hold_out is 1,000, expected fewer than there are examples \(300\)",
        ),
        ("data.max_source=2", r"no training pair is left: 0 blank, 560 too long"),
        ("tokenizer.vocab_size=100", r"vocab_size is 100, too small"),
    ],
)
def test_what_only_the_data_can_tell_is_named_before_the_first_step(
    place: Path, override: str, message: str
) -> None:
    with pytest.raises(CutawayError, match=message):
        run(write_recipe(place), override)
    assert not list((place / "run").glob("step-*"))


def test_a_corpus_of_one_line_and_an_empty_one(place: Path) -> None:
    """R09."""
    recipe = write_recipe(place)
    (place / "pairs.tsv").write_text("one\tone cat\t一猫\n", encoding="utf-8")
    text = recipe.read_text(encoding="utf-8").replace("validate_every = 4\n", "")
    recipe.write_text(text.replace("hold_out = 20", "hold_out = 0"), encoding="utf-8")
    assert run(recipe, "data.weights={}", "steps=3").step == 3
    with pytest.raises(CutawayError, match=r"hold_out is 1, expected fewer than there are examples \(1\)"):
        run(recipe, "data.weights={}", "data.validation.hold_out=1", f"run.folder={place}/held")
    (place / "pairs.tsv").write_text("", encoding="utf-8")
    with pytest.raises(CutawayError, match="the sources hold no pair"):
        run(recipe, "data.weights={}", f"run.folder={place}/empty")


def test_tensorboard_is_only_imported_when_asked(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    recipe = write_recipe(place)
    assert run(recipe, "steps=1").step == 1
    with pytest.raises(CutawayError, match=r"pip install 'cutaway\[tensorboard\]'"):
        run(recipe, "steps=2", "tensorboard=true")
