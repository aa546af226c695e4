"""The main job on the bundled model."""

import pytest

from cutaway import Translator, find, load
from cutaway.cli.demo import DRAWN, NEXT, TEXTS
from cutaway.text.display import width
from cutaway.zoo import TRANSLATOR


@pytest.fixture(scope="module")
def bundled() -> Translator:
    return Translator(load(find(TRANSLATOR)))


def test_shows_real_translations_in_the_language_of_the_reader(
    cutaway, bundled: Translator, monkeypatch: pytest.MonkeyPatch
):
    english = cutaway("demo")
    assert (english.code, english.err) == (0, "")
    for found in bundled.translate([*TEXTS, DRAWN]):
        assert found.source.text in english.out
        assert found.best.text in english.out
    assert english.out.endswith("".join(f"  {command}\n" for command, _ in NEXT))
    drawing = english.out[english.out.index(DRAWN) : english.out.index("weight at least")]
    assert any(shade in drawing for shade in "░▒▓█")
    assert max(width(line) for line in drawing.splitlines()[1:]) <= 80
    chinese = cutaway("demo", "--lang", "zh")
    assert "接下来试试\n" in chinese.out
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert cutaway("demo").out == chinese.out


def test_the_bundled_translator_is_the_default(process, bundled: Translator):
    result = process("translate", "好久不见")
    assert result.returncode == 0, result.stderr
    assert result.stdout.decode() == f"{bundled.translate(['好久不见'])[0].best.text}\n"
