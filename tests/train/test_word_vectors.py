import json
import math
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import pytest
import torch
from tests.real.data import shared
from torch.nn.functional import binary_cross_entropy_with_logits

from cutaway import CutawayError, load_vectors
from cutaway.config import parse
from cutaway.inspection import neighbours
from cutaway.models.word2vec import Word2Vec, Word2VecConfig, all_rows, huffman
from cutaway.train.machine import Interrupts
from cutaway.train.state import Position, sha256
from cutaway.train.word_kernel import Plan, alias_table, learn
from cutaway.train.word_recipe import is_of_words, read_word_recipe
from cutaway.train.word_vectors import keep_shares, train_vectors

RECIPE = """
[run]
name = "toy"
folder = "{folder}"
threads = 1
[model]
family = "word2vec"
d_model = 8
[words]
min_count = 1
[data]
folder = "{folder}"
[[data.sources]]
path = "text.txt"
format = "text"
[train]
epochs = 3
step_words = 10_000
save_every = 2
"""
WORDS = ["the", "king", "rules", "land", "queen"]


def config_of(**values: object) -> Word2VecConfig:
    return parse(Word2VecConfig, {"family": "word2vec", **values}, "test")


def plan(ids: list[int], config: Word2VecConfig, window: int = 1, **changes: object) -> Plan:
    """One sequence, of which every word is kept, and where negatives are drawn they are word 3."""
    size, tree = config.vocab_size, config.output == "hierarchical"
    way = (
        huffman(range(1, size + 1))
        if tree
        else (np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    )
    words = np.array(ids, np.int32), np.array([0, len(ids)])
    drawn = np.zeros(size, np.float32), np.full(size, 3)
    rows = all_rows(WORDS[:size], config)
    made = Plan(
        *words,
        np.ones(size, np.float32),
        *rows,
        *drawn,
        *way,
        window,
        0 if tree else 2,
        config.context == "cbow",
    )
    return made._replace(**changes)


def tables(model: Word2Vec) -> tuple[np.ndarray, np.ndarray]:
    return model.embed.weight.detach().numpy(), model.unembed.weight.detach().numpy()


def by_autograd(model: Word2Vec, plan: Plan, ids: list[int], rate: float) -> float:
    """What the kernel does with a window of one word: for each word the loss of torch's own functions, and a step of
    its gradient. Returns the sum of the losses."""
    total, mean = 0.0, model.config.context == "cbow"
    for place, word in enumerate(ids):
        around = [ids[n] for n in (place - 1, place + 1) if 0 <= n < len(ids)]
        if model.config.output == "hierarchical":
            way = slice(*plan.way_starts[word : word + 2])
            outputs, labels = plan.nodes[way], plan.labels[way]
        else:
            negatives = [3, 3] if word != 3 else []
            outputs, labels = np.array([word, *negatives]), np.array([1] + [0] * len(negatives))
        rows, starts, weights = [], [0], []
        for other in around:
            own = plan.rows[plan.row_starts[other] : plan.row_starts[other + 1]].tolist()
            rows += own
            weights += [len(own) ** -0.5 / (len(around) if mean else 1)] * len(own)
            starts.append(len(rows))
        bags = torch.tensor([0] if mean else starts[:-1])
        scores = model(torch.tensor(rows), bags, torch.tensor(weights), torch.from_numpy(outputs))
        wanted = torch.from_numpy(labels).float().expand_as(scores)
        loss = binary_cross_entropy_with_logits(scores, wanted, reduction="sum")
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter -= rate * parameter.grad
        total += float(loss.detach())
    return total


@pytest.mark.parametrize("ngrams", [0, 3])
@pytest.mark.parametrize("output", ["negative", "hierarchical"])
@pytest.mark.parametrize("context", ["skip-gram", "cbow"])
def test_a_step_is_that_of_autograd(context: str, output: str, ngrams: int) -> None:
    values = {"vocab_size": 5, "d_model": 7, "min_n": ngrams, "max_n": ngrams, "buckets": 11}
    config = config_of(context=context, output=output, **values)
    torch.manual_seed(3)
    ours, theirs = Word2Vec(config), Word2Vec(config)
    for table in ours.parameters():
        torch.nn.init.normal_(table)
    theirs.load_state_dict(ours.state_dict())
    # the repeated word stands on both sides of one
    ids = [0, 1, 0, 4, 3, 2, 2, 1]
    made = plan(ids, config)
    loss, pairs = learn(made, 0, 1, *tables(ours), 0.1, np.uint64(1))
    assert loss == pytest.approx(by_autograd(theirs, made, ids, 0.1), rel=1e-6)
    assert pairs == (8 if context == "cbow" else 14)
    for (name, one), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6, msg=name)
        assert not torch.equal(one, torch.zeros_like(one))


def test_one_pair_by_hand() -> None:
    """Two words that stand side by side, and no negative: h = embed[1] = (1, 2), o = unembed[0] = (0.5, -1)."""
    config = Word2VecConfig(family="word2vec", vocab_size=4, d_model=2)
    embed = np.array([[0, 0], [1, 2], [0, 0], [0, 0]], np.float32)
    unembed = np.array([[0.5, -1], [0, 0], [0, 0], [0, 0]], np.float32)
    made = plan([0, 1], config, negatives=0, way_starts=np.array([0, 1, 1, 1, 1]), nodes=np.array([0]),
                labels=np.ones(1, np.float32))  # fmt: skip
    loss, pairs = learn(made, 0, 1, embed, unembed, 0.1, np.uint64(1))
    # σ(-1.5) = 0.182426; the step is 0.1 · (1 - σ) = 0.0817574
    assert loss == pytest.approx(-math.log(1 / (1 + math.exp(1.5))), rel=1e-7) and pairs == 2
    np.testing.assert_allclose(embed[1], [1 + 0.0817574 * 0.5, 2 - 0.0817574], rtol=1e-6)
    np.testing.assert_allclose(unembed[0], [0.5 + 0.0817574, -1 + 0.0817574 * 2], rtol=1e-6)


@pytest.mark.parametrize("context", ["skip-gram", "cbow"])
def test_the_mean_loss_is_exact_over_millions_of_pairs(context: str) -> None:
    """faults.md, kind 27: a sum in 32 bits loses what is added to it. Outputs that are 0 and stay so have a loss of
    log 2 each."""
    config = config_of(vocab_size=5, d_model=1, context=context)
    made = plan([0, 1, 2, 4] * 500_000, config, window=9)
    model = Word2Vec(config)
    loss, pairs = learn(made, 0, 1, *tables(model), 0.0, np.uint64(1))
    assert pairs > (1_900_000 if context == "cbow" else 15_000_000)
    assert loss / pairs == pytest.approx(3 * math.log(2), rel=1e-9)


def test_windows_are_dynamic_and_negatives_follow_the_counts() -> None:
    weights = np.array([8.0, 4, 2, 1, 1])
    share, other = alias_table(weights.copy())
    drawn = np.zeros(5)
    for id in range(5):
        drawn[id] += share[id] / 5
        drawn[other[id]] += (1 - share[id]) / 5
    np.testing.assert_allclose(drawn, weights / 16, atol=1e-7)
    config = Word2VecConfig(family="word2vec", vocab_size=5, d_model=1)
    made = plan([0, 1, 2, 4] * 50_000, config, window=4)
    _, pairs = learn(made, 0, 1, *tables(Word2Vec(config)), 0.0, np.uint64(1))
    # 1 to 4 words to either side, equally often
    assert pairs == pytest.approx(200_000 * 2 * 2.5, rel=0.01)


def test_frequent_words_are_left_out_as_often_as_word2vec_does() -> None:
    share = keep_shares(np.array([900, 99, 1]), 0.01)
    assert share.tolist() == pytest.approx([(math.sqrt(90) + 1) / 90, (math.sqrt(9.9) + 1) / 9.9, 1])
    assert keep_shares(np.array([900, 1]), 0).tolist() == [1, 1]
    config = Word2VecConfig(family="word2vec", vocab_size=5, d_model=1, context="cbow")
    made = plan([0, 1] * 100_000, config, keep=np.array([0.25, 1, 1, 1, 1], np.float32))
    _, pairs = learn(made, 0, 1, *tables(Word2Vec(config)), 0.0, np.uint64(1))
    assert pairs == pytest.approx(125_000, rel=0.01)


# Whole runs.


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """Some 60,000 words of two kinds of sentences, which never share a word."""
    draws = random.Random(1)
    kinds = [[f"{kind}{n}" for n in "abcdefgh"] for kind in ("x", "y")]
    lines = [" ".join(draws.choices(draws.choice(kinds), k=draws.randint(1, 12))) for _ in range(9_000)]
    (tmp_path / "text.txt").write_text("\n".join([*lines, "xa yb " * 30_000]), encoding="utf-8")
    path = tmp_path / "toy.toml"
    path.write_text(RECIPE.format(folder=tmp_path.as_posix()), encoding="utf-8")
    return path


def run(recipe: Path, *overrides: str, stop: Interrupts | None = None) -> Position:
    return train_vectors(read_word_recipe(recipe, ["words.cut=spaces", *overrides]), stop)


class After(Interrupts):
    """A signal that comes after so many steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.left = steps

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def losses(folder: Path) -> list[tuple[int, float]]:
    return [(e["step"], e["loss"]) for e in map(json.loads, (folder / "log.jsonl").read_text().splitlines())]


def test_one_thread_is_exact_to_the_bit_also_where_it_was_stopped(recipe: Path, tmp_path: Path) -> None:
    position = run(recipe)
    again, stopped = (f"run.folder={tmp_path.as_posix()}/{name}" for name in ("again", "stopped"))
    run(recipe, again)
    for stop in (5, 1, 20):
        run(recipe, stopped, stop=After(stop))
    assert run(recipe, stopped).step == position.step == len(losses(tmp_path))
    files = [tmp_path / part / "model" / "model.safetensors" for part in (".", "again", "stopped")]
    assert len({sha256(file) for file in files}) == 1
    assert losses(tmp_path) == losses(tmp_path / "again") == losses(tmp_path / "stopped")
    # every word of every epoch was read, those of one long line too
    words = len((tmp_path / "text.txt").read_text().split())
    assert position.tokens == 3 * words
    assert [entry["epoch"] for entry in position.history] == [1, 2, 3]
    run(recipe, "run.seed=2", f"run.folder={tmp_path.as_posix()}/other")
    assert sha256(tmp_path / "other" / "model" / "model.safetensors") != sha256(files[0])


def test_the_loss_of_an_epoch_does_not_depend_on_threads(recipe: Path, tmp_path: Path) -> None:
    still = ("train.lr=1e-12", "train.end_lr=0", "train.epochs=1", "train.subsample=0")
    means = []
    for threads in (1, 3):
        position = run(
            recipe, *still, f"run.threads={threads}", f"run.folder={tmp_path.as_posix()}/{threads}"
        )
        means.append([(entry["loss"], entry["pairs"]) for entry in position.history])
    assert means[0][0][1] == means[1][0][1]
    assert means[0][0][0] == pytest.approx(means[1][0][0], rel=1e-9)


@pytest.mark.parametrize(
    "point",
    [
        "manifest_written",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("model_written", "synced")),
    ],
)
def test_a_killed_run_goes_on_from_its_last_whole_checkpoint(
    recipe: Path, tmp_path: Path, point: str
) -> None:
    straight = run(recipe, f"run.folder={tmp_path.as_posix()}/straight")
    run(recipe, stop=After(3))
    command = [sys.executable, "-m", "cutaway", "train", str(recipe), "words.cut=spaces"]
    environment = os.environ | {"CUTAWAY_CRASH_AT": point}
    assert subprocess.run(command, env=environment, capture_output=True).returncode == -signal.SIGKILL
    assert run(recipe) == replace(straight, seconds=ANY)
    one, other = (tmp_path / part / "model" / "model.safetensors" for part in (".", "straight"))
    assert sha256(one) == sha256(other)


def test_other_texts_or_another_recipe_are_no_resumption(recipe: Path, tmp_path: Path) -> None:
    run(recipe, stop=After(2))
    with pytest.raises(CutawayError, match=r"train\.window: 5 -> 3"):
        run(recipe, "train.window=3")
    text = tmp_path / "text.txt"
    text.write_text(text.read_text() + "\nxa xb", encoding="utf-8")
    with pytest.raises(CutawayError, match="was learned from other texts"):
        run(recipe)


@pytest.mark.parametrize(
    "changes",
    [
        [],
        ["model.context=cbow"],
        ["model.output=hierarchical"],
        ["model.output=hierarchical", "model.context=cbow"],
        ["model.min_n=1", "model.max_n=2", "model.buckets=50"],
    ],
    ids=["skip-gram", "cbow", "hierarchical", "hierarchical cbow", "n-grams"],
)
def test_words_used_alike_become_neighbours(recipe: Path, tmp_path: Path, changes: list[str]) -> None:
    run(recipe, *changes, "train.lr=0.1", "train.subsample=0", "run.threads=2")
    opened = load_vectors(tmp_path / "model")
    assert opened.config.vocab_size == 16 and all(opened.words.counts)
    for word in ("xc", "yd"):
        near = [each.piece for each in neighbours(opened, word, top=4).items]
        assert {piece[0] for piece in near} == {word[0]}, near


def test_unseen_words_have_the_vector_of_their_ngrams(recipe: Path, tmp_path: Path) -> None:
    run(recipe, "model.min_n=1", "model.max_n=2", "model.buckets=500", "train.lr=0.1", "train.subsample=0")
    opened = load_vectors(tmp_path / "model")
    found = neighbours(opened, "xz", top=3)
    assert found.id is None and found.piece == "xz" and {each.piece[0] for each in found.items} == {"x"}
    run(recipe, f"run.folder={tmp_path.as_posix()}/plain", "train.epochs=1")
    with pytest.raises(CutawayError, match=r"'xz' is not among the 16 words .*did you mean 'x"):
        neighbours(load_vectors(tmp_path / "plain" / "model"), "xz")


def test_sequences_of_numbers_are_words_too(recipe: Path, tmp_path: Path) -> None:
    """Baskets of goods by their numbers: what is bought together is near."""
    draws = random.Random(2)
    baskets = [draws.choices(range(kind * 10, kind * 10 + 8), k=5) for kind in (1, 2) for _ in range(3_000)]
    draws.shuffle(baskets)
    (tmp_path / "text.txt").write_text(
        "\n".join(" ".join(map(str, each)) for each in baskets), encoding="utf-8"
    )
    run(recipe, "train.lr=0.1", "train.subsample=0", "train.epochs=5")
    near = neighbours(load_vectors(tmp_path / "model"), "13", top=4).items
    assert {each.piece[0] for each in near} == {"1"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("train.windw=3", r"unknown key 'train\.windw' \(did you mean 'window'\?\)"),
        ("run.device=cuda", "run.device is 'cuda': word vectors are learned on the CPU"),
        ("train.window=0", r"train\.window is 0, expected 1 to 1,000"),
        (
            "model.context=skipgram",
            r"model\.context is 'skipgram', expected one of skip-gram, cbow.*did you mean",
        ),
        ("model.output=none", "expected negative or hierarchical"),
        ("model.max_n=3", "min_n is 0 and max_n 3, expected 1 <= min_n <= max_n"),
        ("words.cut=tokenizer", 'give cut = "tokenizer" and its path together'),
        ("data.sources=[]", r"there are no sources; add a \[\[data\.sources\]\] table"),
        ('data.sources=[{path="a.tsv"}]', "a.tsv: format tsv holds pairs; expected text or jsonl"),
        ("words.min_count=100_000_000", "words that occur at least 100000000 times: 0"),
        ('data.sources=[{path="tezt.txt", format="text"}]', r"no such file \(did you mean 'text\.txt'\?\)"),
    ],
)
def test_a_wrong_recipe_is_told(recipe: Path, change: str, said: str) -> None:
    with pytest.raises(CutawayError, match=said):
        run(recipe, change)


def test_recipes_of_words_are_told_from_others() -> None:
    recipes = Path(__file__).parents[2] / "recipes"
    of_words = [path for path in sorted(recipes.glob("*.toml")) if is_of_words(path)]
    assert [read_word_recipe(path).run.name for path in of_words] == [path.stem for path in of_words]
    assert [path.stem for path in of_words] == ["word2vec-en", "word2vec-zh"]


@pytest.fixture(scope="module")
def shakespeare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = shared("text/tinyshakespeare.txt", "tiny Shakespeare, one million characters")
    folder = tmp_path_factory.mktemp("shakespeare")
    (folder / "toy.toml").write_text(
        RECIPE.format(folder=folder.as_posix()).replace("text.txt", file.as_posix()), encoding="utf-8"
    )
    changes = ("words.cut=words", "words.min_count=20", "model.d_model=50", "train.lr=0.05", "train.epochs=5")
    run(folder / "toy.toml", *changes, "train.step_words=200_000")
    return folder / "model"


def test_a_small_real_text_gives_sensible_neighbours(shakespeare: Path) -> None:
    opened = load_vectors(shakespeare)
    wanted = {
        "king": {"henry", "edward", "richard", "prince", "iii", "iv", "vi", "ii"},
        "brother": {"father", "son", "sister", "cousin", "uncle", "daughter", "husband"},
        "heart": {"soul", "breast", "tongue", "eye", "bosom", "conscience"},
    }
    for word, expected in wanted.items():
        near = {each.piece for each in neighbours(opened, word, top=15).items}
        assert len(near & expected) >= 2, (word, near)


def test_without_numba_it_says_what_to_install(recipe: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(
        CutawayError, match=r"needs numba, which is not installed; pip install 'cutaway\[word2vec\]'"
    ):
        train_vectors(read_word_recipe(recipe, ["words.cut=spaces"]))
