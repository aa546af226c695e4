"""A little translator's pair of vocabularies, as Marian's models come with."""

import json
from pathlib import Path

import sentencepiece
from tests.text.conftest import CHINESE, ENGLISH
from tests.text.spm import spm

LEFT_OUT = ["▁the", "ing"]  # pieces of a model that vocab.json does not have


def write_pair(folder: Path) -> Path:
    """English in, Chinese out; returns `folder`."""
    pieces = ["</s>", "<unk>", ">>cmn_Hans<<"]
    for name, texts, size in (("source", ENGLISH, 150), ("target", CHINESE, 220)):
        data = spm("unigram", texts=texts * 5, vocab_size=size)
        (folder / f"{name}.spm").write_bytes(data)
        model = sentencepiece.SentencePieceProcessor(model_proto=data)
        pieces += [model.id_to_piece(id) for id in range(3, model.get_piece_size())]
    kept = [piece for piece in dict.fromkeys(pieces) if piece not in LEFT_OUT]
    numbers = {piece: id for id, piece in enumerate([*kept, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(numbers), encoding="utf-8")
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder
