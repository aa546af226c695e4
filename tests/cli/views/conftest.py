"""A tiny model without output head."""

from pathlib import Path

import pytest
from tests.command import LINES, saved

from cutaway import Tokenizer


@pytest.fixture(scope="session")
def headless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = Tokenizer.train(LINES, "wordpiece", 250, template="[CLS] $A [SEP]")
    return saved(
        tmp_path_factory.mktemp("headless"),
        tokenizer,
        {"family": "encoder-only", "norm_order": "post", "position": "learned", "activation": "gelu",
         "embed_norm": True, "n_segments": 2, "head": "none", "max_len": 32,
         "pad_id": tokenizer.require("pad")},
    )  # fmt: skip
