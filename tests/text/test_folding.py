"""What people type, folded: what a reader does not see changes nothing, and every character keeps its place."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.text.folding import edges, folded, is_blank, trimmed

UNSEEN = [
    "\u3000",
    "\u00a0",
    " ",
    "\t",
    "\u200b",
    "\ufeff",
    "\u2060",
    "\u200e",
    "\x0b",
    "\u2028",
    "\x00",
    "\xad",
]
TEXTS = st.text(
    st.one_of(
        st.characters(codec="utf-8"),
        st.sampled_from([*UNSEEN, "e", "\u0301", "好", "Ａ", "Ⅻ", "🙂", "\u200d", "’"]),
    ),
    max_size=30,
)


def ascii_and_han(character: str) -> bool:
    return character.isascii() or character in "好你在哪里车站，。？株（）“”"


@pytest.mark.parametrize("unseen", UNSEEN)
def test_what_cannot_be_seen_at_the_edges_is_left_out(unseen: str) -> None:
    assert is_blank(unseen) and is_blank(unseen * 3) and edges(unseen) == (0, 0)
    for text in ("车站在哪里？", "Where is it?"):
        for typed in (unseen + text, text + unseen, unseen * 2 + text + unseen):
            for each in (trimmed(typed), folded(typed, ascii_and_han)):
                assert each.text == text
                assert (
                    each.spans
                    == [(place, place + 1) for place in range(typed.index(text), len(typed))][: len(text)]
                )
        inside = folded(text[:3] + unseen + text[3:], ascii_and_han)
        gap = "" if unicodedata.category(unseen) == "Cf" else " "
        assert inside.text == text[:3] + gap + text[3:]


def test_a_run_of_white_space_is_one_space_and_stands_for_the_run() -> None:
    found = folded("  a \u3000\r\n b", ascii_and_han)
    assert (found.text, found.spans) == ("a b", [(2, 3), (3, 8), (8, 9)])
    assert found.traced([(0, 2), (2, 3)]) == [(2, 8), (8, 9)]


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("ＡＢＣ１２３", "ABC123"),
        ("Ⅻ", "XII"),
        ("你好，", "你好，"),
        ("㈱", "(株)"),
        ("Don’t", "Don't"),
        ("“Hi,” she", '"Hi," she'),
        ("“你好”", "“你好”"),
        ("e\u0301", "é"),
        ("👩\u200d🔬", "👩\u200d🔬"),
        ("so\xadft", "soft"),
        ("🏴\U000e0067\U000e0062\U000e007f", "🏴\U000e0067\U000e0062\U000e007f"),
    ],
)
def test_forms_that_a_vocabulary_does_not_have_become_what_they_are_forms_of(typed: str, read: str) -> None:
    found = folded(typed, ascii_and_han)
    assert found.text == read
    assert len(found.spans) == len(read)


@given(TEXTS)
def test_spans_never_run_back_and_cover_what_is_seen(text: str) -> None:
    for found in (trimmed(text), folded(text, ascii_and_han)):
        assert len(found.spans) == len(found.text)
        assert all(start < end for start, end in found.spans)
        assert found.spans == sorted(found.spans)
        covered = {place for start, end in found.spans for place in range(start, end)}
        assert all(is_blank(each) for place, each in enumerate(text) if place not in covered)
        assert is_blank(text) == (not found.text)
        assert folded(found.text, ascii_and_han).text == folded(text, ascii_and_han).text
