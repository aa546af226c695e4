"""Questions about a model, answered by its structure or by a Trace over its one forward path.

    from cutaway.inspection import align, explain, lens, run

A question is found by the name of its file in `questions`; what else can be imported from here stands in
`__init__.pyi`. The module behind a name is loaded when the name is first used.
"""

from importlib import import_module
from pathlib import Path

import lazy_loader

_library, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if (Path(__file__).parent / "questions" / f"{name}.py").is_file():
        return getattr(import_module(f"{__name__}.questions.{name}"), name)
    return _library(name)
