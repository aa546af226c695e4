"""What the pages show is run: commands in ```console blocks, programs in ```python blocks.

A command's output must be what the page shows; a line `...` stands for any lines. The ```python blocks of a page are
one program; each prints what the ```text block right after it shows, if there is one. A block that needs data or
takes long has `<!-- not run: REASON -->` on the line above it. `UPDATE_PAGES=1 pytest tests/test_docs.py` writes
what is really printed into the pages.
"""

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest

from cutaway import inspection
from cutaway.cli.views.registry import VIEWS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"(?P<mark><!--.*-->\n)?```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: \S.* -->\n")
ROUNDING = re.compile(r"(?<=\| )\de-\d\d(?= \|)")
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

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


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


def agrees(shown: str, real: str) -> bool:
    """Whether `real` is what the page shows, a line `...` standing for any number of lines."""
    lines = [line.rstrip() for line in shown.rstrip().splitlines()]
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line) + "\n" for line in lines)
    printed = [line.rstrip() for line in real.rstrip().splitlines()]
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


def settled(shown: str, real: str) -> str:
    """What the page should show: `shown` where that agrees with what is real, else the latter."""
    return (
        shown if agrees(shown, real) else "".join(f"{line.rstrip()}\n" for line in real.rstrip().splitlines())
    )


def console(block: Block, place: Place) -> str:
    """The body of a console block as it really comes out: each `$ command` (continued by a backslash) is run."""
    parts = re.split(r"^(\$ (?:.*\\\n)*.*\n)", block.body, flags=re.MULTILINE)
    assert not parts[0].strip(), f"{block}: output before the first `$ command`"
    body = ""
    for prompt, shown in zip(parts[1::2], parts[2::2], strict=True):
        command = re.sub(r"\\\n\s*", "", prompt[2:]).strip()
        body += prompt + settled(shown, place.run("bash", "-c", SAME.get(command, command)).stdout)
        body += "\n" * (len(shown) - len(shown.rstrip("\n")) - 1)  # a blank line before the next command
    return body


def programs(found: list[Block], place: Place) -> Iterator[tuple[Block, str]]:
    """The ```text blocks that follow ```python blocks, with what the latter really print."""
    sources = [block for block in found if block.kind == "python"]
    if not sources:
        return
    run = place.run(
        sys.executable, "-W", "error", "-c", "print('\\x1e')\n".join(block.body for block in sources)
    )
    assert run.returncode == 0, f"{sources[0].page.relative_to(ROOT)}:\n{run.stdout}"
    printed = dict(zip(sources, run.stdout.split("\x1e\n"), strict=True))
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
        # How sums are rounded differs from machine to machine: a measured difference need only be as small.
        figures = [float(figure) for figure in ROUNDING.findall(real)]
        assert all(figure < 1e-5 for figure in figures)
        assert ROUNDING.sub("…", shown) == ROUNDING.sub("…", real), (
            f"{page.relative_to(ROOT)} is stale; run `make docs`"
        )


@pytest.mark.parametrize(
    ("shown", "real", "agree"),
    [
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("...\n", "", True),
        ("a\n", "a  \n\n", True),
        ("a\n...\nd\n", "a\nb\nc\n", False),
        ("a\n", "a\nb\n", False),
        ("a.c\n", "abc\n", False),
    ],
)
def test_a_changed_output_is_noticed(shown: str, real: str, agree: bool):
    assert agrees(shown, real) is agree


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


@pytest.mark.parametrize(
    ("page", "language"),
    [("README.md", "en"), ("README.zh-CN.md", "zh"), ("docs/tour.md", "en"), ("docs/zh/tour.md", "zh")],
)
def test_a_page_runs_in_its_own_language(page: str, language: str, place: Place):
    program = "from cutaway.page.locale import reader_locale; print(reader_locale())"
    found = place.of_readers_of(ROOT / page).run(sys.executable, "-c", program)
    assert found.stdout == f"{language}\n"


@pytest.mark.parametrize("page", ["docs/inspection.md", "docs/zh/inspection.md"])
def test_every_question_and_every_view_stands_on_the_page(page: str):
    text = (ROOT / page).read_text(encoding="utf-8")
    asked = [name for name in inspection.__all__ if name != "Run"]
    missing = [f"`{name}`" for name in [*asked, *VIEWS] if f"`{name}`" not in text]
    assert not missing, f"{page} says nothing of {', '.join(missing)}"
