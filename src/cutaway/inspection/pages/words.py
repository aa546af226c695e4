"""Words that many pages use, once in each language."""

from cutaway.page.blocks import Column
from cutaway.page.locale import Both

TOKEN = Both("token", "词块")
SOURCE = Both("source", "原文")
TARGET = Both("target", "译文")
QUERY = Both("query", "查询")
KEY = Both("key", "键")
WEIGHT = Both("weight", "权重")
LAYER = Both("layer", "层")
HEAD = Both("head", "头")
PROBABILITY = Both("probability", "概率")
NATS = Both("nats", "奈特")
SIDES = {
    "encoder": Both("encoder", "编码器"),
    "decoder": Both("decoder", "解码器"),
    "cross": Both("cross", "交叉"),
}
FAMILIES = {
    "encoder-decoder": Both("encoder-decoder", "编码器-解码器"),
    "decoder-only": Both("decoder-only", "仅解码器"),
    "encoder-only": Both("encoder-only", "仅编码器"),
}
ATTENTIONS = {
    "encoder": Both("encoder self-attention", "编码器自注意力"),
    "decoder": Both("decoder self-attention", "解码器自注意力"),
    "cross": Both("cross-attention", "交叉注意力"),
}


def left(title: Both | str) -> Column:
    return Column(title)


def right(title: Both | str) -> Column:
    return Column(title, "right")
