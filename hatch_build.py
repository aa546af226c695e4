"""What is made when the package is built, also for `pip install --editable .`: the catalogues that gettext reads."""

from pathlib import Path
from typing import Any

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


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


class Catalogues(BuildHookInterface[Any]):
    """Part of every build; the compiled files go into the wheel although git ignores them."""

    PLUGIN_NAME = "catalogues"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        build_data["artifacts"] += [
            f"/{path.relative_to(root).as_posix()}" for path in compile_catalogues(root)
        ]


if __name__ == "__main__":
    compile_catalogues(Path(__file__).parent)
