"""The rules of the house for web/: nothing from elsewhere, nothing made up, no word about models, no own colours."""

import graphlib
import os
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import hatch_build
import pytest

from cutaway.glossary import GLOSSARY

ROOT = Path(__file__).parent.parent
WEB = ROOT / "web"
FILES = sorted(
    path
    for path in (*WEB.glob("*"), *(WEB / "src").rglob("*"))
    if path.is_file() and path.name != "package-lock.json" and not path.name.startswith(".")
)
SOURCES = [path for path in FILES if path.suffix in {".ts", ".svelte", ".css", ".html"}]
SHIPPED = [path for path in SOURCES if ".test." not in path.name and ".fixture." not in path.name]
COLOURS = {"src/app/page.css", "src/page/page.css"}


def lines(path: Path) -> list[tuple[str, str]]:
    """Each line of a file, after its place."""
    name = path.relative_to(ROOT).as_posix()
    return [(f"{name}:{n}", line) for n, line in enumerate(path.read_text("utf-8").splitlines(), start=1)]


def found(pattern: str, paths: list[Path], flags: int = 0) -> list[str]:
    return [
        f"{place}: {line.strip()[:160]}"
        for path in paths
        for place, line in lines(path)
        if re.search(pattern, line, flags)
    ]


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("a number that is no value of a run", r"Math\.random|\bcrypto\.randomUUID"),
        ("a text taken for HTML or for code", r"\{@html|(inner|outer)HTML|insertAdjacent|\beval\(|new Function"),
        ("another place of the network", r"https?://(?!www\.w3\.org/)|[\"'(]//\w|\bsendBeacon|\bWebSocket|\bEventSource"),
        ("what a GPU is needed for", r"getContext\(['\"]webgl|navigator\.gpu"),
        ("a rule that is switched off", r"@ts-|prettier-ignore|svelte-ignore (?!a11y_)|\bas any\b|: any\b(?! \w)"),
        ("something left to do", r"\bTODO\b|\bFIXME\b|\bXXX\b"),
    ],
)  # fmt: skip
def test_the_page_has_no(what: str, pattern: str):
    wrong = found(pattern, SHIPPED)
    assert not wrong, f"{what}:\n" + "\n".join(wrong)


# A folder imports only folders of lower floors.
FLOORS = (
    {"data"},
    {"i18n"},
    {"state", "kit"},
    {"page"},
    {"ask", "first"},
    {"number"},
    {"flow", "output", "heads", "search", "lab", "space", "learn"},
    {"app"},
    {"main.ts"},
)


def imports(path: Path) -> Iterator[str]:
    """The files below web/src that a file imports, types too, by their path without an ending."""
    for found in re.findall(r"""(?:from|import\()\s*'(\.[^']*)'""", path.read_text("utf-8")):
        yield os.path.relpath(path.parent / found, WEB / "src").removesuffix(".ts")


def test_folders_import_one_way_and_files_in_no_circle():
    floor = {name: n for n, names in enumerate(FLOORS) for name in names}
    graph = {
        path.relative_to(WEB / "src").as_posix().removesuffix(".ts"): list(imports(path))
        for path in SHIPPED
        if path.suffix in {".ts", ".svelte"} and WEB / "src" in path.parents
    }
    rooms = {name: name.partition("/")[0] if "/" in name else "main.ts" for name in graph}
    assert set(rooms.values()) == set(floor)
    wrong = [
        f"{name} -> {other}"
        for name, others in graph.items()
        for other in others
        if rooms[name] != other.partition("/")[0]
        and floor[rooms[name]] <= floor.get(other.partition("/")[0], len(FLOORS))
    ]
    assert not wrong, "\n".join(wrong)
    # CycleError names a circle
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) >= len(graph)


def test_colours_stand_in_the_palette_and_in_page_css_alone():
    """palette.css comes from the server, which takes it from page/colours.py; an icon that a browser shows beside its
    address cannot read either."""
    literal = r"#(?:[0-9a-f]{3}|[0-9a-f]{6}|[0-9a-f]{8})\b|\b(?:rgb|hsl|oklch|lab)a?\("
    wrong = []
    for path in SHIPPED:
        if path.relative_to(WEB).as_posix() in COLOURS:
            continue
        text = path.read_text("utf-8")
        styles = re.findall(r"<style>(.*?)</style>", text, re.DOTALL) if path.suffix == ".svelte" else [text]
        if path.suffix in {".svelte", ".css"}:
            wrong += [
                f"{path.name}: {each}"
                for style in styles
                for each in re.findall(literal, style, re.IGNORECASE)
            ]
    assert not wrong, "\n".join(wrong)


def test_words_stand_in_the_dictionaries_alone():
    """No word in markup, and no Chinese outside the dictionaries."""
    dictionaries = {path for path in SHIPPED if path.parent.name == "i18n"}
    others = [path for path in SHIPPED if path not in dictionaries]
    assert not found(r"[\u4e00-\u9fff]", others)
    wrong = []
    for path in (path for path in others if path.suffix == ".svelte"):
        markup = re.sub(
            r"<(script|style)[ >].*?</\1>|<!--.*?-->", "", path.read_text("utf-8"), flags=re.DOTALL
        )
        # what is between braces is code
        while markup != (markup := re.sub(r"\{[^{}]*\}", "", markup)):
            pass
        markup = re.sub(r"=\"[^\"]*\"|=>", "", markup)
        wrong += [
            f"{path.relative_to(ROOT)}: {text.strip()}"
            for text in re.findall(r">([^<>]*)<", markup)
            if re.search(r"[A-Za-z]{3}", unescape(text)) and text.strip() != "cutaway"
        ]
    assert not wrong, "\n".join(wrong)


def test_what_is_said_of_models_comes_from_the_library():
    """The dictionaries name what is on the page; what a term means is said by the glossary, once."""
    abouts = [str(entry.about).rstrip(".") for entry in GLOSSARY.values()]
    text = "\n".join(path.read_text("utf-8") for path in SHIPPED)
    assert not [about for about in abouts if about in text]
    claims = r"\b(because|understands?|thinks?|knows? that|wants? to|uses? the word)\b|因为|理解了|认为"
    assert not found(
        claims, [path for path in SHIPPED if path.stem.split(".")[-1] in {"en", "zh"}], re.IGNORECASE
    )


def test_the_page_keeps_numbers_out_of_deep_reactivity():
    wrong = found(r"\$state(<[^>]*>)?\([^)]*(Float32|Uint|Int|Array2)", SHIPPED)
    assert not wrong, "\n".join(wrong)


def test_no_file_names_a_place_of_one_machine():
    places = r"(?<![\w.])/(?:work|root|home/\w+)/|\.librar" + "y"
    assert not found(places, [*FILES, ROOT / "hatch_build.py"])


def test_packages_are_pinned_and_fetched_from_wherever_npm_is_told():
    lock = (WEB / "package-lock.json").read_text("utf-8")
    assert '"resolved"' not in lock
    ranges = re.findall(r'"(?:dev)?[dD]ependencies": \{([^}]*)\}', (WEB / "package.json").read_text("utf-8"))
    assert ranges
    assert all(
        re.fullmatch(r"\d+\.\d+\.\d+", version)
        for each in ranges
        for version in re.findall(r": \"([^\"]+)\"", each)
    )
    assert hatch_build.NODE in [
        line.split(" ")[0] for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    ]
