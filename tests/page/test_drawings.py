"""A page as HTML and as SVG: well-formed, whole by itself, in the reader's language, with the very values."""

import base64
import re
import struct
import time
import zlib
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from tests.page.sample import EFFECTS, NASTY, SOURCE, TARGET, WEIGHTS, sample

from cutaway.page.blocks import Atlas, Bar, Column, Matrix, Page, Points, Shaded, Table, page
from cutaway.page.colours import HIDDEN, LAST, NOT_A_NUMBER, entries, palette, reach
from cutaway.page.drawn import Drawn
from cutaway.page.html import document, fragment
from cutaway.page.locale import Both, Locale
from cutaway.page.png import png
from cutaway.page.svg import picture
from cutaway.page.terminal import Terminal

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "img", "br"}


class Reader(HTMLParser):
    """Collects text and attributes, and checks that every element is closed in order."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def unpacked(image: bytes) -> np.ndarray:
    """The palette's entries of a PNG image, by its specification."""
    assert image[:8] == b"\x89PNG\r\n\x1a\n"
    at, parts = 8, dict[bytes, bytes]()
    while at < len(image):
        size = struct.unpack(">I", image[at : at + 4])[0]
        name, data = image[at + 4 : at + 8], image[at + 8 : at + 8 + size]
        assert struct.unpack(">I", image[at + 8 + size : at + 12 + size])[0] == zlib.crc32(name + data)
        parts[name] = data
        at += 12 + size
    assert list(parts) == [b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"]
    width, height, depth, kind = struct.unpack(">IIBB", parts[b"IHDR"][:10])
    assert (depth, kind, len(parts[b"PLTE"]), len(parts[b"tRNS"])) == (8, 3, 768, 256)
    lines = np.frombuffer(zlib.decompress(parts[b"IDAT"]), dtype=np.uint8).reshape(height, width + 1)
    assert not lines[:, 0].any()
    return lines[:, 1:]


def images(text: str) -> list[np.ndarray]:
    return [
        unpacked(base64.b64decode(found)) for found in re.findall(r"data:image/png;base64,([^\"]+)", text)
    ]


@pytest.mark.parametrize("locale", ["en", "zh"])
def test_html_is_whole_by_itself(locale: Locale):
    text = document(sample(), locale)
    read = Reader(text)
    addresses = [value for _, name, value in read.attributes if name in ("href", "src")]
    assert addresses and all(address.startswith("data:") for address in addresses)
    assert "@import" not in text and "url(" not in text
    shown = "".join(read.texts)
    words = {"en": ("Where it looked", "Effects", "Numbers"), "zh": ("它看向哪里", "影响", "数值")}
    assert all(word in shown for word in words[locale]) and not any(
        word in shown for word in words["zh" if locale == "en" else "en"]
    )
    assert shown.count(NASTY) == 2 and NASTY not in text
    assert ("html", "lang", locale) in read.attributes


def test_html_carries_the_values_that_the_pointer_reads():
    read = Reader(fragment(sample(), "en"))
    packed = [value for tag, name, value in read.attributes if tag == "figure" and name == "data-values"]
    weights, effects, atlas = (np.frombuffer(base64.b64decode(each), dtype="<f2") for each in packed)
    np.testing.assert_allclose(weights.reshape(WEIGHTS.shape), WEIGHTS, atol=5e-4)
    np.testing.assert_allclose(effects.reshape(EFFECTS.shape), EFFECTS, rtol=5e-4)
    np.testing.assert_array_equal(atlas, weights)
    small = [value for tag, name, value in read.attributes if tag == "g" and name == "data-values"]
    np.testing.assert_allclose(
        np.frombuffer(base64.b64decode(small[1]), dtype="<f2").reshape(WEIGHTS.shape), 1 - WEIGHTS, atol=5e-4
    )


def test_the_same_page_is_the_same_text():
    assert fragment(sample(), "en") == fragment(sample(), "en")


@pytest.mark.parametrize("locale", ["en", "zh"])
def test_svg_parses_and_holds_every_label(locale: Locale):
    text = picture(sample(), locale)
    root = ET.fromstring(text)
    labels = [element.text for element in root.iter(f"{SVG}text")]
    assert all(piece in labels for piece in [*SOURCE, *TARGET, "国王", NASTY])
    assert {"en": "Where it looked", "zh": "它看向哪里"}[locale] in labels
    across, down = float(root.attrib["width"]), float(root.attrib["height"])
    for group in root.findall(f"{SVG}g"):
        assert 0 <= float(group.attrib["transform"].split()[1].rstrip(")")) < down
    assert across > 400
    assert all(element.attrib["href"].startswith("data:") for element in root.iter(f"{SVG}image"))


def test_a_picture_shows_the_values_cell_by_cell():
    first, *_ = images(picture(sample(), "en"))
    np.testing.assert_array_equal(first, np.rint(np.sqrt(WEIGHTS) * LAST))


def test_colours_of_values_that_are_no_weights():
    values = np.array([-2.0, -1.0, 0.0, 2.0, -np.inf, np.nan, np.inf])
    assert reach(values, "signed") == 2.0
    found = entries(values, "signed", 2.0)
    assert found.tolist() == [0, 63, 126, 252, HIDDEN, NOT_A_NUMBER, 252]
    colours = palette("signed")
    assert colours[126][3] == 0 and colours[0][3] == colours[252][3] == 255  # 0 shows the paper
    assert colours[0][:3] != colours[252][:3]
    assert reach(np.zeros(3), "signed") == 1.0
    weights = palette("weight")
    assert [weights[n][3] for n in (0, LAST)] == [0, 255] and len(weights) == len(colours) == 256


def test_png_of_one_pixel():
    assert unpacked(png(np.array([[7]], dtype=np.uint8), palette("weight"))).tolist() == [[7]]


def test_characters_that_xml_cannot_hold_do_not_break_a_picture():
    odd = "a\x00\x0b\ufffe\ud800b"
    root = ET.fromstring(picture(Page(odd, (Table([Column(odd)], [[odd], [Bar(0.5)]]),)), "en"))
    assert "ab" in [element.text for element in root.iter(f"{SVG}text")]


def test_nothing_to_draw_is_drawn():
    empty = Matrix(np.zeros((0, 0)), [], [], "down", "across", "unit")
    made = page("nothing", [empty, Atlas([], [], 4), Table([Column("a")], []), Points([], "x", "y")])
    ET.fromstring(picture(made, "en"))
    Reader(fragment(made, "en"))


class Heads(Drawn):
    """All heads of 12 layers at 128 tokens."""

    def page(self) -> Page:
        pieces = [f"词{place}" for place in range(128)]
        weights = np.random.default_rng(0).dirichlet(np.full(128, 0.05), (12, 12, 128))
        maps = [Matrix(each, pieces, pieces, "query", "key", "weight") for layer in weights for each in layer]
        return page("heads", [Atlas([f"{n // 12}.{n % 12}" for n in range(144)], maps, 12)])


def test_128_tokens_and_144_heads_do_not_freeze_a_notebook():
    began = time.process_time()
    text = Heads()._repr_html_()
    assert time.process_time() - began < 6
    assert len(text) < 12_000_000
    assert text.count("<text") < 1000  # a browser's cost are elements, not pixels


def test_titles_of_columns_stand_upright_where_all_of_them_fit() -> None:
    for columns, turned in ((["h0", "h10"], 0), (["h0", "layer 10"], 2)):
        matrix = Matrix(np.zeros((1, 2)), ["0"], columns, "layer", "head", "nats", "signed")
        assert picture(page("heads", [matrix]), "en").count("rotate(-90") == turned


def test_labels_of_a_heat_map_are_in_the_language_of_the_reader() -> None:
    stages = [Both("input", "输入"), Both("layer 0", "第 0 层")]
    made = page("stages", [Matrix(WEIGHTS[:2, :2], stages, stages, "down", "across", "weight")])
    for drawn in (fragment(made, "zh"), picture(made, "zh"), Terminal(locale="zh").text(made)):
        assert "第 0 层" in drawn and "layer 0" not in drawn


def test_a_scale_ends_at_the_greatest_and_its_words_are_not_cut() -> None:
    unit = "a unit of rather many words that is wider than the maps are"
    matrix = Matrix(np.array([[0.0, 2.0]]), ["0"], ["a", "b"], "layer", "head", unit, greatest=2.0)
    for block in (matrix, Atlas(["0.0"], [matrix], 1)):
        root = ET.fromstring(picture(page("heads", [block]), "en"))
        labels = [element.text for element in root.iter(f"{SVG}text")]
        assert {"0", "0.5", "2"} <= set(labels) and unit in labels
        assert float(root.attrib["width"]) > 200 + 0.6 * 12 * len(unit)
    (cells, _) = images(picture(page("heads", [matrix]), "en"))
    assert cells.tolist() == [[0, LAST]]
    assert "▒ 0.50" in Terminal().text(page("heads", [matrix]))


def test_names_of_an_atlas_do_not_touch() -> None:
    matrix = Matrix(np.zeros((2, 2)), ["0", "1"], ["a", "b"], "layer", "head", "nats", "signed")
    names = ["encoder self-attention", "decoder self-attention"]
    root = ET.fromstring(picture(page("heads", [Atlas(names, [matrix, matrix], 2)]), "en"))
    first, second = (next(each for each in root.iter(f"{SVG}text") if each.text == name) for name in names)
    assert float(second.attrib["x"]) - float(first.attrib["x"]) > 0.6 * 11 * len(names[0])


def test_a_scale_and_a_first_map_can_be_given():
    tinted = Shaded("share", ["a", "b"], [1.0, -2.0], "nats", greatest=4.0)
    assert "0.200)" in fragment(page("one", [tinted]), "en") and "±4" in picture(page("one", [tinted]), "en")
    assert "±2" in picture(page("one", [Shaded("share", ["a", "b"], [1.0, -2.0], "nats")]), "en")
    maps = [Matrix(WEIGHTS * k, TARGET, SOURCE, "down", "across", "unit") for k in (0.1, 1.0)]
    opened = Reader(fragment(page("two", [Atlas(["weak", "strong"], maps, 2, opened=1)]), "en"))
    figure = {name: value for tag, name, value in opened.attributes if tag == "figure"}
    assert figure["data-name"] == "strong"
    np.testing.assert_allclose(
        np.frombuffer(base64.b64decode(figure["data-values"]), dtype="<f2").reshape(WEIGHTS.shape),
        WEIGHTS,
        atol=5e-4,
    )
