"""Files of word vectors as other tools have them: word2vec's text (fastText's .vec is one) and binary form, GloVe's.

A text file has a line for each word: the word, then its numbers, spaces between. Word2vec's begins with a line of two
numbers, how many words and how wide; GloVe's does not. The binary form has the same first line, then for each word its
bytes, a space, the numbers as little-endian float32 and perhaps a line feed. Files come from strangers: nothing of a
claimed size is believed before it is there.
"""

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from cutaway.config import PIECES, WIDTH
from cutaway.errors import CutawayError, brief
from cutaway.files import unreadable
from cutaway.text.corpus import raw_lines
from cutaway.words import Phrase, say

BINARY, TEXT, GLOVE = ".bin", ".vec", ".txt"
ENDINGS = (BINARY, TEXT, GLOVE)
_HEADER = re.compile(rb"\s*(\d{1,12})[ \t]+(\d{1,12})[ \t]*\r?\n?")
_LONGEST_WORD = 10_000  # bytes; further without a space it is no file of vectors


def is_vector_file(path: Path) -> bool:
    """Whether the name is that of a file of vectors, gzipped or not."""
    return _ending(path) in ENDINGS and path.is_file()


def _ending(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix


def read_vectors(path: Path) -> tuple[list[str], np.ndarray, tuple[Phrase, ...]]:
    """The words of a file, their vectors (V, D) in float32, and what a reader should know of it.

    Words may hold spaces in a text file: the numbers are counted from the end of a line. A byte that is no UTF-8
    becomes U+FFFD, and of words spelled alike the first counts; both are told. Raises CutawayError, with the line or
    the word, for a file that is cut, whose first line does not tell the truth, or whose lines are not of one width.
    """
    found = _binary(path) if _ending(path) == BINARY else _text(path)
    places: dict[bytes, int] = {}
    rows: list[np.ndarray] = []
    again = 0
    for word, row in found:
        if places.setdefault(word, len(rows)) == len(rows):
            rows.append(row)
        else:
            again += 1
    if not rows:
        raise CutawayError("{path}: no vector there; give a file with one word a line", path=path)
    vectors = np.stack(rows)
    if not np.isfinite(vectors).all():
        word = list(places)[int((~np.isfinite(vectors)).any(axis=1).argmax())]
        raise CutawayError(
            "{path}: the vector of {word} holds numbers that are not finite; fetch the file again",
            path=path,
            word=brief(word.decode(errors="replace")),
        )
    words = [word.decode(errors="replace") for word in places]
    notes = []
    if again:
        notes.append(
            say("{path}: words that stand there twice: {n:,}; the first of each counts", path=path, n=again)
        )
    if odd := sum("\ufffd" in word for word in words):
        notes.append(
            say("{path}: words with bytes that are not UTF-8: {n:,}; they show as \ufffd", path=path, n=odd)
        )
    return words, vectors, tuple(notes)


def _sizes(header: bytes, path: Path) -> tuple[int, int]:
    """What a first line claims. CutawayError for more than any file has."""
    match = _HEADER.fullmatch(header)
    assert match is not None
    count, width = int(match[1]), int(match[2])
    if not (1 <= count <= PIECES and 1 <= width <= WIDTH):
        raise CutawayError(
            "{path}:1: the first line says {count:,} words of {width:,} numbers, expected at most {most:,} of {wide:,}",
            path=path,
            count=count,
            width=width,
            most=PIECES,
            wide=WIDTH,
        )
    return count, width


def _text(path: Path) -> Iterator[tuple[bytes, np.ndarray]]:
    lines = enumerate(raw_lines(path), start=1)
    first = next(lines, (0, b""))[1].removeprefix(b"\xef\xbb\xbf")
    count = width = None
    if _HEADER.fullmatch(first):
        count, width = _sizes(first, path)
    else:
        lines = chain([(1, first)], lines)
    seen = 0
    for number, line in lines:
        # only what ends a line is taken off: a word may be a character that counts as white space elsewhere
        body = line.rstrip(b" \t\r\n")
        if not body:
            continue
        if width is None:
            width = _width_of(body)
        fields = body.replace(b"\t", b" ").rsplit(b" ", width)
        try:
            if len(fields) != width + 1 or width == 0:
                raise ValueError
            row = np.array(fields[1:], dtype=np.float32)
        except ValueError:
            raise CutawayError(
                "{path}:{line}: {start}… is not a word and {width:,} numbers, as {told}; mend or remove the line",
                path=path,
                line=number,
                start=brief(body[:30].decode(errors="replace")),
                width=width,
                told=say("the first line says") if count is not None else say("in the first line"),
            ) from None
        seen += 1
        yield fields[0], row
    if count is not None and seen != count:
        raise CutawayError(
            "{path}: the first line says {count:,} words, but there are {seen:,}: {advice}",
            path=path,
            count=count,
            seen=seen,
            advice=say("the file is cut short, fetch it again") if seen < count else say("mend that line"),
        )


def _width_of(line: bytes) -> int:
    """How many numbers end a line, at least the first field being its word."""
    width = 0
    for field in reversed(line.replace(b"\t", b" ").split(b" ")[1:]):
        try:
            float(field)
        except ValueError:
            break
        width += 1
    return width


def _binary(path: Path) -> Iterator[tuple[bytes, np.ndarray]]:
    data = _whole(path)
    end = data.find(b"\n", 0, 100) + 1
    if not _HEADER.fullmatch(data[:end]):
        raise CutawayError(
            "{path}: begins with {start}, expected the number of words and their width, as word2vec writes; a text "
            "file is called .txt or .vec",
            path=path,
            start=brief(data[:20]),
        )
    count, width = _sizes(data[:end], path)
    # no word needs fewer bytes than these
    if len(data) - end < count * (4 * width + 1):
        raise CutawayError(
            "{path}: {size:,} bytes, too few for {count:,} words of {width:,} numbers: the file is cut short, or its "
            "first line is wrong; fetch it again",
            path=path,
            size=len(data),
            count=count,
            width=width,
        )
    for number in range(1, count + 1):
        space = data.find(b" ", end, end + _LONGEST_WORD)
        begin = space + 1
        if space < 0 or len(data) - begin < 4 * width:
            raise CutawayError(
                "{path}: word {number:,} of {count:,} is not whole: the file is cut short, or its width is not "
                "{width:,}",
                path=path,
                number=number,
                count=count,
                width=width,
            )
        word = data[end:space].lstrip(b"\n")
        end = begin + 4 * width
        yield word, np.frombuffer(data, "<f4", width, begin)
    if data[end:].strip(b"\n"):
        raise CutawayError(
            "{path}: {more:,} bytes follow the last of {count:,} words: its first line is wrong; fetch it again",
            path=path,
            more=len(data) - end,
            count=count,
        )


def _whole(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CutawayError(
            "{path}: damaged or cut gzip file: {error}; fetch it again", path=path, error=error
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


def write_vectors(path: Path, words: Sequence[str], vectors: np.ndarray) -> None:
    """Write a file by its ending: .bin word2vec's binary form, .vec its text form (fastText's), .txt GloVe's. Text
    holds the fewest digits that give the same float32 again.

    Raises CutawayError for another ending, and for a word with white space, which other tools would read wrongly.
    """
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise CutawayError(
            "{path}: vectors are written to .bin (word2vec's), .vec (word2vec's and fastText's text) or .txt (GloVe's)",
            path=path,
        )
    for word in words:
        if not word or any(mark in word for mark in " \t\r\n"):
            raise CutawayError(
                "the word {word} is empty or holds white space, which such files cannot have: rename it, or keep the "
                "folder",
                word=brief(word),
            )
    rows = np.ascontiguousarray(vectors, dtype="<f4")
    partly = path.with_name(f"{path.name}.partial")
    try:
        with partly.open("wb") as file:
            if ending != GLOVE:
                file.write(f"{len(words)} {rows.shape[1]}\n".encode())
            for word, row in zip(words, rows, strict=True):
                if ending == BINARY:
                    file.write(word.encode() + b" " + row.tobytes() + b"\n")
                else:
                    file.write(f"{word} {' '.join(row.astype(str))}\n".encode())
        partly.replace(path)
    finally:
        partly.unlink(missing_ok=True)
