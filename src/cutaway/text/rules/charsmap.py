"""SentencePiece's compiled table of replacements (`precompiled_charsmap`; sentencepiece's `normalizer.cc`).

The longest spelling in the table that begins at a place is replaced, then the search goes on after it. The
`tokenizers` library reads the same table but replaces a whole grapheme by what its shortest beginning gives,
so that `か` and U+3099 stay two characters, for one; SentencePiece's own reading is the one that models were
trained with.
"""

import base64
import binascii
import re
from collections.abc import Collection

import numpy as np

from cutaway.errors import CutawayError

_MAX_BYTES = 16 * 2**20
_LONGEST = 64  # characters of a spelling; a malformed trie may run in circles
_MAX_BRANCHES = 2**14  # real tables have about 5,000
_BYTES_OF = np.repeat([1, 0, 2, 3, 4], [0x80, 0x42, 0x1E, 0x10, 0x10])  # of a character, by its first byte


class Charsmap:
    """Replaces spellings; those in `kept` stay as they are."""

    def __init__(self, encoded: str, kept: Collection[str], where: str) -> None:
        """`encoded` is the table in base64: a trie of spellings (double array, darts-clone) as 32-bit units,
        and texts that end with a zero byte. CutawayError naming `where` for a malformed one."""
        self._where = where
        try:
            data = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as error:
            raise self._malformed(f"is no base64 ({error})") from error
        size = int.from_bytes(data[:4], "little")
        if len(data) > _MAX_BYTES or size % 4 or not 4 <= size <= len(data) - 4:
            raise self._malformed(f"of {len(data):,} bytes claims a trie of {size:,}")
        self._units = np.frombuffer(data, "<u4", size // 4, 4).astype(np.int64)
        self._texts = data[4 + size :]
        firsts = self._branches(_next(self._units[:1]))
        self._single = {ord(character): self._text_at(node) for character, node, ends in firsts if ends}
        self._node_of = {character: node for character, node, _ in firsts}
        later = np.unique(np.array([node for _, node, _ in firsts], np.int64))
        self._kept = set(kept)
        self._reach = {
            spelling[0]: 0 for spelling in kept
        }  # first character -> longest spelling that is kept
        for spelling in kept:
            self._reach[spelling[0]] = max(self._reach[spelling[0]], len(spelling))
        # A text without these characters has no spelling of several characters, and is none that is kept.
        telling = {character for character, _, _ in self._branches(later)} | {
            spelling[-1] for spelling in kept
        }
        self._telling = re.compile(f"[{''.join(map(re.escape, sorted(telling)))}]") if telling else None

    def text(self, text: str) -> str:
        """The text with its replacements made."""
        if self._telling is None or not self._telling.search(text):
            return text.translate(self._single)
        return "".join(new for new, _ in self._steps(text))

    def aligned(self, text: str) -> tuple[str, list[tuple[int, int]]]:
        """The new text, and for each of its characters the part of the old text that it stands for."""
        spans: list[tuple[int, int]] = []
        parts: list[str] = []
        at = 0
        for new, length in self._steps(text):
            parts.append(new)
            spans.extend([(at, at + length)] * len(new))
            at += length
        return "".join(parts), spans

    def _steps(self, text: str) -> list[tuple[str, int]]:
        """What each stretch of the text becomes, and how long it is."""
        steps: list[tuple[str, int]] = []
        at = 0
        while at < len(text):
            first = text[at]
            lengths = range(self._reach.get(first, 0), 0, -1)
            kept = next(
                (text[at : at + length] for length in lengths if text[at : at + length] in self._kept), None
            )
            new, length = (kept, len(kept)) if kept is not None else self._longest(text, at)
            steps.append((new, length))
            at += length
        return steps

    def _longest(self, text: str, at: int) -> tuple[str, int]:
        """What the longest spelling at that place becomes, and its length; the character itself without
        one."""
        first = text[at]
        found = (self._single.get(ord(first), first), 1)
        node = self._node_of.get(first)
        if node is None or self._telling is None or not self._telling.match(text, at + 1):
            return found
        for stop in range(at + 1, min(len(text), at + _LONGEST)):
            ends = False
            for byte in text[stop].encode():
                place = node ^ byte
                if place >= len(self._units) or int(self._units[place]) & _LABEL != byte:
                    return found
                unit = int(self._units[place])
                node, ends = place ^ _distance(unit), bool(unit >> 8 & 1)
            if ends:
                found = (self._text_at(node), stop + 1 - at)
        return found

    def _branches(self, nodes: np.ndarray) -> list[tuple[str, int, bool]]:
        """The characters that lead on from any of the nodes: character, the node after it, and whether a
        spelling ends there."""
        found: set[tuple[str, int, bool]] = set()
        labels = np.arange(1, 256)
        prefixes = np.zeros((len(nodes), 0), np.uint8)
        for depth in range(1, 5):
            if len(nodes) > _MAX_BRANCHES:
                raise self._malformed("branches too often")
            children = nodes[:, None] ^ labels  # where the unit of each next byte would stand
            inside = children < len(self._units)
            units = self._units[np.where(inside, children, 0)]
            row, column = np.nonzero(inside & ((units & _LABEL) == labels))
            unit, nodes = units[row, column], children[row, column]
            nodes = nodes ^ _next(unit)
            prefixes = np.concatenate([prefixes[row], labels[column, None].astype(np.uint8)], axis=1)
            whole = _BYTES_OF[prefixes[:, 0]] == depth
            for bytes_, node, ends in zip(prefixes[whole], nodes[whole], unit[whole] >> 8 & 1, strict=True):
                try:
                    found.add((bytes_.tobytes().decode(), int(node), bool(ends)))
                except UnicodeDecodeError as error:
                    raise self._malformed("holds bytes that are not UTF-8") from error
            nodes, prefixes = nodes[~whole], prefixes[~whole]
        return sorted(found)

    def _text_at(self, node: int) -> str:
        start = int(self._units[node]) & 0x7FFFFFFF if node < len(self._units) else -1
        stop = self._texts.find(b"\0", start) if 0 <= start <= len(self._texts) else -1
        if stop < 0:
            raise self._malformed("points outside itself")
        try:
            return self._texts[start:stop].decode()
        except UnicodeDecodeError as error:
            raise self._malformed("holds bytes that are not UTF-8") from error

    def _malformed(self, reason: str) -> CutawayError:
        return CutawayError(
            "{where}: malformed: its precompiled_charsmap {reason}", where=self._where, reason=reason
        )


_LABEL = 1 << 31 | 0xFF


def _next(unit: np.ndarray) -> np.ndarray:
    """Distance from units to those of the next bytes."""
    return (unit >> 10) << ((unit & 1 << 9) >> 6)


def _distance(unit: int) -> int:
    return (unit >> 10) << ((unit & 1 << 9) >> 6)
