"""The rules of the house: who may import whom, how files are called and how long they are, what is bundled."""

import ast
import io
import json
import re
import resource
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import cutaway

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "cutaway"
MODULES = sorted(PACKAGE.rglob("*.py"))
PYTHON = [path for folder in ("src", "tests", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]
TEXT = PYTHON + [
    path
    for pattern in (
        "*.md",
        "*.toml",
        "*.txt",
        "Makefile",
        ".ci/*",
        "docs/**/*.md",
        "recipes/*",
        "src/**/*.md",
    )
    for path in sorted(ROOT.glob(pattern))
    if path.is_file()
]

# A part imports only parts of lower rank, and itself.
RANKS = (
    {"errors"},
    {"config", "files"},
    {"text"},
    {"tap", "page"},
    {"nn"},
    {"models"},
    {"checkpoint", "zoo"},
    {"decode"},
    {"inspection", "train"},
    {"serve"},
    {"cli"},
)
RANK = {part: rank for rank, parts in enumerate(RANKS) for part in parts}
NEVER = {
    ("tap", "text"),
    ("nn", "text"),
    ("models", "text"),
    ("nn", "page"),
    ("models", "page"),
}  # what rank alone would allow
FORBIDDEN_NAMES = {"util", "utils", "helper", "helpers", "common", "misc"}
MEGABYTE = 1_000_000


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full module name of every import in a file, also those inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            assert node.level == 0, f"{path}:{node.lineno}: relative import; write the full module name"
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def part(path: Path) -> str:
    """The part of the package that a file belongs to: its folder, or its own name at the top."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def comments(path: Path) -> Iterator[tuple[int, str]]:
    source = io.StringIO(path.read_text(encoding="utf-8"))
    for token in tokenize.generate_tokens(source.readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def test_every_part_has_a_rank():
    assert {part(path) for path in MODULES} - {"__init__", "__main__"} <= RANK.keys()


def test_imports_point_one_way():
    wrong = []
    for path in MODULES:
        here = part(path)
        if here.startswith("__"):  # the package's own door may lead anywhere
            continue
        for line, module in imports(path):
            names = module.split(".")
            if names[0] != "cutaway" or len(names) < 2 or names[1] == here or names[1] not in RANK:
                continue
            if RANK[names[1]] >= RANK[here] or (here, names[1]) in NEVER:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {here} imports {module}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("parts", "forbidden"),
    [
        ({"text", "page", "config", "errors", "zoo"}, "torch.nn"),
        ({"nn", "models", "decode", "train", "inspection", "page"}, "typer"),
        (set(RANK) - {"serve"}, "pydantic"),
        (set(RANK), "transformers"),
        (set(RANK), "pickle"),
    ],
)
def test_parts_keep_away_from(parts: set[str], forbidden: str):
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: imports {module}"
        for path in MODULES
        if part(path) in parts
        for line, module in imports(path)
        if module == forbidden or module.startswith(f"{forbidden}.")
    ]
    assert not wrong, "\n".join(wrong)


def test_command_modules_import_heavy_things_only_inside_functions():
    heavy = {"torch", "numpy", "tokenizers", "sacrebleu", "safetensors", "opencc"}
    light = {"cutaway.errors", "cutaway.zoo", "cutaway.cli", "cutaway.page.locale", "cutaway.text.display",
             "cutaway.text.tokens.plan"}  # fmt: skip
    wrong = []
    for path in sorted((PACKAGE / "cli").glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in modules:
                ours = module.startswith("cutaway.") and not any(
                    module == name or module.startswith(f"{name}.") for name in light
                )
                if module.split(".")[0] in heavy or ours:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {module}")
    assert not wrong, "\n".join(wrong)


def test_names_say_what_they_are():
    assert not [path for path in PYTHON if {path.stem, *path.relative_to(ROOT).parts[:-1]} & FORBIDDEN_NAMES]


def test_files_stay_short():
    lengths = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert not {str(path): lines for path, lines in lengths.items() if lines > 320}


def test_nothing_is_suppressed_or_left_undone():
    marks = re.compile(r"type:\s*ignore|pyright:|\bnoqa\b|\bTODO\b|\bFIXME\b|\bXXX\b", re.IGNORECASE)
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {comment}"
        for path in PYTHON
        for line, comment in comments(path)
        if marks.search(comment)
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_is_left_unimplemented():
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name) and node.id == NotImplementedError.__name__
    ]
    assert not wrong, "\n".join(wrong)


def test_no_file_names_a_place_of_one_machine():
    places = re.compile(r"(?<![\w.])/(?:work|root|home/\w+)/|\.librar" + "y")
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in TEXT
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if places.search(line)
    ]
    assert not wrong, "\n".join(wrong)


def test_bundled_models_are_small_and_have_a_card():
    for config in sorted((PACKAGE / "zoo").glob("*/config.json")):
        folder = config.parent
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        translator = json.loads(config.read_text(encoding="utf-8")).get("is_encoder_decoder", False)
        assert size <= (30 if translator else 15) * MEGABYTE, f"{folder.name}: {size / MEGABYTE:.1f} MB"
        card = (folder / "README.md").read_text(encoding="utf-8")
        for heading in ("Data", "Licence", "Recipe", "Scores", "Limits"):
            assert re.search(rf"^## {heading}", card, re.MULTILINE), (
                f"{folder.name}/README.md lacks ## {heading}"
            )


def test_public_names_resolve_and_are_the_declared_ones():
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    checking = next(node for node in tree.body if isinstance(node, ast.If))
    declared = {
        alias.name: node.module
        for node in checking.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(cutaway.__all__) == set(declared)
    for name, module in declared.items():
        value = getattr(cutaway, name)
        assert value is getattr(sys.modules[module or ""], name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = cutaway.nonsense


def test_help_is_quick_and_loads_no_model_library():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "cutaway", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "translate" in run.stdout
    loaded = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in run.stderr.splitlines()}
    assert "typer" in loaded
    assert not loaded & {"torch", "transformers", "numpy", "tokenizers", "sacrebleu"}
    # Processor time, not the clock, so that a busy machine does not decide; importtime makes it a little worse.
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < 0.3, f"cutaway --help took {spent:.2f} s"
