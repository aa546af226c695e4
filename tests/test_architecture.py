"""The rules of the house: who may import whom, how files are called and how long they are, what is bundled."""

import ast
import graphlib
import io
import json
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.limits import takes_less_than

import cutaway
from cutaway import inspection
from cutaway.inspection.question import find_question, names

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
    {"words"},
    {"errors"},
    {"glossary", "config", "files"},
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
# Inside a room the same holds: a file imports only files of lower floors. A name is a file's or a folder's; what is in
# no list stands on the floor "*", among others of its kind. A name with a dot is that of a file in a folder whose files
# stand on several floors.
FLOORS: dict[str, tuple[set[str], ...]] = {
    "text": (
        {"corpus", "display"},
        {"tokens.encoding", "tokens.plan", "tokens.tokenizer_json"},
        {"tokens.byte_level", "tokens.learning", "tokens.sentencepiece_model"},
        {"tokens.cutting", "tokens.sentencepiece_ids", "tokens.vocabulary"},
        {"tokens.vocabulary_files"},
        {"tokens.tokenizer"},
        {"tokens.gguf_vocabulary", "tokens.named_token"},
        {"*"},
        {"batches", "chat"},
    ),
    "checkpoint": (
        {"gguf_names", "stored", "table"},
        {"config_keys", "gguf_file", "parameters", "weights"},
        {"architectures"},
        {"gguf_model", "published"},
        {"*"},
        {"folder"},
    ),
    "inspection": (
        {"options", "terms", "wiring"},
        {"sentences"},
        {"runs"},
        {"outcome", "patterns", "vectors", "word_alignment", "model_size", "weight_matrices"},
        {"*"},
        {"changes", "arithmetic"},
        {"question"},
        {"questions"},
        {"answers"},
        {"saving"},
    ),
    "page": (
        {"blocks", "wrapping"},
        {"colours", "numbers", "elements"},
        {"*"},
        {"console", "figures"},
        {"html"},
        {"drawn"},
    ),
    "decode": (
        {"sampling", "sentence_settings"},
        {"search"},
        {"stepping"},
        {"beam", "score"},
        {"generation"},
        {"text_model"},
        {"*"},
    ),
    "serve": (
        {"*"},
        {"wire", "vocabulary"},
        {"engine"},
        {"answering", "guard"},
        {"app"},
        {"server"},
        {"notebook"},
    ),
    "train": (
        {"recipe", "machine", "objective", "state"},
        {"optimizer", "validation"},
        {"progress"},
        {"*"},
        {"run"},
    ),
}
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
        # the package's own door may lead anywhere
        if here.startswith("__"):
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
    light = {"cutaway.errors", "cutaway.words", "cutaway.zoo", "cutaway.cli", "cutaway.text.display",
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


def inside(room: str) -> dict[str, set[str]]:
    """Every module of a part of the package, with the modules of that part that it imports, whatever for: an import for
    type checkers alone, or inside a function, hides a circle and opens none."""
    prefix = f"cutaway.{room}."
    modules = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
        for path in MODULES
        if part(path) == room and path.stem != "__init__"
    }
    return {
        name.removeprefix(prefix): {
            other.removeprefix(prefix) for _, other in imports(path) if other in modules and other != name
        }
        for name, path in modules.items()
    }


@pytest.mark.parametrize(
    "room", sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())
)
def test_no_circles_inside_a_room(room: str):
    # raises CycleError with the circle
    graphlib.TopologicalSorter(inside(room)).prepare()


@pytest.mark.parametrize("room", FLOORS)
def test_imports_inside_a_room_point_down(room: str):
    floors = {name: number for number, names in enumerate(FLOORS[room]) for name in names}
    unknown = floors["*"]

    def floor(module: str) -> int:
        return floors.get(module, floors.get(module.split(".")[0], unknown))

    wrong = [
        f"{room}: {module} imports {other}"
        for module, others in inside(room).items()
        for other in others
        if floor(other) > floor(module)
    ]
    assert not wrong, "\n".join(wrong)


PAGE = "# Its page."
# Where numbers are worked out. A page may name their types, in annotations, and calls nothing of theirs.
WORKS_OUT = {
    "torch",
    *(f"cutaway.{room}" for room in ("nn", "models", "tap", "checkpoint", "decode", "train")),
    *(
        f"cutaway.inspection.{module}"
        for module in ("runs", "outcome", "frozen_path", "input_gradients", "source_effect", "word_alignment")
    ),
}


def works_out(module: str) -> bool:
    return any(module == each or module.startswith(f"{each}.") for each in WORKS_OUT)


def names_outside_annotations(tree: ast.AST) -> Iterator[ast.Name]:
    annotations = {
        id(name)
        for node in ast.walk(tree)
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if isinstance(annotation, ast.AST)
        for name in ast.walk(annotation)
    }
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in annotations)


def test_pages_compute_nothing():
    """What lays an answer out reads the answer: below the line where a question's page begins nothing is used that was
    imported from where numbers are worked out, nor the question's own function; the rooms of the page know no torch."""
    wrong = []
    for path in sorted((PACKAGE / "inspection" / "questions").glob("[!_]*.py")):
        source = path.read_text(encoding="utf-8")
        assert source.count(f"\n{PAGE}\n") == 1, f"{path.name} says where its page begins: {PAGE}"
        begins = source[: source.index(f"\n{PAGE}\n")].count("\n") + 1
        tree = ast.parse(source)
        origin = {path.stem: "the question itself"}
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and works_out(node.module or ""):
                origin |= {each.asname or each.name: node.module or "" for each in node.names}
            elif isinstance(node, ast.Import):
                origin |= {
                    each.asname or each.name.split(".")[0]: each.name
                    for each in node.names
                    if works_out(each.name)
                }
        for node in (each for each in tree.body if each.lineno > begins):
            own = {
                name.id
                for name in ast.walk(node)
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            }
            wrong += [
                f"{path.relative_to(ROOT)}:{name.lineno}: the page uses {name.id} of {origin[name.id]}"
                for name in names_outside_annotations(node)
                if name.id in origin and name.id not in own
            ]
    wrong += [
        f"{path.relative_to(ROOT)}:{line}: imports {module}"
        for path in MODULES
        if part(path) == "page"
        for line, module in imports(path)
        if module.split(".")[0] == "torch"
    ]
    assert not wrong, "\n".join(wrong)


def test_a_question_is_one_file_of_its_name():
    for name in names():
        assert find_question(name).name == name
        assert (ROOT / "tests" / "inspection" / "questions" / f"test_{name}.py").exists(), name


def test_nothing_is_suppressed_or_left_undone():
    marks = re.compile(r"type:\s*ignore|pyright:|\bnoqa\b|\bTODO\b|\bFIXME\b|\bXXX\b", re.IGNORECASE)
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {comment}"
        for path in PYTHON
        for line, comment in comments(path)
        if marks.search(comment)
    ]
    assert not wrong, "\n".join(wrong)


def test_reasons_stand_above_the_line():
    """At the end of a line a comment may say what a field, a constant or an entry is, and a shape."""
    wrong = []
    for path in PYTHON:
        source = path.read_text(encoding="utf-8")
        lines, assigned = source.splitlines(), set[int]()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
                assigned |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        wrong += [
            f"{path.relative_to(ROOT)}:{line}: {comment}"
            for line, comment in comments(path)
            if line not in assigned
            and not comment.startswith(("# (", "# fmt:"))
            and not lines[line - 1].lstrip().startswith("#")
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


@pytest.mark.parametrize("package", [cutaway, inspection], ids=["cutaway", "cutaway.inspection"])
def test_public_names_resolve(package: ModuleType):
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = package.nonsense


def test_help_is_quick_and_loads_no_model_library():
    command = [sys.executable, "-m", "cutaway", "--help"]
    with takes_less_than(0.3):
        assert "translate" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    command[1:1] = ["-X", "importtime"]
    imports = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    loaded = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in imports.splitlines()}
    assert "typer" in loaded
    assert not loaded & {"torch", "transformers", "numpy", "tokenizers", "sacrebleu"}
