"""Figures of SVG: the very values as pixels, labels that can be read, scales that say what they are, captions."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from tests.page.reading import images, unpacked
from tests.page.sample import (
    CAPTION,
    EFFECTS,
    ESCAPE,
    MAP,
    NASTY,
    SOURCE,
    SPELLED,
    TARGET,
    WEIGHTS,
    both,
    sample,
)

from cutaway.errors import CutawayError
from cutaway.page.blocks import (
    Atlas,
    Bar,
    Bars,
    Block,
    Caption,
    Column,
    Matrix,
    Page,
    Point,
    Points,
    Remark,
    Scale,
    Shaded,
    Table,
    Tinted,
    page,
)  # fmt: skip
from cutaway.page.colours import (
    HIDDEN,
    LAST,
    NEGATIVE,
    NOT_A_NUMBER,
    POSITIVE,
    WEIGHT,
    entries,
    palette,
    png,
    reach,
    tint,
)  # fmt: skip
from cutaway.page.drawn import Drawn
from cutaway.page.figures import figures, write_figures
from cutaway.page.heatmap import CELL, ENLARGED, heat_map, laid
from cutaway.page.scatter import SIDE, placed
from cutaway.words import Locale

SVG = "{http://www.w3.org/2000/svg}"


def root(block: Block, locale: Locale = "en", caption: Caption | None = None) -> ET.Element:
    [(_, picture)] = figures(Page("title", (block,), caption), locale)
    return ET.fromstring(picture)


def texts(element: ET.Element) -> list[str]:
    """What can be read, an upright label as its characters together."""
    return ["".join(each.itertext()) for each in element.iter(f"{SVG}text")]


def signed(values: Sequence[Sequence[float]], columns: Sequence[str], rows: Sequence[str] = ("0",)) -> Matrix:
    return Matrix(np.array(values), rows, columns, "layer", "head", "nats", "signed")


def test_the_figures_of_a_page_and_their_titles() -> None:
    found = figures(sample(), "zh")
    assert [title for title, _ in found] == ["它看向哪里", *["影响"] * 5, "每一个头", "平面图"]
    parsed = [ET.fromstring(picture) for _, picture in found]
    assert [each.findtext(f"{SVG}title") for each in parsed] == [title for title, _ in found]
    assert all(title in texts(each) for (title, _), each in zip(found, parsed, strict=True))
    assert {*SOURCE, *TARGET} <= set(texts(parsed[0])) and "国王" in texts(parsed[-1])
    for each in parsed:
        assert all(one.attrib["href"].startswith("data:image/png;") for one in each.iter(f"{SVG}image"))
        assert not [
            one for one in each.iter() if one.tag in (f"{SVG}script", f"{SVG}style", f"{SVG}foreignObject")
        ]


def test_a_figure_says_where_it_comes_from() -> None:
    found = root(MAP, caption=CAPTION)
    assert texts(found)[-3:] == [
        "tiny · 2026-11-30", f"好久不见 {NASTY} → Long time no see", "cutaway inspect align"
    ]  # fmt: skip
    told = json.loads(found.findtext(f"{SVG}metadata") or "")
    assert told["text"] == f"好久不见 {NASTY}" and "python" not in told
    long = root(MAP, caption=Caption(text="这段文字很长。" * 40))
    across = float(long.attrib["width"])
    assert len(texts(long)) > len(texts(root(MAP))) + 3
    assert across == float(root(MAP).attrib["width"])


def test_files_are_numbered_where_there_are_several(tmp_path: Path) -> None:
    one, two = Page("one", (MAP,)), Page("two", (MAP, Remark("a"), MAP))
    assert write_figures(tmp_path / "x.svg", one, "en") == [tmp_path / "x.svg"]
    assert write_figures(tmp_path / "y.svg", two, "en") == [tmp_path / "y-1.svg", tmp_path / "y-2.svg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.svg", "y-1.svg", "y-2.svg"]
    assert ET.parse(tmp_path / "y-2.svg").getroot().tag == f"{SVG}svg"
    with pytest.raises(CutawayError, match="no figure"):
        write_figures(tmp_path / "z.svg", Page("none", (Remark("a"),)), "en")


class Answer(Drawn):
    def __init__(self, *blocks: Block):
        self._blocks = blocks

    def page(self) -> Page:
        return Page("an answer", self._blocks)


def test_an_answer_draws_its_first_figure() -> None:
    assert (
        Answer(Remark("a"), MAP, signed([[1.0]], ["a"])).to_svg("en")
        == figures(Page("an answer", (MAP,)), "en")[0][1]
    )
    with pytest.raises(CutawayError, match="to_html"):
        Answer(Remark("a")).to_svg("en")


def test_a_heat_map_shows_the_values_cell_by_cell() -> None:
    cells, ramp = images(figures(Page("t", (MAP,)), "en")[0][1])
    np.testing.assert_array_equal(cells, np.rint(np.sqrt(WEIGHTS) * LAST))
    # The scale runs evenly through the colours that the values take.
    np.testing.assert_allclose(np.diff(ramp[0].astype(int)), LAST / 63, atol=1.0)
    cells, ramp = images(
        figures(Page("t", (Matrix(EFFECTS, TARGET, SOURCE, "a", "b", "c", "signed"),)), "en")[0][1]
    )
    assert cells.tolist() == [[189, 116, 126, HIDDEN], [0, 126, NOT_A_NUMBER, 210], [147] * 4]
    assert ramp[0].tolist() == list(range(0, 253, 2))


def test_colours_of_values_that_are_no_weights() -> None:
    values = np.array([-2.0, -1.0, 0.0, 2.0, -np.inf, np.nan, np.inf])
    assert reach(values, "signed") == 2.0 and reach(np.zeros(3), "signed") == 1.0
    assert entries(values, "signed", 2.0).tolist() == [0, 63, 126, 252, HIDDEN, NOT_A_NUMBER, 252]
    colours, weights = palette("signed"), palette("weight")
    # 0 shows the paper, light or dark.
    assert (
        colours[126][3] == weights[0][3] == 0 and colours[0][3] == colours[252][3] == weights[LAST][3] == 255
    )
    assert colours[0][:3] != colours[252][:3] and len(weights) == len(colours) == 256
    assert unpacked(png(np.array([[7]], dtype=np.uint8), weights)).tolist() == [[7]]


@pytest.mark.parametrize(
    ("value", "scale", "colour", "opacity"),
    [(0.25, "weight", WEIGHT, 0.375), (4.0, "weight", WEIGHT, 0.75), (-1.0, "signed", NEGATIVE, 0.8),
     (0.5, "signed", POSITIVE, 0.4)],
)  # fmt: skip
def test_text_can_be_read_on_the_strongest_colour(
    value: float, scale: Scale, colour: tuple[int, int, int], opacity: float
) -> None:
    assert tint(value, scale) == f"rgba({colour[0]},{colour[1]},{colour[2]},{opacity:.3f})"


def test_the_scale_says_what_it_is() -> None:
    weights, effects = texts(root(MAP, "zh")), texts(root(signed([[-3.0, 1.5]], ["a", "b"])))
    assert weights[-4:] == ["权重（平方根刻度）", "0", "0.25", "1"]
    assert effects[-4:] == ["nats", "-3", "0", "3"]
    norms = Matrix(np.array([[0.0, 2.0]]), ["0"], ["a", "b"], "layer", "head", "norm", greatest=8.0)
    assert texts(root(norms))[-4:] == ["norm (square-root scale)", "0", "2", "8"]
    for block in (norms, Atlas(["0.0"], [norms], 1)):
        assert images(figures(Page("t", (block,)), "en")[0][1])[0].tolist() == [[0, round(LAST / 2)]]


def test_chinese_labels_of_columns_stand_and_none_of_their_characters_is_turned() -> None:
    columns = ["历史学家", "第 0 层", "</s>", "。"]
    found = root(Matrix(np.eye(4), list("abcd"), columns, "d", "a", "u"))
    standing = {"".join(each.itertext()): each for each in found.iter(f"{SVG}text") if len(each)}
    assert list(standing) == ["历史学家", "第0层", "。"]
    for label in standing.values():
        ys = [float(span.attrib["y"]) for span in label]
        assert {span.attrib["x"] for span in label} == {label[0].attrib["x"]}
        assert all(9 < below - above < 16 for above, below in pairwise(ys))
        assert "transform" not in label.attrib
    turned = [
        each.text for each in found.iter(f"{SVG}text") if "rotate(-90" in each.attrib.get("transform", "")
    ]
    assert turned == ["</s>"]


def test_latin_labels_of_columns_are_slanted_where_not_all_of_them_fit() -> None:
    for columns, slanted in ((["h0", "h10"], []), (["h0", "layer 10"], ["h0", "layer 10"])):
        found = root(signed([[0.0, 1.0]], columns))
        assert [
            each.text for each in found.iter(f"{SVG}text") if "rotate(-45" in each.attrib.get("transform", "")
        ] == slanted
        right = 0.0
        for each in found.iter(f"{SVG}text"):
            right = max(right, float(each.attrib.get("x", 0)))
        assert float(found.attrib["width"]) > right


def test_labels_of_a_heat_map_are_in_the_language_of_the_reader() -> None:
    stages = [both("input", "输入"), both("layer 0", "第 0 层")]
    made = Matrix(WEIGHTS[:2, :2], stages, stages, "down", "across", "weight")
    assert "第 0 层" in texts(root(made, "zh")) and "layer 0" in texts(root(made, "en"))


def test_cells_with_room_carry_their_values() -> None:
    found = root(MAP)
    group = found.find(f".//{SVG}g[@class='values']")
    assert group is not None
    assert texts(group) == [
        "0.10",
        "0.60",
        "0.24",
        "0.06",
        "",
        "0.90",
        "0.10",
        "",
        "",
        "0.20",
        "0.30",
        "0.50",
    ]
    many = Matrix(np.ones((2, 60)), list("ab"), [f"{n}" for n in range(60)], "d", "a", "u")
    faint = signed([[0.002, -0.001]], ["a", "b"])
    assert all(root(each).find(f".//{SVG}g[@class='values']") is None for each in (many, faint))


def test_a_map_that_an_atlas_shows_large_is_larger() -> None:
    for size in (4, 12, 40, 128):
        names = [f"词{n}" for n in range(size)]
        matrix = Matrix(np.eye(size), names, names, "query", "key", "weight")
        small = root(Atlas([f"{n}" for n in range(16)], [matrix] * 16, 4)).findall(
            f".//{SVG}g[@data-place]/{SVG}image"
        )
        assert laid(matrix, "zh", ENLARGED).cell >= laid(matrix, "zh", CELL).cell
        assert heat_map(matrix, "zh", room=ENLARGED).width > 1.8 * float(small[0].attrib["width"])


def test_names_of_an_atlas_do_not_touch() -> None:
    names = ["encoder self-attention", "decoder self-attention"]
    found = root(Atlas(names, [signed([[0.0]], ["a"])] * 2, 2))
    first, second = (next(each for each in found.iter(f"{SVG}text") if each.text == name) for name in names)
    assert float(second.attrib["x"]) - float(first.attrib["x"]) > 0.6 * 11 * len(names[0])


def test_what_comes_from_outside_is_spelled_out_and_xml_can_hold_it() -> None:
    one = Matrix(np.ones((1, 1)), [ESCAPE], [ESCAPE], ESCAPE, ESCAPE, ESCAPE)
    blocks: tuple[Block, ...] = (
        one, Atlas([ESCAPE], [one], 1), Bars([1.0], ESCAPE, ESCAPE), Points([Point(0, 0, ESCAPE)], ESCAPE, ESCAPE),
        Shaded(ESCAPE, [ESCAPE], [1.0], ESCAPE), Table([Column(ESCAPE)], [[Tinted(ESCAPE, 1.0)]], ESCAPE),
    )  # fmt: skip
    for _, picture in figures(Page(ESCAPE, blocks, Caption(*[ESCAPE] * 6)), "en"):
        assert not {"\x1b", "\u202e", "\x00"} & set(picture)
        assert SPELLED in (ET.fromstring(picture).findtext(f"{SVG}title") or "")
    assert SPELLED.removeprefix("⟨U+001B⟩") in "".join(texts(root(blocks[3])))


def test_nothing_to_draw_is_drawn() -> None:
    empty = Matrix(np.zeros((0, 0)), [], [], "down", "across", "unit")
    for block in (empty, Atlas([], [], 4), Points([], "x", "y"), Bars([], "x", "y"), Bars([0.0], "x", "y")):
        assert root(block).tag == f"{SVG}svg"


def test_bars_and_tints_of_a_table_are_as_long_and_strong_as_their_values() -> None:
    rows = [["a", Tinted("x", 0.25), Bar(1.0)], ["b", Tinted("y", 1.0), Bar(0.25)]]
    found = root(Table([Column("n"), Column("p"), Column("")], rows, both("chance", "概率")), "zh")
    drawn = [each for each in found.iter(f"{SVG}rect") if "x" in each.attrib]
    bars = [float(each.attrib["width"]) for each in drawn if each.attrib["fill"].startswith("#")]
    assert bars == [120.0, 30.0]
    assert [each.attrib["fill"] for each in drawn if "rgba" in each.attrib["fill"]][:2] == [
        tint(0.25, "weight"),
        tint(1.0, "weight"),
    ]
    assert texts(found)[-3:] == ["0", "1", "概率（平方根刻度）"]


def test_tokens_are_shaded_by_their_share() -> None:
    def colours(greatest: float | None) -> list[str]:
        found = root(Shaded("share", ["a", "b"], [1.0, -2.0], "nats", greatest=greatest))
        return [each.attrib["fill"] for each in found.iter(f"{SVG}rect") if each.attrib.get("rx")]

    assert colours(None) == [tint(0.5, "signed"), tint(-1.0, "signed")]
    assert colours(4.0) == [tint(0.25, "signed"), tint(-0.5, "signed")]


def test_bars_stand_as_high_as_their_values() -> None:
    six = Bars([4.0, 2.0, 1.0, 0.5, 0.125, 0.0], both("value", "值"), "σ")
    found = root(six)
    path = found.findall(f".//{SVG}path")[0].attrib["d"]
    heights = [float(part.split("h")[0]) for part in path.split("v")[1:]]
    assert heights == [-110.0, -55.0, -27.5, -13.75, -3.44, -0.0]
    assert "value 0 to 5 across, σ up to 4" in texts(found)


PLANE = Points(
    [Point(0, 0, "左下"), Point(1, 0, "b"), Point(1, 1, "c", 1), Point(0, 1, both("top", "上"), 1)],
    "x", "y", paths=[(0, 1), (3, 2)], groups=("first", both("second", "第二组")), arrows=True,
)  # fmt: skip


def test_a_plane_has_one_unit_on_both_axes_and_its_arrows() -> None:
    found = root(PLANE, "zh")
    lines = [each.attrib["points"] for each in found.iter(f"{SVG}polyline")]
    ends = [[tuple(map(float, corner.split(","))) for corner in line.split()] for line in lines]
    assert len(ends) == 2
    for (x, y), (x_end, y_end) in ends:
        assert (x_end - x, y_end - y) == pytest.approx((SIDE, 0.0), abs=0.2)
    # Up is up.
    assert ends[0][0][1] - ends[1][0][1] == pytest.approx(SIDE, abs=0.2)
    assert len([each for each in found.iter(f"{SVG}path") if each.attrib["d"].count("L") == 2]) == 2
    assert "上" in [each.text for each in found.iter(f"{SVG}title")] and "第二组" in texts(found)


def test_labels_cover_neither_each_other_nor_a_mark() -> None:
    marks = [(100.0, 100.0), (108.0, 100.0), (104.0, 104.0), (300.0, 100.0), (3.0, 50.0)]
    found = placed(marks, [40.0, 40.0, 40.0, 0.0, 20.0], 11)
    assert found[3] is None and found[4] == (10.0, pytest.approx(53.85))
    boxes = [
        (place[0], place[1] - 8.8, place[0] + 40, place[1] + 2.2) for place in found[:3] if place is not None
    ]
    assert len(boxes) >= 2
    for n, (left, top, right, bottom) in enumerate(boxes):
        for x, y in marks:
            assert not (left < x < right and top < y < bottom)
        for other in boxes[n + 1 :]:
            assert left >= other[2] or right <= other[0] or top >= other[3] or bottom <= other[1]
    crowded = placed([(50.0, 50.0)] * 40, [60.0] * 40, 11)
    assert 0 < sum(place is None for place in crowded) < 40


def test_the_same_label_at_the_same_place_is_said_once() -> None:
    start = Points([Point(0, 0, "start"), Point(0, 0, "start", 1), Point(1, 1, "end")], "x", "y")
    found = root(start)
    assert texts(found).count("start") == 1
    # under the pointer
    assert [each.text for each in found.iter(f"{SVG}title")].count("start") == 2
    crowded = root(Points([Point(0, 0, f"label {n}") for n in range(40)], "x", "y"))
    assert any(text.startswith("labels without room: ") for text in texts(crowded))


def test_the_same_page_is_the_same_picture() -> None:
    assert figures(sample(), "en") == figures(sample(), "en")
    assert page("t", [None, MAP]).blocks == (MAP,)
