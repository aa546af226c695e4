import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.train.toy import TEXTS, write_data, write_recipe

from cutaway import zoo
from cutaway.checkpoint import folder as checkpoint
from cutaway.config import parse
from cutaway.errors import CutawayError
from cutaway.train.data import read_pairs
from cutaway.train.recipe import DataPart, read_recipe
from cutaway.train.run import export, train
from cutaway.train.state import Position, RunFolder, damage, sha256
from cutaway.words import phrase

ZOO = Path(zoo.__file__).parent


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


def test_the_end_of_one_long_text_is_held_out(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_recipe(place, TEXTS, preset="llama-tiny", kind="characters", objective="causal")
    text = recipe.read_text(encoding="utf-8").replace("[data.validation]\nhold_out = 20\n", "")
    recipe.write_text(text.replace('format = "text"', 'format = "text"\nsplit = "file"'), encoding="utf-8")
    position = run(recipe)
    count = math.ceil(len((place / "text.txt").read_text(encoding="utf-8")) / 20)
    said = capsys.readouterr().err
    assert (
        f"{count} characters held out, the end of the text" in said
        and "bits_per_byte" in position.history[-1]
    )
    run(recipe, "validate_every=3", f"run.folder={place}/again")
    assert steps(place)[0] == steps(place, "again")[0]


def test_the_smallest_own_data_are_enough(place: Path) -> None:
    """Two pairs: one to learn from, one to validate with."""
    recipe = write_recipe(place)
    (place / "pairs.tsv").write_text("one\tone cat\t一猫\none\tdog\t狗\n", encoding="utf-8")
    text = recipe.read_text(encoding="utf-8").replace("hold_out = 20\n", "")
    recipe.write_text(text.replace("weights = { two = 0.5 }\n", ""), encoding="utf-8")
    assert [entry["step"] for entry in run(recipe, "steps=4").history] == [4]


@pytest.mark.parametrize("limit", ["steps=2", "tokens=300", "minutes=1e-4"])
def test_that_the_time_is_used_up_is_said_on_resume(
    place: Path, capsys: pytest.CaptureFixture[str], limit: str
) -> None:
    recipe = write_recipe(place)
    recipe.write_text(recipe.read_text(encoding="utf-8").replace("steps = 8\n", ""), encoding="utf-8")
    run(recipe, limit)
    name, _, value = limit.partition("=")
    said = f"train.{name} = {float(value) if name == 'minutes' else value} is used up"
    assert said not in capsys.readouterr().err
    run(recipe, limit)
    assert said in capsys.readouterr().err


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


def test_what_the_validation_loss_leaves_out_is_not_translated_either(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blank and too long pairs stand first in the file, then among lines that JSON leaves out."""
    held = [("one cat", ""), (" ", "一"), ("big " * 30, "大"), ("one dog", "一狗"), ("cat", "猫" * 30)]
    lines = [json.dumps({"en": en, "zh": zh}) for en, zh in held]
    (place / "held.jsonl").write_text("\n\n".join(lines), encoding="utf-8")
    recipe = write_recipe(place)
    held_out = (
        f'{{sources = [{{path = "{place}/held.jsonl", format = "jsonl"}}], translations = 4, samples = 4}}'
    )
    run(recipe, f"data.validation={held_out}", "steps=4")
    said = capsys.readouterr().err
    assert "validation: 5 pairs, 2 examples, 2 blank, 4 too long" in said
    entries = map(json.loads, (place / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines())
    (samples,) = [entry["samples"] for entry in entries if "samples" in entry]
    assert [(source, reference) for source, _, reference in samples] == [
        ("一狗", "one dog"),
        ("one dog", "一狗"),
    ]


def test_pairs_know_the_line_they_come_from(place: Path) -> None:
    (place / "some.jsonl").write_text('{"a": "x", "b": "y"}\n\n\n{"a": "z", "b": "w"}\n', encoding="utf-8")
    data = parse(
        DataPart, {"folder": str(place), "sources": [{"path": "some.jsonl", "format": "jsonl"}]}, "x"
    )
    pairs = read_pairs(data.sources[0], data, "a", "b", lambda line, **values: None)
    assert [(pair.line, pair.source) for pair in pairs] == [(1, "x"), (4, "z")]


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
    with pytest.raises(CutawayError, match=r"train\.init .* is \(\d+, 16\) there, \(\?, 32\) here"):
        run(recipe, *few, f"init={start}", "model.d_model=32", f"run.folder={place}/wide")
    said = capsys.readouterr().err
    assert "pairs" not in said and not list((place / "wide").glob("step-*"))
    other = (
        "steps=1",
        "average=none",
        f"init={start}",
        "tokenizer.vocab_size=380",
        f"run.folder={place}/other",
    )
    with pytest.raises(CutawayError, match=r"train\.init .* is \(\d+, 16\) there, \(380, 16\) here"):
        run(recipe, *other)


def test_a_tokenizer_learned_before_the_first_checkpoint_is_learned_anew_where_anything_differs(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, kept = write_recipe(place), place / "run" / "tokenizer"

    def again(*overrides: str) -> tuple[str, bytes]:
        """What is said, and the tokenizer, of a run that ended before its first checkpoint."""
        run(recipe, "steps=1", *overrides)
        for path in (place / "run").glob("step-*"):
            shutil.rmtree(path)
        return capsys.readouterr().err, (kept / "tokenizer.json").read_bytes()

    first = again()[1]
    said, second = again()
    assert second == first and "learned before from the same texts" in said
    said, characters = again("tokenizer.kind=characters")
    assert "by other settings or from other texts, so it is learned anew" in said and characters != first
    pairs = (place / "pairs.tsv").read_text(encoding="utf-8")
    (place / "pairs.tsv").write_text(pairs.replace("cat", "lion"), encoding="utf-8")
    said, lions = again()
    assert "so it is learned anew" in said and b"lion" in lions
    (kept / "tokenizer.json").write_bytes(lions[:-1])
    said, mended = again()
    assert "tokenizer.json: " in said and "so it is learned anew" in said and mended == lions
    (place / "pairs.tsv").write_text(pairs, encoding="utf-8")
    run(recipe, "steps=1")
    shutil.rmtree(kept)
    # the checkpoint has its own
    assert run(recipe, "steps=2").step == 2 and not kept.exists()


def test_weights_that_are_not_finite_are_no_start(place: Path) -> None:
    recipe = write_recipe(place)
    run(recipe, "steps=1")
    weights = place / "run" / "model" / "model.safetensors"
    tensors = load_file(weights)
    name = min(tensors)
    tensors[name].view(-1)[0] = torch.nan
    save_file(tensors, weights, {"format": "pt"})
    few = (f"tokenizer.path={place}/run/model", f"init={place}/run/model", f"run.folder={place}/warm")
    with pytest.raises(CutawayError, match=r"train\.init .*: \S+ holds numbers that are not finite"):
        run(recipe, *few)
    assert not list((place / "warm").glob("step-*"))


def harm(checkpoint: Path) -> None:
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])


def test_a_run_whose_checkpoints_are_all_damaged_starts_over_and_says_so(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twice the same: neither are the old steps in the log any more, nor do damaged ones stand for whole ones."""
    recipe = write_recipe(place)
    few = ("steps=6", "save_every=2", "keep=1", "validate_every=100")
    run(recipe, *few)
    undisturbed = steps(place)
    for path in (place / "run").glob("step-*"):
        harm(path)
    capsys.readouterr()
    run(recipe, *few)
    said = capsys.readouterr().err
    assert "put aside as" in said and "no checkpoint there is whole, so training starts over" in said
    assert steps(place) == undisturbed and "resumed" not in said
    assert damage(place / "run" / "step-00000006") is None
    run(recipe, *few)
    assert "resumed from" in capsys.readouterr().err


def test_killed_before_the_first_checkpoint_the_log_begins_anew(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write_recipe(place)
    run(recipe, "steps=3")
    undisturbed = steps(place)
    shutil.rmtree(place / "run" / "step-00000003")
    run(recipe, "steps=3")
    assert steps(place) == undisturbed and "training starts over" in capsys.readouterr().err


@pytest.mark.parametrize("how", [harm, shutil.rmtree])
def test_a_best_checkpoint_that_is_damaged_or_gone_is_not_exported(
    place: Path, capsys: pytest.CaptureFixture[str], how: Callable[[Path], None]
) -> None:
    run(write_recipe(place))
    position = Position(step=8, best_step=4, history=[{"step": 4, "loss": 1.0}, {"step": 8, "loss": 2.0}])
    how(place / "run" / "step-00000004")
    with RunFolder(place / "run") as folder:
        told: list[str] = []
        export(folder, position, lambda line, **values: told.append(str(phrase(line, **values))))
        assert "step-00000004, the best checkpoint, is gone or damaged; " in told[-2]
        assert told[-1].endswith("the model of step 8")
        assert damage(folder.path / "model") is None
        last = checkpoint.load(folder.at(8)).model
        for name, p in checkpoint.load(folder.path / "model").model.named_parameters():
            assert torch.equal(p, last.get_parameter(name))
        harm(folder.at(8))
        with pytest.raises(CutawayError, match="no checkpoint there is whole, so no model is exported"):
            export(folder, position, lambda line, **values: None)
        assert damage(folder.path / "model") is None


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.folder=/nowhere", r"data\.folder is '/nowhere', which is no folder here"),
        ("init=/nowhere", r"train\.init is '/nowhere', which is no folder here"),
        ("run.device=meta", r"run\.device is 'meta', expected auto, cpu or cuda"),
        ("tokenizer.path=/nowhere", r"/nowhere: no such file or folder"),
        (
            'data.validation.sources=[{{path="pars.tsv"}}]',
            r"pars\.tsv: no such file \(did you mean 'pairs\.tsv'",
        ),
        (
            "model.d_ff=1000000 model.d_model=65536",
            r"\[model\] has \d+,.* parameters .*; there are .* Make model\.",
        ),
        (
            "model.position=sinusoidal model.max_len=10000000 model.d_model=65536",
            r"training takes at least [\d,]{13,} bytes of memory; there are",
        ),
        (
            "tokenizer.vocab_size=500 model.vocab_size=499",
            r"tokenizer\.vocab_size is 500, expected at most model",
        ),
        ("tokenizer.path={zoo}/poet-zh", r"the tokenizer has no control token >>zho<<"),
        (
            "model.vocab_size=99 tokenizer.path={zoo}/translate-zh-en",
            r"model\.vocab_size is 99, fewer than the",
        ),
        ("init={zoo}/translate-zh-en", r"train\.init .* is \(\d+, \d+\) there, \(\?, 16\) here"),
        ("init={place}", r"config\.json is missing"),
        ("model.n_heads=3", r"d_model \(16\) must be a multiple of n_heads \(3\)"),
    ],
)
def test_mistakes_are_named_before_any_data_are_read(
    place: Path, override: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CutawayError, match=message):
        run(write_recipe(place), *override.format(zoo=ZOO, place=place).split())
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
