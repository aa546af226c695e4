"""Word vectors opened and saved: a folder with config.json, model.safetensors and words.json, or another tool's file.

`train.word_vectors` makes such folders.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from cutaway.checkpoint.parameters import fill, spread
from cutaway.checkpoint.vector_files import is_vector_file, read_vectors, write_vectors
from cutaway.checkpoint.weights import open_weights, write_weights
from cutaway.config import parse, to_dict
from cutaway.errors import CutawayError, about
from cutaway.files import inside, json_value, read_inside, read_text, write_json
from cutaway.models.word2vec import Word2Vec, Word2VecConfig, ngram_rows
from cutaway.text.word_list import WordList
from cutaway.words import Phrase

TYPE = "word2vec"
WORDS = "words.json"


@dataclass(frozen=True, repr=False)
class WordVectors:
    """Opened word vectors; `notes` is what to know of how their file was read."""

    model: Word2Vec
    words: WordList
    path: Path
    notes: tuple[Phrase, ...] = ()

    @property
    def config(self) -> Word2VecConfig:
        return self.model.config

    @cached_property
    def vectors(self) -> Tensor:
        """The vectors (V, D) of all words."""
        return self.model.vectors(self.words.words)

    def vector(self, word: str) -> Tensor:
        """The vector (D,) of a word; with character n-grams of any word, also one that was never read.

        Raises CutawayError for one that is not there where words alone have vectors, or that has no n-gram.
        """
        id = self.words.id(word)
        if id is not None:
            return self.vectors[id]
        rows = ngram_rows(word, self.config)
        return self.model.vector(rows) if rows else self.vectors[self.words.find(word)]

    def __repr__(self) -> str:
        return f"<{len(self.words):,} word vectors of {self.config.d_model} numbers, from {self.path}>"


def names_file(path: Path) -> bool:
    """Whether vectors become a file there, by an ending of letters, and not a folder."""
    return path.suffix[1:].isalpha() and not path.is_dir()


def stored_type(path: Path) -> torch.dtype:
    """The type that vectors are stored in: a folder's own, float32 in a file."""
    config = read_inside(path, "config.json") if path.is_dir() else {}
    found = getattr(torch, str(config.get("dtype", "float32")), None)
    return found if isinstance(found, torch.dtype) else torch.float32


def holds_vectors(path: Path) -> bool:
    """Whether there are word vectors at a path, told without reading them."""
    if path.is_dir():
        return read_inside(path, "config.json", optional=True).get("model_type") == TYPE
    return is_vector_file(path)


def load_vectors(path: Path | str) -> WordVectors:
    """Open word vectors: a folder that cutaway wrote, or a .bin, .vec or .txt file (see `vector_files`).

    Raises CutawayError naming the file and what is wrong with it.
    """
    path = Path(path)
    if not path.is_dir():
        words, vectors, notes = read_vectors(path)
        return WordVectors(_vectors_alone(torch.from_numpy(vectors)), WordList(words), path, notes)
    values = read_inside(path, "config.json")
    own: Mapping[str, object] = {
        name: value for name, value in values.items() if name not in ("model_type", "dtype")
    }
    config = parse(Word2VecConfig, own, str(path / "config.json"))
    words = _read_words(path, config.vocab_size)
    tensors, where = open_weights(path)
    model = _skeleton(config)
    fill(model, None, tensors, where)
    return WordVectors(model, words, path)


def _skeleton(config: Word2VecConfig) -> Word2Vec:
    with torch.device("meta"):
        return Word2Vec(config)


def _read_words(folder: Path, size: int) -> WordList:
    path = inside(folder, WORDS)
    with about(path):
        found = json_value(read_text(path))
        words, counts = (found.get("words"), found.get("counts")) if isinstance(found, dict) else (None, None)
        if not isinstance(words, list) or not isinstance(counts, list):
            raise CutawayError(
                "expected an object with the lists words and counts; train or convert the vectors anew"
            )
        fine = all(isinstance(word, str) for word in words) and all(type(count) is int for count in counts)
        if not fine or not len(words) == len(counts) == size:
            raise CutawayError(
                "{n_words:,} words and {n_counts:,} counts, expected {size:,} texts and as many whole numbers, as "
                "config.json says",
                n_words=len(words),
                n_counts=len(counts),
                size=size,
            )
    return WordList(words, counts)


def first_words(opened: WordVectors, count: int) -> WordVectors:
    """The vectors of the first words alone, the most frequent ones where training made them; with the words' outputs
    where negative sampling learned some, without n-grams and the nodes of a tree."""
    words = WordList(opened.words.words[:count], opened.words.counts[:count])
    outputs = opened.model.unembed.weight.detach()[:count] if opened.config.output == "negative" else None
    return WordVectors(_vectors_alone(opened.vectors[:count], outputs), words, opened.path, opened.notes)


def turned(opened: WordVectors, matrix: Tensor) -> WordVectors:
    """The vectors times a rotation (D, D), and the outputs likewise: no product or length among them changes."""
    model = _skeleton(opened.config)
    for ours, theirs in ((model.embed, opened.model.embed), (model.unembed, opened.model.unembed)):
        ours.weight = torch.nn.Parameter((theirs.weight.detach().double() @ matrix.double()).float())
    return replace(opened, model=model)


def _vectors_alone(vectors: Tensor, outputs: Tensor | None = None) -> Word2Vec:
    rows, width = vectors.shape
    output = "none" if outputs is None else "negative"
    model = _skeleton(Word2VecConfig(family=TYPE, vocab_size=rows, d_model=width, output=output))
    model.embed.weight = torch.nn.Parameter(vectors.contiguous())
    model.unembed.weight = torch.nn.Parameter(torch.zeros(0, width) if outputs is None else outputs)
    return model


def save_vectors(
    path: Path | str, model: Word2Vec, words: WordList, dtype: torch.dtype = torch.float32
) -> None:
    """Write a folder that `load_vectors` opens, or by its ending a file for other tools in float32 (`vector_files`)."""
    path = Path(path)
    if names_file(path):
        write_vectors(path, words.words, model.vectors(words.words).float().numpy())
        return
    path.mkdir(parents=True, exist_ok=True)
    write_weights(path, spread(model, None), dtype)
    write_json(
        path / "config.json",
        {"model_type": TYPE, **to_dict(model.config), "dtype": str(dtype).removeprefix("torch.")},
    )
    held = {"words": words.words, "counts": words.counts}
    (path / WORDS).write_text(json.dumps(held, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
