"""The help of every command in both languages."""

import json
import os
import re
import subprocess
import sys

import pytest

from cutaway.text.display import width

# A process of its own, since the language of help is chosen when the commands are imported.
WALK = """
import json
from typer.main import get_command
from cutaway.cli.main import app

def walk(name, command, above=None):
    context = command.make_context(name, [], above, resilient_parsing=True)
    abouts = [command.get_short_help_str(99), *(each.help for each in command.params)]
    yield context.command_path, (command.get_help(context), abouts)
    if hasattr(command, "list_commands"):
        for inner in command.list_commands(context):
            yield from walk(inner, command.get_command(context, inner), context)

print(json.dumps(dict(walk("cutaway", get_command(app)))))
"""
HAN = re.compile("[一-鿿]")
SENTENCE = re.compile(r"[A-Za-z]+(?: [A-Za-z]+){2,}")
Pages = dict[str, tuple[str, list[str]]]


def pages(language: str, columns: int = 80) -> Pages:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
    settings = {"LANG": language, "COLUMNS": str(columns), "NO_COLOR": "1", "PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WALK],
        env=kept | settings,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def english() -> Pages:
    return pages("en_GB.UTF-8")


@pytest.fixture(scope="module")
def chinese() -> Pages:
    return pages("zh_CN.UTF-8")


def test_every_page_is_in_the_language_of_the_reader(english: Pages, chinese: Pages):
    assert english.keys() == chinese.keys()
    assert {
        "cutaway",
        "cutaway translate",
        "cutaway inspect",
        "cutaway inspect lens",
        "cutaway tokenizer train",
    } <= chinese.keys()
    for path, (page, abouts) in chinese.items():
        assert all(HAN.search(about) for about in abouts), path
        usage, _, rest = page.partition("\n\n")
        assert usage.startswith(f"用法：{path} [选项]")
        assert not SENTENCE.findall(" ".join(rest.split())), path
        assert not HAN.search(english[path][0])


def test_both_pages_tell_of_the_same_options_and_defaults(english: Pages, chinese: Pages):
    for path, (page, _) in chinese.items():
        joined, other = (" ".join(each.split()) for each in (page, english[path][0]))
        names = r"(?<=\s)--?[a-z][a-z-]*(?=[ ,])"
        assert set(re.findall(names, joined)) == set(re.findall(names, other)), path
        assert re.findall(r"\[默认 ([^;；\]]+)", joined) == re.findall(r"\[default ([^;\]]+)", other)
        assert joined.count("必填]") == other.count("required]")
        assert re.findall(r"≥ (\d+)\]", joined) == re.findall(r"≥ (\d+)\]", other)


@pytest.mark.parametrize("columns", [60, 80])
def test_a_chinese_page_fits_its_columns(columns: int):
    for page, _ in pages("zh_CN.UTF-8", columns).values():
        for line in page.splitlines():
            # choices are one word
            assert width(line) <= columns - 2 or "<" in line


def test_help_is_printed_as_it_is_told(process, chinese: Pages):
    result = process("translate", "--help", LANG="zh_CN.UTF-8")
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.decode().strip() == chinese["cutaway translate"][0]
