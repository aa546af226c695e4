"""Words a second of learning word vectors, beside gensim: the same text, width, window, negatives and threads.

Both read a text that lies ready (gensim from its file of lines, `corpus_file`, its fastest way), on two threads.
"""

import importlib.util
import random
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise
from pathlib import Path
from typing import Literal

from benchmarks.measure import Effort, Row, take_turns
from cutaway.models.word2vec import Word2Vec, Word2VecConfig
from cutaway.text.corpus import read_documents
from cutaway.text.sequences import Sequences, cutter, gather
from cutaway.train.progress import Progress
from cutaway.train.state import RunFolder
from cutaway.train.word_recipe import WordRecipe, parse_word_recipe
from cutaway.train.word_vectors import WordTrainer

BOOKS = Path(__file__).parents[1] / ".." / "shared" / "data" / "gutenberg-en" / "gutenberg-100m.train.txt.gz"
THREADS = 2
PEER = "gensim"
Context = Literal["skip-gram", "cbow"]
WANTED = 1.0


def measure(effort: Effort) -> list[Row]:
    """Nothing where numba or gensim is not installed."""
    if missing := [name for name in ("numba", "gensim") if importlib.util.find_spec(name) is None]:
        print(f"word2vec is not measured: {', '.join(missing)} is not installed", file=sys.stderr)
        return []
    text, what = sequences(effort.words)
    rows = []
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "text.txt"
        write_lines(file, text)
        contexts: tuple[Context, ...] = ("skip-gram", "cbow")
        for width in effort.widths:
            for context in contexts:
                works = [ours(text, width, context, Path(place)), theirs(file, text, width, context)]
                ours_took, theirs_took = (
                    len(text.ids) / took for took in take_turns(works, effort, rounds=min(effort.rounds, 3))
                )
                rows.append(
                    Row(
                        part="word vectors", case=f"{context}, width {width}, 5 negatives, {what}", unit="words/s",
                        ours=ours_took, peer=PEER, theirs=theirs_took, ratio=ours_took / theirs_took, least=WANTED,
                    )
                )  # fmt: skip
    return rows


def sequences(count: int) -> tuple[Sequences, str]:
    """At least `count` words of Project Gutenberg, or where it is not here of chance, drawn by Zipf's law."""
    if BOOKS.is_file():
        cut, lines, read = cutter("words", True), [], 0
        for line in read_documents(BOOKS):
            lines.append(cut(line))
            read += len(lines[-1])
            if read >= count:
                break
        return gather(lines, min_count=5), f"{read:,} words of books"
    draws, kinds = random.Random(1), 30_000
    shares = [1 / (place + 1) for place in range(kinds)]
    drawn = iter(draws.choices(range(kinds), shares, k=count))
    lines = [[f"w{id}" for id in islice(drawn, 40)] for _ in range(count // 40)]
    return gather(lines, min_count=5), f"{count:,} random words"


def write_lines(file: Path, text: Sequences) -> None:
    """Write a text as gensim reads it: a sequence a line, spaces between its words."""
    words = text.words.words
    with file.open("w", encoding="utf-8") as lines:
        for begin, end in pairwise(text.starts.tolist()):
            lines.write(" ".join([words[id] for id in text.ids[begin:end].tolist()]) + "\n")


def recipe(width: int, context: Context, place: Path) -> WordRecipe:
    return parse_word_recipe(
        {
            "run": {"name": "benchmark", "folder": str(place / "run"), "threads": THREADS},
            "model": {"family": "word2vec", "d_model": width, "context": context},
            "data": {"sources": [{"path": "-", "format": "text"}]},
            "train": {"epochs": 1, "lr": 0.025, "step_words": 100_000_000, "save_every": 1_000_000},
        },
        "benchmark",
    )


def ours(text: Sequences, width: int, context: Context, place: Path) -> Callable[[], object]:
    """One epoch, as `cutaway train` does it; the machine code of the kernel is there from the first call on."""
    plan = recipe(width, context, place)
    model = Word2Vec(
        Word2VecConfig(family="word2vec", vocab_size=len(text.words), d_model=width, context=context)
    )
    progress = Progress(place / "log.jsonl", every=1e9)
    trainer = WordTrainer(plan, model, text, RunFolder(place / "run"), progress)

    def epoch() -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            trainer.read(pool, 0, range(len(trainer.parts) - 1))

    return epoch


def theirs(file: Path, text: Sequences, width: int, context: Context) -> Callable[[], object]:
    from gensim.models import Word2Vec as Gensim

    model = Gensim(
        vector_size=width, window=5, negative=5, sg=int(context == "skip-gram"), workers=THREADS, min_count=1,
        sample=1e-3, seed=1,
    )  # fmt: skip
    model.build_vocab(corpus_file=str(file))
    total = {"total_examples": model.corpus_count, "total_words": len(text.ids)}
    return lambda: model.train(corpus_file=str(file), epochs=1, **total)
