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
    from cutaway.decode.conversation import Conversation, Message
    from cutaway.decode.generation import generate, stream
    from cutaway.decode.sampling import Sampling
    from cutaway.decode.search import LengthPenalty, Limits, Search
    from cutaway.decode.sentence_vectors import Embeddings, embed
    from cutaway.decode.stepping import Generated
    from cutaway.decode.translator import Translation, Translator
    from cutaway.errors import CutawayError
    from cutaway.inspection.questions.anatomy import Anatomy, anatomy
    from cutaway.models.build import build
    from cutaway.tap import TAPS, Trace
    from cutaway.text.tokenizer import Encoding, Tokenizer
    from cutaway.zoo import bundled, find

__version__ = "0.1.0"

_HOME = {
    "Anatomy": "cutaway.inspection.questions.anatomy",
    "Conversation": "cutaway.decode.conversation",
    "CutawayError": "cutaway.errors",
    "Embeddings": "cutaway.decode.sentence_vectors",
    "Encoding": "cutaway.text.tokenizer",
    "Generated": "cutaway.decode.stepping",
    "LengthPenalty": "cutaway.decode.search",
    "Limits": "cutaway.decode.search",
    "Loaded": "cutaway.checkpoint.folder",
    "Message": "cutaway.decode.conversation",
    "ModelConfig": "cutaway.config",
    "Sampling": "cutaway.decode.sampling",
    "Search": "cutaway.decode.search",
    "TAPS": "cutaway.tap",
    "Tokenizer": "cutaway.text.tokenizer",
    "Trace": "cutaway.tap",
    "Translation": "cutaway.decode.translator",
    "Translator": "cutaway.decode.translator",
    "anatomy": "cutaway.inspection.questions.anatomy",
    "beam_search": "cutaway.decode.beam",
    "build": "cutaway.models.build",
    "bundled": "cutaway.zoo",
    "embed": "cutaway.decode.sentence_vectors",
    "find": "cutaway.zoo",
    "generate": "cutaway.decode.generation",
    "load": "cutaway.checkpoint.folder",
    "save": "cutaway.checkpoint.folder",
    "stream": "cutaway.decode.generation",
}

__all__ = [
    "TAPS",
    "Anatomy",
    "Conversation",
    "CutawayError",
    "Embeddings",
    "Encoding",
    "Generated",
    "LengthPenalty",
    "Limits",
    "Loaded",
    "Message",
    "ModelConfig",
    "Sampling",
    "Search",
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
