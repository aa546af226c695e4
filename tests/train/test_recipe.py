import dataclasses
import math
import typing
from itertools import pairwise
from pathlib import Path

import pytest

from cutaway.config import RopeScaling, to_dict
from cutaway.errors import CutawayError
from cutaway.train.recipe import Recipe, Schedule, ScheduleName, parse_recipe, read_recipe, refuse_changes
from cutaway.train.word_recipe import WordRecipe, is_of_words
from cutaway.words import Phrase

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
TEXTS = RECIPE.replace("m2m100-tiny", "llama-tiny").replace('directions = ["zh>en"]\n', "")
TEXTS = TEXTS.replace("pairs.tsv", 'text.txt"\nformat = "text').replace("seq2seq", "causal")
RECIPES = [
    path for path in sorted((Path(__file__).parents[2] / "recipes").glob("*.toml")) if not is_of_words(path)
]
SCHEDULES: list[ScheduleName] = ["constant", "inverse_sqrt", "cosine", "wsd"]


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    path = tmp_path / "toy.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.toml"
    path.write_text(TEXTS, encoding="utf-8")
    return path


def test_reads_values_presets_and_defaults(toy: Path) -> None:
    recipe = read_recipe(toy)
    assert recipe.folder == Path("runs/toy")
    assert (recipe.model.preset, recipe.model.n_layers, recipe.model.position) == (
        "m2m100-tiny",
        4,
        "sinusoidal",
    )
    assert (recipe.train.steps, recipe.train.optimizer, recipe.data.sources[0].format) == (10, "adamw", "tsv")


def test_overrides_with_and_without_a_table(toy: Path) -> None:
    recipe = read_recipe(toy, ["steps=20", "seed=3", "model.dropout=0.2", "run.folder=elsewhere", "lr=1e-4"])
    assert (recipe.train.steps, recipe.run.seed, recipe.train.lr) == (20, 3, 1e-4)
    assert recipe.model.dropout == 0.2 and recipe.folder == Path("elsewhere")


@pytest.mark.parametrize(
    "overrides",
    [
        ['model.rope_scaling={kind = "linear", factor = 2}'],
        ["model.rope_scaling.kind=linear", "model.rope_scaling.factor=2"],
    ],
)
def test_lists_and_tables_of_a_model_on_the_command_line_and_in_the_file(
    texts: Path, overrides: list[str]
) -> None:
    model = read_recipe(texts, ["model.window=8", "model.window_layers=[0, 2]", *overrides]).model
    assert model.window_layers == (0, 2) and model.rope_scaling == RopeScaling(kind="linear", factor=2.0)
    written = '[model]\nwindow = 8\nwindow_layers = [0, 2]\nrope_scaling = { kind = "linear", factor = 2.0 }'
    texts.write_text(TEXTS.replace("[model]", written), encoding="utf-8")
    assert read_recipe(texts).model == model


def test_the_vocabulary_is_filled_in_where_the_recipe_leaves_it_open(toy: Path) -> None:
    found = {"vocab_size": 300, "pad_id": 0, "eos_id": 2}
    config = read_recipe(toy, ["model.eos_id=7"]).model.filled(found)
    assert (config.vocab_size, config.pad_id, config.eos_id, config.bos_id) == (300, 0, 7, None)
    assert read_recipe(toy, ["model.vocab_size=8192"]).model.filled(found).vocab_size == 8192
    with pytest.raises(CutawayError, match=r"eos_id is 300, expected an id below vocab_size \(300\)"):
        read_recipe(toy, ["model.eos_id=300"]).model.filled(found)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("train.stepz=1", r"unknown key 'train\.stepz' \(did you mean 'steps'\?\)"),
        ("data.sources=[{pth = 'x'}]", r"unknown key 'data\.sources\[0\]\.pth' \(did you mean 'path'\?\)"),
        ("objective=seq2sec", r"expected one of seq2seq, causal, masked \(did you mean 'seq2seq'\?\)"),
        ("steps=many", r"train\.steps is 'many', expected a whole number"),
        ("steps=0", r"train\.steps is 0, expected at least 1"),
        ("steps=1000000000000000000000", r"train\.steps is 10+, expected at least 1, at most"),
        ("steps=" + "9" * 5000, r"is not valid: .*4300 digits"),
        ("minutes=3", r"exactly one of steps, tokens and minutes .* given: steps, minutes"),
        ("lr=-1.0", r"train\.lr is -1\.0, expected a number above 0"),
        ("lr=1e39", r"train\.lr is 1e\+39, expected a number above 0, at most 1,000"),
        ("lr", r"'train\.lr' is not of the form key=value"),
        ("weight_decay=nan", r"train\.weight_decay is nan, expected"),
        ("momentum=inf", r"train\.momentum is inf, expected"),
        ("smoothing=1.0", r"train\.smoothing is 1\.0, expected at least 0, below 1"),
        ("betas=[0.9]", r"train: betas is \[0\.9\], expected two numbers"),
        ("betas=[0.9, 1.0]", r"train\.betas\[1\] is 1\.0, expected at least 0, below 1"),
        ("patience=3", r"patience needs validate_every"),
        (
            "validate_every=5\ndata.validation.hold_out=0",
            r"train\.validate_every is set, but data\.validation\.hold_out is 0 and there are no sources",
        ),
        ("schedule=cosinus", r"expected one of .*did you mean 'cosine'"),
        ("warmup=-1", r"train\.warmup is -1"),
        ("decay=0.0", r"train\.decay is 0\.0"),
        ("end=2", r"train\.end is 2\.0, expected 0 to 1"),
        (
            "model.vocab_size=7999",
            r"tokenizer\.vocab_size is 8,000, expected at most model\.vocab_size \(7,999\)",
        ),
        ("average_decay=1.0", r"train\.average_decay is 1\.0"),
        ("clip=0.0", r"train\.clip is 0\.0, expected a number above 0"),
        ("seed=-1", r"run\.seed is -1, expected at least 0"),
        ("seed=99999999999999999999999", r"run\.seed is 9+, expected"),
        ('run.name="../escape"', r"expected a plain folder name"),
        ('run.name=".."', r"expected a plain folder name"),
        ('run.name=""', r"expected a plain folder name"),
        ('run.folder="a\\u0000b"', r"run\.folder is 'a\\x00b', expected a text without NUL"),
        ("data.sources=[]", r"data: there are no sources"),
        ('data.directions=["zh-en"]', r"data\.directions is \['zh-en'\], expected one direction or both"),
        ('data.directions=["zh>en", "zh>en"]', r"expected one direction or both of one pair"),
        ('data.directions=["zh>en", "en>zh"]', r"data\.languages must name a language for each"),
        ('data.languages={zh = "z h"}', r"data\.languages\.zh is 'z h', expected letters, digits"),
        ('data.languages={zh = ""}', r"data\.languages\.zh is '', expected letters, digits"),
        ('data.languages={zh = "eng", en = "eng"}', r"has eng, eng, expected another language for each"),
        ('data.languages={zx = "zho"}', r"data\.languages\.zx: .* no column 'zx' \(did you mean 'zh'"),
        ("batch_tokens=1000000000", r"batch_tokens is 1000000000, expected 1 to 100,000,000"),
        ("accumulate=100000", r"accumulate is 100000, expected 1 to 10,000"),
        ('data.sources=[{path = "a", columns = ["zh", "de"]}]', r"a: no column 'en'.*columns: zh, de"),
        ('data.sources=[{path = "a", format = "text"}]', r"a: format text has no pairs"),
        ('data.sources=[{path = "a", format = "parallel"}]', r"a parallel source needs `other`"),
        ('data.sources=[{path = "a", part = [0.5, 0.2]}]', r"part is \[0\.5, 0\.2\], expected \[from, to\]"),
        ("data.weights.x=inf", r"data\.weights\.x is inf, expected 0 to 1,000"),
        ("data.weights.x=1e12", r"data\.weights\.x is 1000000000000\.0, expected 0 to 1,000"),
        ("data.weights.x=-1.0", r"data\.weights\.x is -1\.0"),
        ("data.validation.hold_out=-5", r"data\.validation\.hold_out is -5, expected at least 0"),
        ("data.context=64", r"data\.context and train\.batch_rows belong to texts"),
        ("data.max_source=600", r"max_target is 600, in a batch 600 columns, beyond model\.max_len \(512"),
        ("model.max_len=127", r"max_target is 128, in a batch 128 columns, beyond model\.max_len \(127"),
        ("tokenizer.texts=0", r"tokenizer\.texts is 0, expected at least 1"),
        ("tokenizer.vocab_size=0", r"vocab_size is 0, expected a number of ids for a bpe vocabulary"),
        ("model.d_modell=3", r"unknown key 'model\.d_modell' \(did you mean 'd_model'\?\)"),
        ("model.prest=3", r"unknown key 'model\.prest' \(did you mean 'preset'\?\)"),
        ("model.preset=llama-tinny", r"unknown preset 'llama-tinny'.*did you mean 'llama-tiny'"),
        ("model.n_heads=3", r"model: d_model \(256\) must be a multiple of n_heads \(3\)"),
        ("model.n_heads=four", r"model\.n_heads is 'four', expected a whole number"),
        ("model.d_model=100000", r"model\.d_model is 100000, expected 1 to 65,536"),
        ("model.window_layers=3", r"model\.window_layers is 3, expected a list"),
        ("model.window_layers=[9]", r"model: window_layers is \[9\], expected layer numbers 0 to 3"),
        ("model.rope_scaling=2", r"model\.rope_scaling is 2, expected a table of keys"),
        ("model.rope_scaling={kind = 'linear', factr = 2}", r"unknown key 'model\.rope_scaling\.factr'"),
        ("model.norm_eps=nan", r"model\.norm_eps is nan, expected a number above 0"),
        ("model.family=decoder-only", r"train\.objective seq2seq trains the encoder-decoder family"),
        ("model.head=none", r"model\.head is none"),
    ],
)
def test_mistakes_are_named(toy: Path, assignment: str, message: str) -> None:
    with pytest.raises(CutawayError, match=message) as error:
        read_recipe(toy, assignment.split("\n"))
    assert str(toy) in str(error.value)


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["data.context=257"], r"data\.context is 257, expected 1 to model\.max_len \(256\)"),
        (
            ["objective=masked", "model.preset=bert-tiny", "data.context=2"],
            r"data\.context is 2, expected 3 to model\.max_len \(128\)",
        ),
        (["data.weights={a = 1.0}"], r"data\.weights belongs to pairs"),
        (["data.validation.translations=3"], r"data\.validation\.translations belongs to pairs"),
        (['data.sources=[{path = "a"}]'], r"a: format tsv holds pairs; expected text or jsonl"),
    ],
)
def test_mistakes_with_texts_are_named(texts: Path, assignments: list[str], message: str) -> None:
    assert read_recipe(texts).context == 256
    with pytest.raises(CutawayError, match=message):
        read_recipe(texts, assignments)


def test_lengths_that_a_batch_rounds_up_fit_the_model(toy: Path) -> None:
    """An odd limit: 31 columns become 32, 30 stay 30."""
    few = ["model.max_len=31", "data.max_target=30"]
    assert read_recipe(toy, [*few, "data.max_source=30"]).model.max_len == 31
    with pytest.raises(CutawayError, match=r"is 31, in a batch 32 columns, beyond model\.max_len \(31"):
        read_recipe(toy, [*few, "data.max_source=31"])


def test_what_is_held_out_follows_the_data(toy: Path) -> None:
    validated = read_recipe(toy, ["validate_every=5"])
    assert [validated.held_out(count) for count in (1, 2, 20, 21, 210, 10_000, 10**6)] == [
        0,
        1,
        1,
        2,
        11,
        500,
        500,
    ]
    assert read_recipe(toy).held_out(1000) == 0
    assert read_recipe(toy, ["data.validation.hold_out=7"]).held_out(1000) == 7
    assert read_recipe(toy, ["data.validation.hold_out=0"]).held_out(1000) == 0
    sources = 'data.validation.sources=[{path = "held.tsv"}]'
    assert read_recipe(toy, ["validate_every=5", sources]).held_out(1000) == 0


def test_what_may_change_between_runs_and_what_may_not(toy: Path) -> None:
    before = to_dict(read_recipe(toy))
    assert parse_recipe(before, "again") == read_recipe(toy)
    free = ["steps=20", "save_every=7", "keep=9", "run.threads=1", "run.folder=moved", "tensorboard=true"]
    refuse_changes(before, read_recipe(toy, free), Path("runs/toy"))
    with pytest.raises(CutawayError) as error:
        refuse_changes(before, read_recipe(toy, ["lr=0.5", "model.dropout=0.2", "seed=9"]), Path("runs/toy"))
    for part in ("runs/toy", "run.seed: 1 -> 9", "train.lr: 0.001 -> 0.5", "model.dropout: 0.1 -> 0.2"):
        assert part in str(error.value)


def test_a_recipe_of_an_older_version_is_compared_with_the_defaults_of_its_day(toy: Path) -> None:
    older = {
        "run": {"name": "toy"},
        "model": {"preset": "m2m100-tiny"},
        "data": {"directions": ["zh>en"], "sources": [{"path": "pairs.tsv"}]},
        "train": {"objective": "seq2seq", "steps": 10},
    }
    refuse_changes(older, read_recipe(toy), Path("runs/toy"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_recipes_that_come_along_are_valid(path: Path) -> None:
    assert read_recipe(path).run.name == path.stem


def test_every_key_says_what_it_is_for() -> None:
    """One declaration: what the check reads is what the help and the docs show."""
    waiting, seen = [Recipe, WordRecipe], 0
    while waiting:
        cls = waiting.pop()
        hints = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            about = field.metadata["key"].about
            assert isinstance(about, Phrase) and about.said("zh") != about.said("en"), field.name
            inner = [hints[field.name], *typing.get_args(hints[field.name])]
            waiting += [hint for hint in inner if dataclasses.is_dataclass(hint) and isinstance(hint, type)]
            seen += 1
    assert seen > 120


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("warmup", [0, 1, 10, 81, 90, 99, 100])
@pytest.mark.parametrize("decay", [0.01, 0.2, 1.0])
def test_starts_above_zero_and_peaks_at_the_end_of_warmup(
    name: ScheduleName, warmup: int, decay: float
) -> None:
    schedule = Schedule(schedule=name, warmup=warmup, decay=decay)
    rates = [schedule.rate(n, 100) for n in range(1, 101)]
    assert schedule.rate(101, 100) == pytest.approx(0.0, abs=1e-12) or name in ("constant", "inverse_sqrt")
    assert rates[0] > 0 and min(rates) > 0
    top = max(warmup, 1) - 1
    assert rates[top] == max(rates) == 1.0
    assert all(before < after for before, after in pairwise(rates[: top + 1]))
    assert all(before >= after for before, after in pairwise(rates[top:]))
    assert name not in ("cosine", "inverse_sqrt") or rates.count(1.0) == 1


@pytest.mark.parametrize("name", ["cosine", "wsd"])
@pytest.mark.parametrize("end", [0.0, 0.1])
def test_reaches_its_end_one_step_after_the_last(name: ScheduleName, end: float) -> None:
    schedule = Schedule(schedule=name, warmup=5, end=end)
    assert schedule.rate(101, 100) == pytest.approx(end)
    assert schedule.rate(100, 100) > end


def test_inverse_sqrt_is_the_papers() -> None:
    d_model, warmup = 512, 4000
    schedule = Schedule(schedule="inverse_sqrt", warmup=warmup)
    peak = d_model**-0.5 * warmup**-0.5
    for n in (1, 17, 4000, 4001, 100_000):
        paper = d_model**-0.5 * min(n**-0.5, n * warmup**-1.5)  # Vaswani et al. 2017, equation 3
        assert peak * schedule.rate(n, 100_000) == pytest.approx(paper)


def test_wsd_is_flat_then_straight() -> None:
    rates = [Schedule(schedule="wsd", warmup=10, decay=0.2).rate(n, 100) for n in range(1, 101)]
    assert set(rates[9:80]) == {1.0}
    falls = [before - after for before, after in pairwise(rates[80:])]
    assert falls == pytest.approx([0.05] * len(falls))


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_run_of_one_step_and_one_without_end_are_fine(name: ScheduleName) -> None:
    assert Schedule(schedule=name, warmup=0).rate(1, 1) > 0
    assert Schedule(schedule=name, warmup=3).rate(5, math.inf) > 0
