"""cutaway: train, run and see inside Transformers.

Every public name stands in `__init__.pyi` and can be imported from here; the module behind it is loaded when the
name is first used, so that `import cutaway` costs nothing.
"""

import sys

# `python -m cutaway` looks for modules in the working folder first, and that may be a stranger's.
if sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)] == "cutaway" and not sys.flags.safe_path:
    del sys.path[0]

import lazy_loader

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
