"""What a page tells those who do not see it, and what a notebook's own rules may not change."""

import re
from importlib.resources import files

import pytest
from tests.page.sample import sample

from cutaway.page.html import fragment
from cutaway.page.locale import Locale

STYLE = files("cutaway.page").joinpath("style.css").read_text(encoding="utf-8")


@pytest.mark.parametrize("locale", ["en", "zh"])
def test_every_drawing_has_a_role_and_says_what_it_shows(locale: Locale) -> None:
    text = fragment(sample(), locale)
    drawings = re.findall(r"<svg[^>]*>", text)
    assert len(drawings) >= 5
    told = [re.search(r'role="(?:img|group)" aria-label="([^"]+)"', each) for each in drawings]
    assert all(told)
    expected = {
        "en": "Heat map: target down, source across; weight",
        "zh": "热力图：纵向为译文，横向为原文；权重",
    }
    assert f'aria-label="{expected[locale]}"' in drawings[0]


def test_a_map_of_an_atlas_is_a_button_and_the_one_shown_large_is_pressed() -> None:
    text = fragment(sample(), "en")
    buttons = re.findall(r'<g data-place[^>]*role="button" tabindex="(-?\d)" aria-pressed="(\w+)"', text)
    assert buttons[0] == ("0", "true")  # the one stop of the tab key; arrows lead on
    assert len(buttons) > 1 and set(buttons[1:]) == {("-1", "false")}
    assert re.search(r'data-per-row="\d+"', text)


def test_titles_of_columns_and_rows_are_titles() -> None:
    text = fragment(sample(), "en")
    titles = re.findall(r"<th(?: [^>]*)?>(?!</th>)", text)
    assert titles and all(re.search('scope="(?:col|row)"', title) for title in titles)
    assert text.count("<thead>") == text.count("<tbody>") == text.count("<table>")


def test_one_scale_for_an_atlas_and_its_large_map() -> None:
    figure = fragment(sample(), "en").split("data-place=", 1)[1].split("</figure>")[0]
    small, large = figure.split("<figcaption>")
    assert ">0.25</text>" in small and ">0.25</text>" not in large


def test_every_rule_outweighs_those_of_a_notebook() -> None:
    """JupyterLab aligns cells by a selector of two classes and a type; an id, though none, outweighs any of those."""
    rules = re.sub(r"/\*.*?\*/", "", STYLE, flags=re.DOTALL)
    depth, outside = 0, ""
    for character in rules:
        depth += (character == "{") - (character == "}")
        outside += character if depth == 0 else ""
        assert depth >= 0
    assert depth == 0 and outside.replace("}", "").split() == [".cutaway:not(#_)"]
    for said in ("text-align: left", "white-space: nowrap", "background: none", "max-width: none"):
        assert said in rules
    assert all(
        f"@media {kind}" in rules for kind in ("print", "(forced-colors: active)", "(max-width: 600px)")
    )
