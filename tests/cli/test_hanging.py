"""Texts whose continued lines are set in."""

from cutaway.cli.hanging import hanging
from cutaway.text.display import width


def test_continued_lines_are_set_in_and_nothing_is_lost():
    texts = (
        "one two  three four five",
        "编码器与解码器并排，各有 6 层，宽度 512",
        "a" * 30,
        "1,22,333,4444,55555",
    )
    for text in texts:
        lines = list(hanging(text, 12))
        assert max(map(width, lines)) <= 12
        assert all(line.startswith("  ") for line in lines[1:])
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert list(hanging("1,22,333,4444,55555", 12)) == ["1,22,333,", "  4444,55555"]
    assert list(hanging("short", 12)) == ["short"]
    assert list(hanging("", 12)) == []
