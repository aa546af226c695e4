"""What the build makes of web/: the page once, left out only when asked, and why it failed."""

import json
import shutil
from pathlib import Path

import hatch_build
import pytest

UI = Path("src", "cutaway", "serve", "_ui")
# Counts how often it was built, with Node alone.
BUILD = """
const fs = require("fs");
const log = fs.existsSync("../built") ? fs.readFileSync("../built", "utf8") : "";
fs.writeFileSync("../built", log + "x");
fs.mkdirSync("../src/cutaway/serve/_ui", { recursive: true });
fs.writeFileSync("../src/cutaway/serve/_ui/index.html", fs.readFileSync("page.html", "utf8"));
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree whose page needs no packages."""
    monkeypatch.delenv("CUTAWAY_SKIP_UI", raising=False)
    web = tmp_path / "web"
    web.mkdir()
    package = {"name": "page", "version": "0.0.0", "scripts": {"build": "node build.js"}}
    (web / "package.json").write_text(json.dumps(package), encoding="utf-8")
    lock = {"name": "page", "version": "0.0.0", "lockfileVersion": 3, "packages": {"": package}}
    (web / "package-lock.json").write_text(json.dumps(lock), encoding="utf-8")
    (web / "build.js").write_text(BUILD, encoding="utf-8")
    (web / "page.html").write_text("<p>one", encoding="utf-8")
    (web / "node_modules").mkdir()
    shutil.copy(web / "package-lock.json", web / "node_modules" / ".fetched")
    return tmp_path


def test_the_page_is_built_once_for_the_same_sources(root: Path):
    hatch_build.build_page(root)
    hatch_build.build_page(root)
    assert (root / "built").read_text() == "x"
    assert hatch_build.is_fresh(root)

    (root / "web" / "page.html").write_text("<p>two", encoding="utf-8")
    assert not hatch_build.is_fresh(root)
    hatch_build.build_page(root)
    assert (root / UI / "index.html").read_text() == "<p>two"
    assert (root / "built").read_text() == "xx"


def test_packages_of_another_lock_file_are_fetched_anew(root: Path, capsys: pytest.CaptureFixture[str]):
    (root / "web" / "node_modules" / ".fetched").write_text("another")
    hatch_build.build_page(root)
    assert capsys.readouterr().err.splitlines() == ["npm ci --omit=dev --no-audit --no-fund", "npm run build"]
    # What npm fetched is not all that make wants there.
    assert not (root / "web" / "node_modules" / ".fetched").exists()
    assert (root / UI / "index.html").exists()


def test_a_tree_with_the_page_and_without_its_sources_is_fresh(root: Path):
    hatch_build.build_page(root)
    (root / "web").rename(root / "elsewhere")
    assert hatch_build.is_fresh(root)
    hatch_build.build_page(root)
    assert (root / "built").read_text() == "x"


def test_the_digest_is_of_the_sources_alone(root: Path):
    web = root / "web"
    before = hatch_build.digest(web)
    for left in ("node_modules/svelte/index.js", "test-results/a.png", "coverage/b", ".vite/c", ".DS_Store"):
        (web / left).parent.mkdir(parents=True, exist_ok=True)
        (web / left).write_text("left behind")
    assert hatch_build.digest(web) == before
    (web / "page.html").rename(web / "side.html")
    assert hatch_build.digest(web) != before


def test_skipped_when_told_to(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("CUTAWAY_SKIP_UI", "1")
    hatch_build.build_page(root)
    assert not (root / UI).exists()
    assert "CUTAWAY_SKIP_UI" in capsys.readouterr().err
    monkeypatch.setenv("CUTAWAY_SKIP_UI", "0")
    hatch_build.build_page(root)
    assert (root / UI / "index.html").exists()


def test_a_build_that_fails_says_why_and_what_to_do(root: Path):
    (root / "web" / "build.js").write_text(
        'console.error("\\x1b[31mpage.html: no such colour\\x1b[0m"); process.exit(1)'
    )
    with pytest.raises(RuntimeError) as failed:
        hatch_build.build_page(root)
    said = str(failed.value)
    assert said.startswith("the page could not be built: npm run build failed.")
    assert "\npage.html: no such colour\n" in said
    assert said.endswith(hatch_build.WAYS_OUT)
    assert "CUTAWAY_SKIP_UI=1" in said
    assert not hatch_build.is_fresh(root)


@pytest.mark.parametrize(
    ("version", "good"),
    [("v18.20.4", False), ("v20.18.0", False), ("v20.19.0", True), ("v21.7.3", False), ("v22.11.0", False),
     ("v22.12.0", True), ("v23.11.0", False), ("v24.0.0", True), ("v26.1.0", True), ("nonsense", False)],
)  # fmt: skip
def test_only_a_node_that_vite_runs_on_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, good: bool
):
    for name in ("node", "npm"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {version}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hatch_build.has_node() is good


def test_without_node_on_the_path_the_one_from_a_wheel_builds(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    assert not hatch_build.has_node()
    command, environment = hatch_build.find_npm()
    assert Path(command[0]).name.startswith("node")
    assert Path(command[1]).name == "npm-cli.js"
    assert Path(command[0]).parent == Path(environment["PATH"].split(":")[0])
