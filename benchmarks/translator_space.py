"""Whether a translator has one space for both its languages: words of `words-en` and `words-zh`, each by itself as the
translator embeds it and as its encoder reads it, asked for their translations in CC-CEDICT.

python -m benchmarks.translator_space cedict_ts.u8.gz
"""

import sys
from pathlib import Path

import torch
from torch import Tensor

from cutaway import find, load, load_vectors, zoo
from cutaway.checkpoint.folder import Loaded
from cutaway.decode.stepping import pad_right
from cutaway.decode.translator import Translator
from cutaway.inspection.bilingual import HELD_OUT, hits, procrustes, read_dictionary
from cutaway.models.encoder_decoder import EncoderDecoder

_AT_ONCE = 512  # words


def states(loaded: Loaded, words: list[str], to: str) -> tuple[Tensor, Tensor]:
    """(V, D) twice: of each word alone the mean of its tokens' rows of the embedding table, and of what the encoder
    makes of them; zero for a word that the translator reads nothing of."""
    translator, model, end = Translator(loaded), loaded.model, loaded.config.eos_id
    assert isinstance(model, EncoderDecoder) and end is not None
    rows: list[Tensor] = []
    read: list[Tensor] = []
    for start in range(0, len(words), _AT_ONCE):
        sources = [translator.prepare(word, to=to) for word in words[start : start + _AT_ONCE]]
        ids, mask = pad_right([source.ids or [end] for source in sources], end, torch.device("cpu"))
        # neither the mark of the language nor the end is a part of the word
        own = ids != end
        own[:, 0] = False
        with torch.inference_mode():
            for found, vectors in ((rows, model.source_embed.tokens(ids)), (read, model.encode(ids, mask))):
                found.append(
                    (vectors * own[..., None]).sum(dim=1) / own.sum(dim=1, keepdim=True).clamp(min=1)
                )
    return torch.cat(rows), torch.cat(read)


def main(dictionary: Path) -> None:
    loaded = load(find(zoo.TRANSLATOR))
    en, zh = (load_vectors(find(name)) for name in ("words-en", "words-zh"))
    ours = states(loaded, en.words.words, "zh"), states(loaded, zh.words.words, "en")
    for name, sides in (("en→zh", (0, 1)), ("zh→en", (1, 0))):
        pairs = read_dictionary(dictionary, *((en, zh)[side] for side in sides))
        asked = dict([*pairs.items()][HELD_OUT - 1 :: HELD_OUT])
        learned = {word: words[0] for word, words in pairs.items() if word not in asked}
        for kind, what in enumerate(("embeddings", "encoder states")):
            sources, targets = (ours[side][kind] for side in sides)
            turn = procrustes(sources[list(learned)], targets[list(learned.values())]).float()
            for how, turned in (("as they are", sources), ("turned", sources @ turn)):
                first, fifth = hits(turned, targets, asked)
                print(f"{name}  {what}, {how}: {len(asked)} words, {first:.1%} first, {fifth:.1%} among five")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
