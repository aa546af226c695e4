"""Where the sentences of a text are, in Chinese, English and both together, and how those of another text are put in
their places."""

import re
from collections.abc import Iterator, Sequence

from cutaway.text.display import has_han
from cutaway.text.folding import edges, is_blank
from cutaway.text.tokens.encoding import Spans

_BREAKS = "\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_LINE = re.compile(f"[^{_BREAKS}]+")
_BREAK = re.compile(f"[{_BREAKS}]")
_WIDE = re.compile("[。，、；：！？…“”‘’「」『』（）《》]")
# What begins a line of a list: `- `, `• `, `2. `, `(2) `; after a number that is followed by Han no space is needed.
_MARK = re.compile(r"\s*(?:[-–—*•‣●▪◦]\s+|[(（]?\d{1,3}(?:[.)）]\s+|[.)）、](?=[㐀-鿿“「《])))\s*")
ADDRESS = re.compile(
    r"(?:https?://|www\.)[!-~]+|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+", re.IGNORECASE
)
AFTER_ADDRESS = ".,;:!?'\")"
_END = re.compile(r"([。｡！？!?.…⋯]+)([\"'”’」』）)\]】》〉]*)")
_SPACE = re.compile(r"\s+[\"'“‘(\[]*")
_WORD = re.compile(r"[^\s\"'”’)\].,;:!?]+")
_BEFORE = re.compile(r"[A-Za-z.]*$")
_SPEAKS = re.compile(r"\s*[^。！？!?，,：:；;“”\"「」\s]{0,6}?[说問问道答喊叫想]")
_INITIALS = re.compile(r"[A-Z]|(?:[A-Za-z]\.)+[A-Za-z]")
_LONGEST_WORD = 40


def _words(spelled: str) -> frozenset[str]:
    return frozenset(spelled.split())


# Words that end with a point of their own: before a name, before a number, and those that may end a sentence.
_TITLES = _words(
    "mr mrs ms dr prof st rev gen sen rep gov capt col lt sgt hon messrs mt ft e.g i.e eg ie cf viz vs approx "
    "dept"
)
_BEFORE_NUMBERS = _words("no nos fig figs vol vols p pp art sec ch eq par ca")
_SHORT = _words(
    "etc inc ltd co corp jr sr bros est al jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu "
    "thur thurs fri sat sun ave blvd rd"
)
_STARTERS = _words(
    "i i'm i've i'll he she it we you they he's she's it's we're you're they're the this that these those there a "
    "an my his her our your their but and so then what who where when why how is are do does did if in at on "
    "please"
)


def sentences(text: str) -> Spans:
    """The places of the sentences in a text, in order; none in a blank one.

    A line break always ends one. So does 。！？ with the quotation marks and brackets that close after it, and `.` `!`
    `?` before a space, but not the point of a number, an abbreviation, initials, or an address; an ellipsis does before
    a capital letter alone. What begins a line of a list is in no sentence."""
    found: Spans = []
    for line in _LINE.finditer(text):
        words = line.group()
        mark = _MARK.match(words)
        start = mark.end() if mark and mark.end() < len(words) else 0
        for stop in [*_ends(words, start), len(words)]:
            first, last = edges(words[start:stop])
            if first < last:
                found.append((line.start() + start + first, line.start() + start + last))
            start = stop
    return found


def joined(text: str, spans: Spans, sentences: Sequence[str]) -> str:
    """`sentences` in the places of those of `text`: line breaks and the marks of a list stay; within a line a space
    stands between two of them, but not beside Chinese."""
    parts: list[str] = []
    end = 0
    for (start, stop), sentence in zip(spans, sentences, strict=True):
        gap = text[end:start]
        if not parts:
            gap = "" if is_blank(gap) else gap[edges(gap)[0] :]
        elif is_blank(gap) and not _BREAK.search(gap):
            gap = "" if _is_wide(parts[-1][-1:]) or _is_wide(sentence[:1]) else " "
        parts += [gap, sentence] if gap else [sentence]
        end = stop
    return "".join(parts)


def _is_wide(character: str) -> bool:
    return has_han(character) or _WIDE.fullmatch(character) is not None


def _ends(line: str, start: int) -> Iterator[int]:
    """Where sentences of a line end, but for its last one."""
    addresses = [
        (found.start(), found.start() + len(found.group().rstrip(AFTER_ADDRESS)))
        for found in ADDRESS.finditer(line)
    ]
    quotes, counted = 0, start  # straight quotation marks up to there
    for found in _END.finditer(line, start):
        while addresses and addresses[0][1] <= found.start():
            addresses.pop(0)
        if addresses and addresses[0][0] <= found.start():
            continue
        quotes += line.count('"', counted, found.end(1))
        counted = found.end(1)
        closing = _closing(found[2], open_quote=quotes % 2 == 1)
        end = found.end(1) + len(closing)
        if end < len(line) and _is_end(line, found, closing, end):
            yield end


def _closing(marks: str, open_quote: bool) -> str:
    """Those of the marks after an end that close something: a straight one does where one is open."""
    for place, mark in enumerate(marks):
        if mark == '"':
            if not open_quote:
                return marks[:place]
            open_quote = False
    return marks


def _is_end(line: str, found: re.Match[str], closing: str, end: int) -> bool:
    run, before, after = found[1], line[max(0, found.start() - _LONGEST_WORD) : found.start()], line[end]
    space = _SPACE.match(line, end)
    following = _WORD.match(line, space.end() if space else end)
    word = following.group() if following else ""
    chinese = has_han(before[-1:]) or has_han(after)
    if closing.strip(")）]】") and _SPEAKS.match(line, end) and (chinese or not space):
        return False
    if any(each in "。｡！？" for each in run):
        return True
    if any(each in "!?" for each in run):
        if space:
            return not (closing and word[:1].islower())
        return chinese or word[:1].isupper() or after in "“「『"
    if run != ".":
        return bool(space) and word[:1].isupper() and word != "I"
    if not space:
        return chinese and not (after.isascii() and after.isalnum()) and not before[-1:].isdigit()
    spelled = _BEFORE.search(before)
    last = spelled.group() if spelled else ""
    if last.lower() in _TITLES:
        return False
    if last.lower() in _BEFORE_NUMBERS:
        return not word[:1].isdigit()
    if last.lower() in _SHORT or _INITIALS.fullmatch(last):
        return (word[:1].isupper() and word.lower() in _STARTERS) or has_han(word[:1])
    return not (closing and word[:1].islower())
