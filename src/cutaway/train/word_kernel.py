"""The inner loop of word vectors, made into machine code by numba: one exact gradient step for each word of a text.

For each word, with the words around it as inputs, the scores of N hidden vectors and K outputs are worked out, and both
matrices take one step down the gradient of the summed loss. So the negatives of a word are drawn once for all words
around it (Ji et al. 2016), and the arithmetic is that of small matrices, whose rows are near: on two cores that was
about twice as many words a second as with negatives of their own for each pair.
"""

# Shapes: D width, N hidden vectors (one for each word around, or one for all), K outputs.

import math
from typing import NamedTuple

import numba
import numpy as np

# Sums may be taken in any order, so that they can be vectorised; NaN and infinities keep their meaning.
SUMS = {"reassoc", "contract", "nsz", "arcp"}
_STEP, _MIX, _MIX_AGAIN = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)


class Plan(NamedTuple):
    """What stays the same in a whole run."""

    words: np.ndarray  # (words of the text,) int32, one sequence after the other
    starts: np.ndarray  # (sequences + 1,) int64: where each begins
    keep: np.ndarray  # (V,) float32: how likely an occurrence is kept (subsampling)
    row_starts: np.ndarray  # (V + 1,) int64: where each word's rows begin in `rows`
    rows: np.ndarray  # int64: rows of the input matrix
    share: np.ndarray  # (V,) float32: the alias table that negatives are drawn from
    other: np.ndarray  # (V,) int64
    way_starts: np.ndarray  # (V + 1,) int64: hierarchical softmax, where each word's way begins in `nodes`
    nodes: np.ndarray  # int64: rows of the output matrix
    labels: np.ndarray  # float32
    window: int  # the most words to either side
    negatives: int  # drawn for each word; 0: hierarchical softmax
    mean: bool  # CBOW


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Walker's alias table: to draw by `weights` (V,), take any i and keep it with probability share[i], else take
    other[i]."""
    share = weights / weights.sum() * len(weights)
    other = np.arange(len(weights))
    small, large = np.flatnonzero(share < 1).tolist(), np.flatnonzero(share >= 1).tolist()
    while small and large:
        less, more = small.pop(), large[-1]
        other[less] = more
        share[more] -= 1 - share[less]
        if share[more] < 1:
            small.append(large.pop())
    return share.astype(np.float32), other


@numba.njit(nogil=True, inline="always")
def _draw(state):
    """64 random bits by splitmix64 (Steele et al. 2014)."""
    state[0] += _STEP
    bits = state[0]
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_AGAIN
    return bits ^ (bits >> np.uint64(31))


@numba.njit(nogil=True, inline="always")
def _below(state, n):
    """A random number from 0 to n - 1."""
    return int(((_draw(state) >> np.uint64(33)) * np.uint64(n)) >> np.uint64(31))


@numba.njit(nogil=True, inline="always")
def _unit(state):
    """A random number from 0 up to 1."""
    return (_draw(state) >> np.uint64(40)) * (1.0 / (1 << 24))


@numba.njit(nogil=True, inline="always")
def _choose_outputs(plan, word, state, outputs, labels):
    """The rows of the output matrix that a word asks for, and what the sigmoid of each should be. Returns K."""
    if plan.negatives == 0:
        count = plan.way_starts[word + 1] - plan.way_starts[word]
        for k in range(count):
            outputs[k] = plan.nodes[plan.way_starts[word] + k]
            labels[k] = plan.labels[plan.way_starts[word] + k]
        return count
    outputs[0], labels[0], count = word, 1, 1
    for _ in range(plan.negatives):
        other = _below(state, len(plan.share))
        if _unit(state) >= plan.share[other]:
            other = plan.other[other]
        # the word itself is no negative
        if other != word:
            outputs[count], labels[count] = other, 0
            count += 1
    return count


@numba.njit(nogil=True, inline="always")
def _scale(plan, word, around):
    """The factor of each row in a hidden vector: see `Word2Vec.vector`, and CBOW's mean."""
    scale = 1 / math.sqrt(plan.row_starts[word + 1] - plan.row_starts[word])
    return np.float32(scale / around if plan.mean else scale)


@numba.njit(nogil=True, fastmath=SUMS, error_model="numpy", cache=True)
def learn(plan, first, last, embed, unembed, rate, seed):
    """Read the sequences from `first` up to `last` once, and change embed (R, D) and unembed (rows, D) in place.

    Returns the sum of the losses in float64 and the number of pairs: of words around with words for skip-gram, of
    words for CBOW. The loss of a pair is -Σ_k log σ(±score_k), + for label 1 (Mikolov et al. 2013b, equation 4).
    """
    width, most = embed.shape[1], plan.negatives + 1
    longest = 0
    for sequence in range(first, last):
        longest = max(longest, plan.starts[sequence + 1] - plan.starts[sequence])
    for word in range(len(plan.way_starts) - 1):
        most = max(most, plan.way_starts[word + 1] - plan.way_starts[word])
    kept, outputs = np.empty(longest, np.int64), np.empty(most, np.int64)
    labels, output = np.empty(most, np.float32), np.empty((most, width), np.float32)
    hidden = np.empty((2 * plan.window, width), np.float32)
    change = np.empty((2 * plan.window, width), np.float32)
    step = np.empty((2 * plan.window, most), np.float32)
    state = np.full(1, seed, np.uint64)
    loss, pairs = 0.0, 0
    for sequence in range(first, last):
        length = 0
        for place in range(plan.starts[sequence], plan.starts[sequence + 1]):
            word = plan.words[place]
            if plan.keep[word] >= 1 or _unit(state) < plan.keep[word]:
                kept[length] = word
                length += 1
        for place in range(length):
            # a window of 1 to `window` words: near words are taken more often
            reach = 1 + _below(state, plan.window)
            begin, end = max(0, place - reach), min(length, place + reach + 1)
            around = end - begin - 1
            if around == 0:
                continue
            count = _choose_outputs(plan, kept[place], state, outputs, labels)
            for k in range(count):
                row = unembed[outputs[k]]
                for d in range(width):
                    output[k, d] = row[d]
            total = 1 if plan.mean else around
            for n in range(total):
                for d in range(width):
                    hidden[n, d] = 0
            n = 0
            for other in range(begin, end):
                if other != place:
                    word = kept[other]
                    scale = _scale(plan, word, around)
                    for at in range(plan.row_starts[word], plan.row_starts[word + 1]):
                        row = embed[plan.rows[at]]
                        for d in range(width):
                            hidden[n, d] += scale * row[d]
                    n += 0 if plan.mean else 1
            for n in range(total):
                # Σ log(1 + e) is one logarithm of a product, which K factors of at most 2 cannot make too large
                product = 1.0
                for k in range(count):
                    score = np.float32(0)
                    for d in range(width):
                        score += hidden[n, d] * output[k, d]
                    small = math.exp(-abs(score))
                    product *= 1 + small
                    # -log σ(s) = log(1 + exp(-|s|)) + max(0, -s)
                    loss += max(0.0, -score if labels[k] > 0 else score)
                    likely = (1 if score >= 0 else small) / (1 + small)
                    step[n, k] = rate * (labels[k] - likely)
                loss += math.log(product)
            pairs += total
            for n in range(total):
                for d in range(width):
                    change[n, d] = 0
                for k in range(count):
                    for d in range(width):
                        change[n, d] += step[n, k] * output[k, d]
            for k in range(count):
                row = unembed[outputs[k]]
                for n in range(total):
                    for d in range(width):
                        row[d] += step[n, k] * hidden[n, d]
            n = 0
            for other in range(begin, end):
                if other != place:
                    word = kept[other]
                    scale = _scale(plan, word, around)
                    for at in range(plan.row_starts[word], plan.row_starts[word + 1]):
                        row = embed[plan.rows[at]]
                        for d in range(width):
                            row[d] += scale * change[n, d]
                    n += 0 if plan.mean else 1
    return loss, pairs
