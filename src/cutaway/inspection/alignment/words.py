"""From pieces to words: which pieces make up each word, and weights between words."""

# Shapes: T target pieces, S source pieces, N target words, M source words.

import re
import unicodedata
from collections.abc import Sequence

import torch
from torch import Tensor

from cutaway.errors import CutawayError
from cutaway.text.tokens.tokenizer import Tokenizer

Groups = tuple[tuple[int, ...], ...]  # for each word, the places of its pieces

_HAN = "〇㐀-䶿一-鿿豈-﫿\U00020000-\U0003347f"
_WORD = re.compile(rf"[{_HAN}]|[^\W_{_HAN}]+(?:['’-][^\W_{_HAN}]+)*|\S")
_CUT_BYTE = re.compile(r"⟨[0-9A-F]{2}⟩")


def split_words(text: str) -> list[str]:
    """Words where nobody has cut them: each Chinese character by itself, runs of other letters and digits (with an
    apostrophe or hyphen inside), and each other character that is no space."""
    return _WORD.findall(text)


def word_pieces(tokenizer: Tokenizer, ids: Sequence[int], words: Sequence[str]) -> Groups:
    """For each word, the places of the pieces that spell some of it; control tokens belong to none.

    A piece that reaches over two words belongs to both, and all bytes of a character to its word. Spaces, and forms of
    letters that Unicode holds compatible (NFKC), make no difference, nor does case.
    Raises CutawayError when the words are not what the ids spell, naming where they part.
    """
    text, owners = _characters(tokenizer, ids)
    spelled = [
        (folded, pieces)
        for character, pieces in zip(text, owners, strict=True)
        for folded in _fold(character)
    ]
    asked = [
        (folded, at) for at, word in enumerate(words) for character in word for folded in _fold(character)
    ]
    for place, ((found, _), (expected, at)) in enumerate(zip(spelled, asked, strict=False)):
        if found != expected:
            raise CutawayError(
                f"word {at + 1} is {words[at]!r}, but the pieces spell {_from(spelled, place)!r} there; the words "
                "must be those of the text as the model reads it"
            )
    if len(spelled) != len(asked):
        longer = "the pieces go on with" if len(spelled) > len(asked) else "the words go on with"
        rest = _from(spelled if len(spelled) > len(asked) else asked, min(len(spelled), len(asked)))
        raise CutawayError(f"words and pieces do not spell the same text: {longer} {rest!r}")
    groups: list[dict[int, None]] = [{} for _ in words]
    for (_, pieces), (_, at) in zip(spelled, asked, strict=True):
        groups[at].update(dict.fromkeys(pieces))
    return tuple(tuple(sorted(group)) for group in groups)


def word_weights(weights: Tensor, target: Groups, source: Groups) -> Tensor:
    """Weights between pieces (..., T, S) -> between words (..., N, M).

    Summed over the pieces of a source word, since a word gets what its pieces get, and averaged over the pieces of a
    target word (Garg et al. 2019, §5). A source piece in k words gives each 1/k, so that no weight is
    counted twice; what control tokens got stays out, so that rows sum to 1 or less.
    """
    n_target, n_source = weights.shape[-2:]
    shares = torch.zeros(n_source, len(source), dtype=weights.dtype, device=weights.device)
    for word, pieces in enumerate(source):
        shares[list(pieces), word] = 1
    shares /= shares.sum(dim=1, keepdim=True).clamp(min=1)
    means = torch.zeros(len(target), n_target, dtype=weights.dtype, device=weights.device)
    for word, pieces in enumerate(target):
        means[word, list(pieces)] = 1 / max(len(pieces), 1)
    return means @ weights @ shares


def _characters(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, list[tuple[int, ...]]]:
    """The text of the ids, and for each of its characters the places of the pieces that spell it."""
    text = tokenizer.decode(ids)
    owners: list[tuple[int, ...]] = []
    open_pieces: list[int] = []  # bytes of a character that is not complete
    for place, id in enumerate(ids):
        if tokenizer.is_silent(id):
            continue
        so_far = tokenizer.decode(ids[: place + 1])
        settled = _shared(so_far, text)
        if settled > len(owners):
            owners.append((*open_pieces, place))
            owners += [(place,)] * (settled - len(owners))
            open_pieces = []
        if _CUT_BYTE.search(tokenizer.readable(id)) and len(so_far) > settled:
            open_pieces.append(place)
    owners += [tuple(open_pieces)] * (len(text) - len(owners))  # bytes that never became a character
    return text, owners


def _shared(left: str, right: str) -> int:
    """How many characters two texts begin with in common."""
    for place, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return place
    return min(len(left), len(right))


def _fold(character: str) -> str:
    return "".join(unicodedata.normalize("NFKC", character).casefold().split())


def _from(characters: Sequence[tuple[str, object]], place: int) -> str:
    return "".join(character for character, _ in characters[place : place + 12])
