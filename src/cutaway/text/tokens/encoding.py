"""A text in pieces: which part of it each piece stands for, and which pieces stand for one character together."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cutaway.text import display

BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")  # how a byte of a character outside the vocabulary is spelled


Spans = list[tuple[int, int]]


class Cut(NamedTuple):
    """A text in pieces."""

    ids: list[int]
    offsets: Spans  # in the original text
    surfaces: list[str]  # what each piece stands for in the normalised text


@dataclass(frozen=True)
class Encoding:
    """One text, tokenised: the four lists describe the same pieces, `characters` groups them."""

    ids: list[int]
    pieces: list[str]  # as a reader sees them: spaces as ▁, single bytes of a character as ⟨E4⟩, never U+FFFD
    offsets: list[tuple[int, int]]  # code points of the original text; pieces of one character share its span
    # Every piece once; those that share a character or cluster are together.
    characters: list[tuple[int, ...]]


def settle(text: str, pieces: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Offsets that never run back; a lone space mark put before the text by a rule spans nothing (the library gives it
    the first character's span, huggingface/tokenizers#1775)."""
    settled: list[tuple[int, int]] = []
    last = (0, 0)
    for piece, (start, end) in zip(pieces, offsets, strict=True):
        if piece in ("▁", " ") and not text[start:end].isspace() and text[start:end] != piece:
            end = start
        start = max(start, last[0])
        end = max(start, end)
        last = (start, end)
        settled.append(last)
    return settled


def share_out(pieces: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Give each byte piece the span of its character, where the library gave all bytes of a run the run's."""
    shared = list(offsets)
    start = 0
    while start < len(pieces):
        stop = start
        while stop < len(pieces) and offsets[stop] == offsets[start] and BYTE_PIECE.fullmatch(pieces[stop]):
            stop += 1
        begin, end = offsets[start]
        characters = bytes(int(piece[3:5], 16) for piece in pieces[start:stop]).decode(errors="replace")
        if len(characters) == end - begin > 1:
            places = [begin + at for at, character in enumerate(characters) for _ in character.encode()]
            shared[start:stop] = [(place, place + 1) for place in places]
        start = max(stop, start + 1)
    return shared


def traced(
    offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]], length: int
) -> list[tuple[int, int]]:
    """Offsets in a normalised text as offsets in the original of that length, where each character of the normalised
    text stands for one of `spans`. A piece that is part of what one character became has that character's span."""
    starts = [*(start for start, _ in spans), length]
    return [(starts[start], spans[end - 1][1] if end > start else starts[start]) for start, end in offsets]


def aligned(text: str, new: str, normalised: Callable[[str], str]) -> Spans | None:
    """What each character of `new`, a text after normalisation, stands for in the text: itself where its cluster stays
    as it is, else its whole cluster; what is put before the text stands for nothing. None where the parts of the text
    do not become the parts of `new`, as when white space is folded."""
    # Next to a Han character nothing is composed, and no rule for the beginning of a text holds.
    beside = "\u4e2d"
    before = normalised(beside)
    known: dict[str, str] = {}

    def becomes(old: str) -> str:
        if old not in known:
            known[old] = normalised(beside + old).removeprefix(before)
        return known[old]

    units: list[str] = []  # what is normalised by itself
    for cluster in display.clusters(text):
        if cluster != becomes(cluster) and units and _meet(becomes(units[-1]), becomes(cluster)):
            whole = units[-1] + cluster
            # a letter and its half-width mark are two clusters that are composed
            if becomes(whole) != becomes(units[-1]) + becomes(cluster):
                units[-1] = whole
                continue
        units.append(cluster)
    spans: Spans = []
    at = 0
    for unit in units:
        part, end = becomes(unit), at + len(unit)
        single = len(part) == len(unit) and all(map(_is_form, unit, part))
        spans += [(place, place + 1) for place in range(at, end)] if single else [(at, end)] * len(part)
        at = end
    if not new.endswith("".join(map(becomes, units))):
        return None
    return [(0, 0)] * (len(new) - len(spans)) + spans


def _meet(left: str, right: str) -> bool:
    """Whether the end of one text and the beginning of the next are one cluster."""
    return bool(left and right) and next(display.clusters(left[-1] + right[0])) == left[-1] + right[0]


def _is_form(old: str, new: str) -> bool:
    # spaces that become another character, and letters in lower case, do so one by one
    return old == new or old.isspace() or old.lower() == new


def groups(text: str, offsets: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Pieces whose spans lie in one cluster, or overlap, belong together."""
    cluster_of: list[int] = []  # for each code point, which cluster it belongs to
    for number, cluster in enumerate(display.clusters(text)):
        cluster_of.extend([number] * len(cluster))
    found: list[list[int]] = []
    reach = -1  # the last cluster that the group touches
    for index, (start, end) in enumerate(offsets):
        if start < end and found and cluster_of[start] == reach:
            found[-1].append(index)
        else:
            found.append([index])
        if start < end:
            reach = cluster_of[end - 1]
    return [tuple(group) for group in found]
