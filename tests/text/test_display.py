from hypothesis import given
from hypothesis import strategies as st

from cutaway.text.display import clusters, harmless, pad, readable, truncate, visible, width


def test_cut_bytes_are_shown_as_bytes_and_whole_characters_as_themselves():
    assert readable("我".encode()) == "我"
    assert readable("我".encode()[:2]) == "⟨E6⟩⟨88⟩"
    assert readable(b" a\xff\xe6\x88\x91") == "▁a⟨FF⟩我"


@given(st.binary(max_size=12))
def test_no_bytes_are_shown_as_a_replacement_character_or_as_nothing(data: bytes):
    shown = readable(data)
    assert "\ufffd" not in shown
    assert bool(shown) == bool(data)
    assert shown.isprintable()


def test_invisible_characters_become_visible():
    assert visible("a b\n\t\r") == "a▁b⏎⇥␍"
    assert visible("\x00\u200b\ufffd\u2029\u200d") == "⟨U+0000⟩⟨U+200B⟩⟨U+FFFD⟩⟨U+2029⟩⟨U+200D⟩"
    assert visible("\u0301") == "◌\u0301"
    assert visible("é e\u0301 👩‍👧") == "é▁e\u0301▁👩‍👧"


def test_clusters_are_what_a_reader_takes_for_one_character():
    family, flag, wave = "👩‍👩‍👧", "🇨🇳", "👋🏽"
    text = f"a我e\u0301{family}{flag}🇫🇷{wave}❤️\r\n각"
    assert list(clusters(text)) == ["a", "我", "e\u0301", family, flag, "🇫🇷", wave, "❤️", "\r\n", "각"]
    assert list(clusters("1️⃣")) == ["1️⃣"]
    assert list(clusters("")) == []


@given(st.text())
def test_clusters_lose_nothing(text: str):
    assert "".join(clusters(text)) == text


def test_width_counts_terminal_columns():
    assert width("abc") == 3
    assert width("我爱，。") == 8
    assert width("ｶﾅ") == 2
    assert width("e\u0301") == 1
    assert width("👩‍👩‍👧") == width("🇨🇳") == width("👋🏽") == width("❤️") == width("😀") == 2
    assert width("a\u200bb\x00") == 2


def test_padding_and_cutting_keep_columns_aligned():
    assert pad("我", 4) == "我  "
    assert pad("我", 4, "right") == "  我"
    assert pad("我", 5, "center") == " 我  "
    assert pad("我们", 3) == "我们"
    assert truncate("我们爱你", 8) == "我们爱你"
    assert truncate("我们爱你", 6) == "我们…"
    assert truncate("我们爱你", 5) == "我们…"
    assert truncate("ab👩‍👩‍👧cd", 4) == "ab…"
    assert truncate("我", 1) == "…"
    assert truncate("abc", 0) == ""


def test_control_characters_are_spelled_out_and_line_ends_stay():
    assert harmless("\x1b[31mred\x07 \x9b \x7f\r\n\t👩‍👧好") == (
        "⟨U+001B⟩[31mred⟨U+0007⟩ ⟨U+009B⟩ ⟨U+007F⟩⟨U+000D⟩\n\t👩‍👧好"
    )


@given(st.text(max_size=20), st.integers(0, 12))
def test_a_cut_text_fits_and_fills(text: str, columns: int):
    assert width(truncate(text, columns)) <= columns
    assert width(pad(truncate(text, columns), columns)) == columns
