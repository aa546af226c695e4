"""Little SentencePiece models, trained by the sentencepiece library itself."""

import io
from typing import Any

import sentencepiece
from tests.text.conftest import TEXTS


def spm(model_type: str, texts: list[str] = TEXTS, vocab_size: int = 420, **settings: Any) -> bytes:
    """The bytes of a model file."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        model_type=model_type,
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        minloglevel=3,
        **settings,
    )
    return model.getvalue()
