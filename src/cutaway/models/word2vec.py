"""Word2Vec (Mikolov et al. 2013a, b): two matrices, and one dot product for each pair of words.

A word is a row of `embed`, or with character n-grams the sum of several (Bojanowski et al. 2017); what it is asked to
predict are rows of `unembed`: the words themselves (negative sampling), or the inner nodes of a Huffman tree on the way
to them (hierarchical softmax).
"""

# Shapes: V words, R rows of the input matrix, D width, N hidden vectors, K outputs.

import heapq
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from cutaway.config import PIECES, WIDTH, checked, key
from cutaway.errors import CutawayError
from cutaway.nn.init import empty_table


@checked
class Word2VecConfig:
    """The numbers and choices that word vectors are built from."""

    family: Literal["word2vec"] = key("word vectors")
    vocab_size: int = key("number of words", ge=1, le=PIECES)
    d_model: int = key("width of a vector", default=100, ge=1, le=WIDTH)
    context: Literal["skip-gram", "cbow"] = key(
        "what predicts a word: each word around it alone, or the mean of all (CBOW)", default="skip-gram"
    )
    output: Literal["negative", "hierarchical", "none"] = key(
        "negative sampling, hierarchical softmax, or none: vectors alone, as other tools' files have them",
        default="negative",
    )
    min_n: int = key("shortest character n-gram that has a row; 0: words alone", default=0, ge=0, le=64)
    max_n: int = key("longest character n-gram", default=0, ge=0, le=64)
    buckets: int = key("rows that n-grams share by their hash", default=200_000, ge=1, le=PIECES)

    def __post_init__(self) -> None:
        if not (self.min_n == self.max_n == 0 or 1 <= self.min_n <= self.max_n):
            raise CutawayError(
                "min_n is {min_n} and max_n {max_n}, expected 1 <= min_n <= max_n, or 0 for both",
                min_n=self.min_n,
                max_n=self.max_n,
            )

    @property
    def rows(self) -> int:
        """R, rows of the input matrix: the words', then those of n-grams."""
        return self.vocab_size + (self.buckets if self.max_n else 0)

    @property
    def outputs(self) -> int:
        """Rows of the output matrix: a Huffman tree of V leaves has V - 1 inner nodes."""
        return {"negative": self.vocab_size, "hierarchical": self.vocab_size - 1, "none": 0}[self.output]


class Word2Vec(nn.Module):
    """The two matrices. Fresh ones are word2vec's: inputs uniform within ±1/(2·D), outputs 0."""

    def __init__(self, config: Word2VecConfig):
        super().__init__()
        self.config = config
        self.embed = empty_table(config.rows, config.d_model)
        self.unembed = empty_table(config.outputs, config.d_model)
        # in a skeleton there is nothing to fill: the values will come from a file
        if not self.embed.weight.is_meta:
            nn.init.uniform_(self.embed.weight, -0.5 / config.d_model, 0.5 / config.d_model)
            nn.init.zeros_(self.unembed.weight)

    def forward(self, rows: Tensor, starts: Tensor, weights: Tensor, outputs: Tensor) -> Tensor:
        """The scores (N, K): how well each of N hidden vectors goes with each of K rows of the output matrix.

        Hidden vector n is Σ weights[i] · embed[rows[i]] over i from starts[n] up to starts[n + 1].
        """
        hidden = embedding_bag(rows, self.embed.weight, starts, mode="sum", per_sample_weights=weights)
        return hidden @ self.unembed.weight[outputs].T

    def vector(self, rows: Sequence[int]) -> Tensor:
        """The vector (D,) of a word that has these rows: their sum over √n, so that one step of learning moves a word
        as far, however many rows it has. It takes Bojanowski et al.'s sum (§3.2) by a factor."""
        return self.embed.weight.detach()[list(rows)].sum(dim=0) / len(rows) ** 0.5

    def vectors(self, words: Sequence[str]) -> Tensor:
        """The vectors (V, D) of all words."""
        if not self.config.max_n:
            return self.embed.weight.detach()
        starts, rows = all_rows(words, self.config)
        lengths = torch.from_numpy(np.diff(starts)).float()
        sums = embedding_bag(
            torch.from_numpy(rows), self.embed.weight, torch.from_numpy(starts[:-1]), mode="sum"
        )
        return (sums / lengths.sqrt()[:, None]).detach()


def ngram_rows(word: str, config: Word2VecConfig) -> list[int]:
    """The rows of a word's character n-grams, `<` and `>` at its ends included, without the word as a whole:
    fastText's, by the FNV-1a hash of their UTF-8 bytes."""
    if not config.max_n:
        return []
    marked, rows = f"<{word}>", []
    for n in range(config.min_n, config.max_n + 1):
        for start in range(len(marked) - n + 1):
            # the ends alone tell nothing
            if n > 1 or 0 < start < len(marked) - 1:
                rows.append(config.vocab_size + _hash(marked[start : start + n]) % config.buckets)
    return rows


def _hash(text: str) -> int:
    value = 2166136261
    for byte in text.encode():
        # fastText's bytes are signed
        value = (value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * 16777619 & 0xFFFFFFFF
    return value


def all_rows(words: Sequence[str], config: Word2VecConfig) -> tuple[np.ndarray, np.ndarray]:
    """For word w its rows are rows[starts[w] : starts[w + 1]], its own first."""
    if not config.max_n:
        return np.arange(len(words) + 1), np.arange(len(words))
    found = [[id, *ngram_rows(word, config)] for id, word in enumerate(words)]
    starts = np.cumsum([0, *map(len, found)])
    return starts, np.array([row for rows in found for row in rows], dtype=np.int64)


def huffman(counts: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The Huffman tree of V words, frequent ones near its root. For word w it gives the inner nodes from the root on,
    nodes[starts[w] : starts[w + 1]], and for each whether the way goes to the left there (label 1) or right (0)."""
    heap = [(count, id) for id, count in enumerate(counts)]
    heapq.heapify(heap)
    parent = np.zeros(2 * len(counts), dtype=np.int64)
    label = np.zeros(2 * len(counts), dtype=np.float32)
    for node in range(len(counts), 2 * len(counts) - 1):
        (one, left), (two, right) = heapq.heappop(heap), heapq.heappop(heap)
        parent[left], parent[right], label[left] = node, node, 1
        heapq.heappush(heap, (one + two, node))
    root, nodes, labels, starts = 2 * len(counts) - 2, [], [], [0]
    for word in range(len(counts)):
        way = []
        while word != root:
            way.append((parent[word] - len(counts), label[word]))
            word = parent[word]
        nodes += [node for node, _ in reversed(way)]
        labels += [turn for _, turn in reversed(way)]
        starts.append(len(nodes))
    return np.array(starts), np.array(nodes, dtype=np.int64), np.array(labels, dtype=np.float32)
