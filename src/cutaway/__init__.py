"""cutaway: train, run and see inside Transformers.

Every public name can be imported from here; the module behind it is loaded when the name is first used, so that
`import cutaway` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutaway.checkpoint.folder import Loaded, load, save
    from cutaway.config import ModelConfig
    from cutaway.decode.beam import beam_search
    from cutaway.decode.chat import Conversation, Message
    from cutaway.decode.embed import Embeddings, embed
    from cutaway.decode.generate import Generated, Limits, generate, stream
    from cutaway.decode.sampling import Sampling
    from cutaway.decode.translate import Translation, Translator
    from cutaway.errors import CutawayError
    from cutaway.inspection.structure.anatomy import Anatomy, anatomy
    from cutaway.models.build import build
    from cutaway.tap import TAPS, Trace
    from cutaway.text.tokens.tokenizer import Encoding, Tokenizer
    from cutaway.zoo import bundled, find

__version__ = "0.1.0"

_HOME = {
    "Anatomy": "cutaway.inspection.structure.anatomy",
    "Conversation": "cutaway.decode.chat",
    "CutawayError": "cutaway.errors",
    "Embeddings": "cutaway.decode.embed",
    "Encoding": "cutaway.text.tokens.tokenizer",
    "Generated": "cutaway.decode.generate",
    "Limits": "cutaway.decode.generate",
    "Loaded": "cutaway.checkpoint.folder",
    "Message": "cutaway.decode.chat",
    "ModelConfig": "cutaway.config",
    "Sampling": "cutaway.decode.sampling",
    "TAPS": "cutaway.tap",
    "Tokenizer": "cutaway.text.tokens.tokenizer",
    "Trace": "cutaway.tap",
    "Translation": "cutaway.decode.translate",
    "Translator": "cutaway.decode.translate",
    "anatomy": "cutaway.inspection.structure.anatomy",
    "beam_search": "cutaway.decode.beam",
    "build": "cutaway.models.build",
    "bundled": "cutaway.zoo",
    "embed": "cutaway.decode.embed",
    "find": "cutaway.zoo",
    "generate": "cutaway.decode.generate",
    "load": "cutaway.checkpoint.folder",
    "save": "cutaway.checkpoint.folder",
    "stream": "cutaway.decode.generate",
}

__all__ = [
    "TAPS",
    "Anatomy",
    "Conversation",
    "CutawayError",
    "Embeddings",
    "Encoding",
    "Generated",
    "Limits",
    "Loaded",
    "Message",
    "ModelConfig",
    "Sampling",
    "Tokenizer",
    "Trace",
    "Translation",
    "Translator",
    "anatomy",
    "beam_search",
    "build",
    "bundled",
    "embed",
    "find",
    "generate",
    "load",
    "save",
    "stream",
]


def __getattr__(name: str) -> object:
    if name in _HOME:
        value: object = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'cutaway' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
