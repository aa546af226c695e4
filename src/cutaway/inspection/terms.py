"""Words that many pages use, once in each language."""

from collections.abc import Sequence

from cutaway.page.blocks import Column
from cutaway.words import Phrase, Text, say

TOKEN = say("token")
TOKENS = say("tokens")
SOURCE = say("source")
TARGET = say("target")
QUERY = say("query")
KEY = say("key")
WEIGHT = say("weight")
LAYER = say("layer")
HEAD = say("head")
PROBABILITY = say("probability")
NATS = say("nats")
READS_WRITES = say("reads → writes")
SIDES = {"encoder": say("encoder"), "decoder": say("decoder"), "cross": say("cross")}
FAMILIES = {
    "encoder-decoder": say("encoder-decoder"),
    "decoder-only": say("decoder-only"),
    "encoder-only": say("encoder-only"),
    "word2vec": say("word vectors"),
}
ATTENTIONS = {
    "encoder": say("encoder self-attention"),
    "decoder": say("decoder self-attention"),
    "cross": say("cross-attention"),
    "self": say("self-attention"),
}


def left(title: Phrase | str) -> Column:
    return Column(title)


def right(title: Phrase | str) -> Column:
    return Column(title, "right")


def one_head(title: Text, layers: Sequence[int], heads: Sequence[int]) -> Text:
    """A title with layer and head, where there is only one."""
    if len(layers) != 1 or len(heads) != 1:
        return title
    return say("{title}, layer {layer}, head {head}", title=title, layer=layers[0], head=heads[0])
