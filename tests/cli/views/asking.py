"""A view as a user asks for it: in a terminal, in both languages, as JSON, and as files that need nothing else."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from tests.command import Run

from cutaway.cli.views.request import View
from cutaway.text.display import width

_SVG = "http://www.w3.org/2000/svg"
_ENGLISH = re.compile(r"[A-Za-z']{2,}(?: [A-Za-z']{2,}){2,}")  # three English words in a row


def shown(cutaway: Run, view: View, *arguments: str | Path, lang: str = "en") -> str:
    """What the terminal shows, no line of it wider than 80 columns."""
    found = cutaway("inspect", *arguments, "--show", view, "--lang", lang)
    assert (found.code, found.err) == (0, ""), found
    assert max(map(width, found.out.splitlines())) <= 80
    return found.out


def shown_in_chinese(cutaway: Run, view: View, *arguments: str | Path) -> str:
    """The same in Chinese, without an English sentence."""
    out = shown(cutaway, view, *arguments, lang="zh")
    assert re.search("[一-鿿]", out.splitlines()[0])
    assert not _ENGLISH.search(out), _ENGLISH.search(out)
    return out


def result(cutaway: Run, view: View, *arguments: str | Path) -> Any:
    """The result that JSON carries."""
    found = cutaway("inspect", *arguments, "--show", view, "--json")
    assert (found.code, found.err) == (0, ""), found
    return json.loads(found.out)["result"]


def drawn(cutaway: Run, view: View, *arguments: str | Path, lang: str = "en") -> tuple[str, str]:
    """The page as HTML and the texts of the SVG picture, a line each; both are whole without a network."""
    html, svg = Path("page.html"), Path("page.svg")
    found = cutaway("inspect", *arguments, "--show", view, "--html", html, "--svg", svg, "--lang", lang)
    assert found.code == 0, found
    whole = html.read_text(encoding="utf-8")
    assert len(whole) < 2_000_000
    assert not re.search(r'(?:src|href)="(?!data:)', whole)
    assert "http" not in whole.replace(f'xmlns="{_SVG}"', "")
    root = ET.parse(svg).getroot()
    assert root.tag == f"{{{_SVG}}}svg"
    title = root.findtext(f"{{{_SVG}}}title")
    assert title is not None and title == found.out.splitlines()[0]
    assert "<image" not in whole or 'href="data:image/png;base64,' in whole
    return whole, "\n".join(text.text or "" for text in root.iter(f"{{{_SVG}}}text"))


def refused(cutaway: Run, *arguments: str) -> str:
    """The one line that tells what is wrong."""
    found = cutaway("inspect", *arguments)
    assert (found.code, found.out) == (2, ""), found
    assert "Traceback" not in found.err
    return found.err
