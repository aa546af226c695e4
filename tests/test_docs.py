"""What the pages show is run: commands in ```console blocks, programs in ```python blocks.

A command's output must be what the page shows, its text exactly, its numbers as far as rounding lets them be told
(`same_number`), since sums are rounded differently from processor to processor; a line `...` stands for any lines.
The ```python blocks of a page are one program; each prints what the ```text block right after it shows, if there is
one. A block that needs data or takes long has `<!-- not run: REASON -->` on the line above it. `UPDATE_PAGES=1 pytest
tests/test_docs.py` writes into the pages what is really printed, where it differs, and keeps the lines `...`.
"""

import multiprocessing
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from io import FileIO, TextIOWrapper
from itertools import pairwise
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import pytest

from cutaway import inspection
from cutaway.inspection.question import names

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"(?P<mark><!--[^\n]*-->\n)?```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
NOT_RUN = re.compile(r"<!-- not run: \S.* -->\n")
NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?(?:e[+-]\d+)?)")
# Ten sums of 1,024 terms in fp32, one after another, are off by ten times 6·√1024·2⁻²⁴ of their size: see `growth` in
# inspection/arithmetic/rounding.py. What is smaller than that of a number near 1 is what rounding left.
ROUNDING = 1e-4
RESIDUE = 1e-5
SAME = {"make demo": "cutaway demo"}  # make only sets up first


@dataclass(frozen=True)
class Block:
    """A fenced block; `start` and `end` are places of its body in the page's text."""

    page: Path
    kind: str
    body: str
    start: int
    end: int
    follows: bool  # whether only its fence stands between it and the block before

    def __str__(self) -> str:
        line = self.page.read_text(encoding="utf-8").count("\n", 0, self.start)
        return f"{self.page.relative_to(ROOT)}:{line}"


@dataclass(frozen=True)
class Place:
    """Where a page's commands run: a folder with the recipes, and the environment the pages were written in."""

    folder: Path
    environment: dict[str, str]

    def of_readers_of(self, page: Path) -> "Place":
        """The same place in the language of a page: Chinese for README.zh-CN.md and what lies in docs/zh."""
        parts = page.relative_to(ROOT).parts
        chinese = "zh" in parts or ".zh-" in page.name
        return replace(self, environment=self.environment | {"LANG": "zh_CN.UTF-8" if chinese else "C.UTF-8"})

    def run(self, main: Callable[..., object], *given: str) -> tuple[int, str]:
        """What a function of the module does in a process of its own, with what it wrote: the code and the text."""
        with tempfile.TemporaryFile() as written:
            process = FORKED.Process(target=_apart, args=(self, DupFd(written.fileno()), main, *given))
            process.start()
            process.join()
            written.seek(0)
            assert process.exitcode is not None
            return process.exitcode, written.read().decode()


# Processes that begin with what every command imports, and not with the command line, whose help speaks the reader's
# language from the first.
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["cutaway.inspection.question", "cutaway.serve.app", "sacrebleu"])


def _apart(place: Place, written: Any, main: Callable[..., object], *given: str) -> None:
    os.dup2(written.detach(), 1)
    os.dup2(1, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin, sys.stdout, sys.stderr = (
        TextIOWrapper(FileIO(fd, mode), encoding="utf-8", line_buffering=True)
        for fd, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    os.chdir(place.folder)
    os.environ.clear()
    os.environ.update(place.environment)
    main(*given)


def command(line: str) -> None:
    """A line of a console block: `cutaway` in this process, else what bash makes of it."""
    words = shlex.split(line)
    if words[0] == "cutaway" and not set(line) & set("|<>;&$`*"):
        from cutaway.cli.main import run

        sys.argv = words
        run()
    sys.exit(subprocess.run(["bash", "-c", line]).returncode)


def program(source: str) -> None:
    warnings.simplefilter("error")
    exec(compile(source, "page", "exec"), {"__name__": "__main__"})


@pytest.fixture
def place(tmp_path: Path) -> Place:
    for name in ("recipes", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
    settings = {"LANG": "C.UTF-8", "COLUMNS": "80", "NO_COLOR": "1", "TERM": "xterm", "PYTHONUTF8": "1"}
    return Place(tmp_path, kept | settings | {"PATH": path})


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page that are not marked as not run."""
    text = page.read_text(encoding="utf-8")
    found = []
    before = 0
    for match in FENCE.finditer(text):
        if not NOT_RUN.fullmatch(match["mark"] or ""):
            follows = not text[before : match.start()].strip()
            found.append(
                Block(page, match["kind"], match["body"], match.start("body"), match.end("body"), follows)
            )
        before = match.end()
    return found


def same_number(shown: str, real: str) -> bool:
    """Whether two printed numbers differ by no more than rounding on the way to them explains.

    That is ROUNDING of their size, or one unit of the last place printed, which a number near the middle between two
    may gain or lose. Numbers below RESIDUE, written with an exponent, are measured roundings: one is as good as
    another. Whole numbers and those with one place are exact: they are counts and names (head 2.1 of layer 2).
    """
    if shown == real:
        return True
    a, b = float(shown), float(real)
    if "e" in shown + real:
        return max(abs(a), abs(b)) < RESIDUE or abs(a - b) <= ROUNDING * abs(a)
    places = max(len(number.partition(".")[2]) for number in (shown, real))
    return places > 1 and abs(a - b) <= max(1.01 * 10**-places, ROUNDING * abs(a))


def alike(shown: str, real: str) -> bool:
    """Whether two lines have the same text and the same numbers; a number that is wider may move what is beside it."""
    if shown == real:
        return True
    texts, others = ([" ".join(text.split()) for text in NUMBER.split(line)[::2]] for line in (shown, real))
    return texts == others and all(map(same_number, NUMBER.findall(shown), NUMBER.findall(real)))


def agrees(shown: str, real: str) -> bool:
    """Whether `real` is what the page shows, a line `...` standing for any number of lines."""

    def follow(page: list[str], printed: list[str]) -> bool:
        for i, line in enumerate(page):
            if line.strip() == "...":
                return any(follow(page[i + 1 :], printed[j:]) for j in range(i, len(printed) + 1))
            if i == len(printed) or not alike(line, printed[i]):
                return False
        return len(page) == len(printed)

    return follow(*([line.rstrip() for line in text.rstrip().splitlines()] for text in (shown, real)))


def settled(shown: str, real: str) -> str:
    """What the page should show: `shown` where that agrees with what is real, else the latter, left out of it what the
    page leaves out."""
    if agrees(shown, real):
        return shown
    whole = "".join(f"{line.rstrip()}\n" for line in real.rstrip().splitlines())
    short = shortened(shown, whole)
    return short if agrees(short, real) else whole


def shortened(shown: str, real: str) -> str:
    """`real` with `...` where `shown` has it: a stretch of lines between two of them becomes as many lines of `real`,
    those with the likest words after the stretch before. The first begins where `real` does, the last ends there."""
    stretches = [
        part.splitlines() for part in re.split(r"^\s*\.\.\.\n", shown.rstrip() + "\n", flags=re.MULTILINE)
    ]
    printed, words = real.splitlines(), [NUMBER.sub("", line) for line in real.splitlines()]
    found: list[list[str]] = []
    start = 0
    for i, stretch in enumerate(stretches):
        asked, last = [NUMBER.sub("", line) for line in stretch], len(printed) - len(stretch)
        places = range(i and start, last + 1 if i else 1) if i < len(stretches) - 1 else range(last, last + 1)
        alike = {
            place: sum(
                SequenceMatcher(None, *pair).ratio() for pair in zip(asked, words[place:], strict=False)
            )
            for place in places
            if place >= start
        }
        if not alike:
            return real
        start = max(alike, key=lambda place: alike[place])
        found.append(printed[start : start + len(stretch)])
        start += len(stretch)
    return "...\n".join("".join(f"{line}\n" for line in stretch) for stretch in found)


def console(block: Block, place: Place) -> str:
    """The body of a console block as it really comes out: each `$ command` (continued by a backslash) is run."""
    parts = re.split(r"^(\$ (?:.*\\\n)*.*\n)", block.body, flags=re.MULTILINE)
    assert not parts[0].strip(), f"{block}: output before the first `$ command`"
    body = ""
    for prompt, shown in zip(parts[1::2], parts[2::2], strict=True):
        line = re.sub(r"\\\n\s*", "", prompt[2:]).strip()
        body += prompt + settled(shown, place.run(command, SAME.get(line, line))[1])
        body += "\n" * (len(shown) - len(shown.rstrip("\n")) - 1)  # a blank line before the next command
    return body


def programs(found: list[Block], place: Place) -> Iterator[tuple[Block, str]]:
    """The ```text blocks that follow ```python blocks, with what the latter really print."""
    sources = [block for block in found if block.kind == "python"]
    if not sources:
        return
    code, text = place.run(program, "print('\\x1e')\n".join(block.body for block in sources))
    assert code == 0, f"{sources[0].page.relative_to(ROOT)}:\n{text}"
    printed = dict(zip(sources, text.split("\x1e\n"), strict=True))
    for source, block in pairwise(found):
        if source.kind == "python" and block.kind == "text" and block.follows:
            yield block, settled(block.body, printed[source])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_shows_what_really_comes_out(page: Path, place: Place):
    found, place = blocks(page), place.of_readers_of(page)
    real = [(block, console(block, place)) for block in found if block.kind == "console"]
    real += programs(found, place)
    if os.environ.get("UPDATE_PAGES"):
        text = page.read_text(encoding="utf-8")
        for block, body in sorted(real, key=lambda pair: -pair[0].start):
            text = text[: block.start] + body + text[block.end :]
        page.write_text(text, encoding="utf-8")
        return
    for block, body in real:
        assert body == block.body, str(block)


def test_pages_made_from_the_code_are_fresh():
    for page, make in runpy.run_path(str(ROOT / "docs" / "generate.py"))["PAGES"].items():
        shown, real = page.read_text(encoding="utf-8"), make()
        assert agrees(shown, real), f"{page.relative_to(ROOT)} is stale; run `make docs`"


@pytest.mark.parametrize(
    ("shown", "real", "agree"),
    [
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("...\n", "", True),
        ("a\n", "a  \n\n", True),
        ("a\n...\nd\n", "a\nb\nc\n", False),
        ("a\n", "a\nb\n", False),
        ("a.c\n", "abc\n", False),
        # one model on two processors
        ("0.0654055947 in float64", "0.0654056094 in float64", True),
        ("0.0654055947 in float64", "0.0654255947 in float64", False),
        ("0.0654055947 in float64", "0.0654055947 in float32", False),
        ("▁He    0.893   -0.82", "▁He    0.894   -0.81", True),
        ("▁He    0.893   -0.82", "▁He    0.895   -0.82", False),
        ("▁He    0.893   -0.82", "▁She   0.893   -0.82", False),
        ("▁He    0.893   -0.82", "▁He    0.893    0.82", False),
        ("▁He   +0.00", "▁He   -0.00", True),
        # 4.1204 and 4.1206 to four digits, a last 0 left out
        ("4.12 2.646", "4.121 2.646", True),
        ("9.999 m", "10.00 m", True),
        ("difference 5.1e-09", "difference 0", True),
        ("difference 5.1e-09", "difference 2.0e-04", False),
        ("1.234e+06", "1.236e+06", False),
        ("2.1    0.41   0.02", "2.2    0.41   0.02", False),
        ("26 tokens", "27 tokens", False),
        ("a\n...\n0.41\n", "a\n0.43\n0.42\n", True),
        ("a\n...\n0.41\n", "a\n0.41\n0.43\n", False),
    ],
)
def test_a_changed_output_is_noticed(shown: str, real: str, agree: bool):
    assert agrees(shown, real) is agree


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_wrong_number_on_a_page_is_noticed(page: Path):
    for block in blocks(page):
        for line in block.body.splitlines():
            for match in NUMBER.finditer(line):
                number, places = match[0], len(match[0].partition(".")[2])
                if "e" in number:
                    wrong = f"{1.001 * float(number) + 10 * RESIDUE:.4e}"
                else:
                    more = 0.001 * abs(float(number)) + 2 * 10.0**-places
                    wrong = f"{float(number) + more:.{places}f}"
                assert not alike(line, line[: match.start()] + wrong + line[match.end() :]), (line, wrong)


def test_blocks_run_and_are_corrected(tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ echo \\\n    one\nold\n\n$ echo two\ntwo\n```\n"
        "<!-- not run: fails -->\n```console\n$ false\nx\n```\n"
        "```python\nx = 1\n```\n\n```python\nprint(x + 1)\n```\n```text\n3\n```\n"
    )
    [first, *others] = blocks(page)
    assert console(first, place) == "$ echo \\\n    one\none\n\n$ echo two\ntwo\n"
    assert [block.kind for block in others] == ["python", "python", "text"]
    assert list(programs(others, place)) == [(others[-1], "2\n")]


LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")
DATE = re.compile(r"\d{4}-\d\d-\d\d")
KILOBYTE = 1000


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_lead_to_files(page: Path):
    missing = [
        link for link in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()
    ]
    assert not missing, f"{page.relative_to(ROOT)} links to {', '.join(missing)}"


def test_pictures_are_as_cutaway_draws_them():
    drawn = runpy.run_path(str(ROOT / "docs" / "pictures.py"))["pictures"]()
    assert drawn.keys() == {path.name for path in (ROOT / "docs" / "pictures").glob("*.svg")}
    for name, picture in drawn.items():
        shown = (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8")
        assert len(shown.encode()) < 40 * KILOBYTE, name
        page, real = (DATE.sub("", text).replace(">", ">\n") for text in (shown, picture))
        assert agrees(page, real), f"{name} is stale; run `make pictures`"


@pytest.mark.parametrize(
    ("page", "language"),
    [("README.md", "en"), ("README.zh-CN.md", "zh"), ("docs/tour.md", "en"), ("docs/zh/tour.md", "zh")],
)
def test_a_page_runs_in_its_own_language(page: str, language: str, place: Place):
    asks = "from cutaway.words import reader_locale; print(reader_locale())"
    assert place.of_readers_of(ROOT / page).run(program, asks) == (0, f"{language}\n")


@pytest.mark.parametrize("page", ["docs/inspection.md", "docs/zh/inspection.md"])
def test_what_questions_are_asked_with_stands_on_the_page(page: str):
    """The questions themselves stand in docs/questions.md, which is made from the code."""
    text = (ROOT / page).read_text(encoding="utf-8")
    missing = [
        f"`{name}`" for name in sorted({*inspection.__all__} - {*names(), "Run"}) if f"`{name}`" not in text
    ]
    assert not missing, f"{page} says nothing of {', '.join(missing)}"


@pytest.mark.parametrize(
    ("shown", "real", "written"),
    [
        ("a 1\n...\nd 4\n", "a 2\nb\nc\nd 5\n", "a 2\n...\nd 5\n"),
        ("a 1\n...\nmiddle 3\n...\n", "a 2\nb\nmiddle 5\nd\ne\n", "a 2\n...\nmiddle 5\n...\n"),
        ("...\nthe end\n", "b\nan end\n", "...\nan end\n"),
        ("a 1\nb\n", "a 2\nc\nd\n", "a 2\nc\nd\n"),
        ("a\nb\n...\nc\n", "d\n", "d\n"),
    ],
)
def test_what_is_written_anew_leaves_out_what_the_page_left_out(shown: str, real: str, written: str):
    assert settled(shown, real) == written
