"""Text as a reader sees it in a terminal: pieces without U+FFFD, widths of double-width characters, clusters."""

import re
import unicodedata
from collections.abc import Iterator

SPACE = "▁"
_VISIBLE = {" ": SPACE, "\n": "⏎", "\r": "␍", "\t": "⇥"}
_INVISIBLE = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"))
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_JOINER = "\u200d"
_REGIONAL = range(0x1F1E6, 0x1F200)
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_TAGS = range(0xE0020, 0xE0080)
_HANGUL_V_T = range(0x1160, 0x1200)
_HAN = re.compile("[\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003347f]")


def readable(data: bytes) -> str:
    """The bytes of one piece for a reader: whole characters as themselves, a byte of a character that is cut as `⟨E4⟩`,
    a space as `▁`, line ends and tabs as `⏎ ␍ ⇥`, other invisible characters as `⟨U+200B⟩`."""
    text = data.decode("utf-8", "surrogateescape")
    parts = re.split("([\udc80-\udcff])", text)  # a byte that is no character comes as U+DC00 + byte
    return "".join(f"⟨{ord(part) - 0xDC00:02X}⟩" if n % 2 else visible(part) for n, part in enumerate(parts))


def visible(text: str) -> str:
    """`text` with spaces, line ends, control characters and lone surrogates made visible; U+FFFD is spelled out."""
    shown = "".join(
        _VISIBLE.get(character)
        or (character if _is_visible(before, character) else f"⟨U+{ord(character):04X}⟩")
        for before, character in zip(" " + text, text, strict=False)
    )
    return "◌" + shown if text and unicodedata.category(text[0]) in ("Mn", "Me") else shown


def _is_visible(before: str, character: str) -> bool:
    # seen only in the emoji that they join
    if character in (_JOINER, "\ufe0f", "\ufe0e"):
        return unicodedata.category(before) in ("So", "Sk", "Mn", "Nd", "Po")
    return character != "\ufffd" and unicodedata.category(character) not in _INVISIBLE


def harmless(text: str) -> str:
    """The text with control characters spelled out (`⟨U+001B⟩`), which a terminal would obey, but for line ends and
    tabs."""
    return _CONTROL.sub(lambda found: f"⟨U+{ord(found.group()):04X}⟩", text)


def clusters(text: str) -> Iterator[str]:
    """What a reader takes for one character: a base with its combining marks, an emoji with skin tone, variation
    selector or joiners, a flag, a Hangul syllable of conjoining letters, CR LF. After UAX #29, shortened: no tables for
    prepended marks or Indic conjuncts."""
    start = 0
    for position in range(1, len(text) + 1):
        if position == len(text) or not _continues(text, start, position):
            yield text[start:position]
            start = position


def _continues(text: str, start: int, position: int) -> bool:
    previous, character = text[position - 1], text[position]
    code = ord(character)
    if previous == "\r" and character == "\n":
        return True
    if unicodedata.category(previous) in ("Cc", "Zl", "Zp"):
        return False
    if unicodedata.category(character) in ("Mn", "Me", "Mc") or character == _JOINER:
        return True
    if code in _SKIN_TONES or code in _TAGS or code in _HANGUL_V_T:
        return True
    if code in _REGIONAL and ord(previous) in _REGIONAL:
        return (position - start) % 2 == 1
    return previous == _JOINER and is_pictograph(character) and position - start > 1


def is_pictograph(character: str) -> bool:
    return unicodedata.category(character) == "So" or ord(character) >= 0x1F000


def is_tag(character: str) -> bool:
    """Whether it is one of the unseen letters that follow a flag."""
    return ord(character) in _TAGS


def has_han(text: str) -> bool:
    """Whether there are Chinese characters in it."""
    return _HAN.search(text) is not None


def width(text: str) -> int:
    """Terminal columns: 2 for wide and full-width characters and emoji, 0 for combining and control characters."""
    if text.isascii() and text.isprintable():
        return len(text)
    return sum(_cluster_width(cluster) for cluster in clusters(text))


def _cluster_width(cluster: str) -> int:
    # emoji presentation asked for
    if "\ufe0f" in cluster and len(cluster) > 1:
        return 2
    widths = [_code_point_width(character) for character in cluster]
    if _JOINER in cluster or any(ord(character) in _REGIONAL for character in cluster):
        return min(2, sum(widths))
    return max(widths, default=0)


def _code_point_width(character: str) -> int:
    category = unicodedata.category(character)
    if category in ("Mn", "Me", "Cc", "Cf", "Zl", "Zp", "Cs"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def pad(text: str, columns: int, align: str = "left") -> str:
    """`text` with spaces to `columns` terminal columns; `align` is `left`, `right` or `center`. Never cuts."""
    missing = max(0, columns - width(text))
    before = {"left": 0, "right": missing, "center": missing // 2}[align]
    return " " * before + text + " " * (missing - before)


def truncate(text: str, columns: int, mark: str = "…") -> str:
    """The longest beginning of `text` that fits in `columns` terminal columns, with `mark` where something was cut; a
    cluster is never split."""
    if width(text) <= columns:
        return text
    room = columns - width(mark)
    if room < 0:
        return ""
    kept: list[str] = []
    for cluster in clusters(text):
        room -= _cluster_width(cluster)
        if room < 0:
            break
        kept.append(cluster)
    return "".join(kept) + mark
