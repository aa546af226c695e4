"""A model's config drawn as boxes: the sublayers of its blocks, each with its norm, from the ids at the bottom up."""

from collections.abc import Sequence

from cutaway.config import ModelConfig
from cutaway.inspection.wiring import stepped
from cutaway.page.blocks import Box, Diagram, Tower
from cutaway.words import Text, listed, say

ACTIVATIONS = {"relu": "ReLU", "gelu": "GELU", "gelu_tanh": "GELU tanh", "silu": "SiLU"}
NORMS = {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm", "rmsnorm1p": "RMSNorm"}


def diagram(config: ModelConfig) -> Diagram:
    """The model as boxes, ids at the bottom."""
    norm = _norm(config)
    final = [Box([norm], "norm")] if config.has_final_norm else []
    head, below = _head(config), [_input(config)]
    top = say("vectors") if config.head == "none" else say("logits")
    if config.family != "encoder-decoder":
        blocks = _blocks(config, causal=config.family == "decoder-only", cross=False)
        return Diagram([Tower(top, [*head, *final], blocks, config.n_layers, below, say("ids"))])
    source = config.encoder_side
    encoder = _blocks(source, causal=False, cross=False)
    decoder = _blocks(config, causal=True, cross=True)
    return Diagram(
        [
            Tower("", final, encoder, config.encoder_layers, [_input(source)], say("source ids")),
            Tower(top, [*head, *final], decoder, config.n_layers, below, say("target ids")),
        ],
        say("memory"),
        enters=1,
    )


def _norm(config: ModelConfig) -> Text:
    name = NORMS[config.norm]
    return say("{norm}, 1 + weight", norm=name) if config.norm == "rmsnorm1p" else name


def _head(config: ModelConfig) -> list[Box]:
    if config.head == "none":
        return []
    linear = say("Linear {d:,} → {vocabulary:,}", d=config.d_model, vocabulary=config.vocab_size)
    extras: list[Text] = [linear]
    extras += [say("tied")] if config.tied else []
    extras += [say("bias")] if config.head_bias else []
    extras += [f"×{config.logit_scale:.4g}"] if config.logit_scale != 1.0 else []
    if config.logit_softcap is not None:
        extras.append(say("soft cap ±{cap:g}", cap=config.logit_softcap))
    lines: list[Text] = [listed(extras)]
    if config.head == "masked":
        activation = ACTIVATIONS[config.head_activation or config.activation]
        dense = say("Linear {d:,}, {activation}", d=config.d_model, activation=activation)
        lines += [_norm(config), dense]
    return [Box(lines, "head")]


def _input(config: ModelConfig) -> Box:
    lines: list[Text] = [_norm(config)] if config.embed_norm else []
    lines += [say("+ {n} segments", n=config.n_segments)] if config.n_segments else []
    lines += [say("+ learned positions")] if "learned" in config.position else []
    lines += [say("+ sinusoidal positions")] if config.position == "sinusoidal" else []
    table = say("Embedding {vocabulary:,}×{d:,}", vocabulary=config.vocab_size, d=config.d_model)
    scaled = listed([table, f"×{config.embed_scale:.4g}"])
    return Box([*lines, table if config.embed_scale == 1.0 else scaled], "embedding")


def _blocks(config: ModelConfig, causal: bool, cross: bool) -> list[Box]:
    """The sublayers of a block from top to bottom, each with its norm where that stands."""
    self_attention = say("Causal self-attention") if causal else say("Self-attention")
    boxes = [_feed_forward(config)]
    boxes += [_attention(config, say("Cross-attention"), ())] if cross else []
    boxes.append(_attention(config, self_attention, _positions(config)))
    norm = _norm(config)
    if config.norm_order == "post":
        return [Box([say("Add & {norm}", norm=norm), *box.lines], box.kind) for box in boxes]
    after = [norm] if config.norm_order == "sandwich" else []
    return [Box([say("Add"), *after, *box.lines, norm], box.kind) for box in boxes]


def _attention(config: ModelConfig, title: Text, positions: Sequence[Text]) -> Box:
    details: list[Text] = []
    if config.kv_heads != config.n_heads:
        details.append(say("key/value heads: {n}", n=config.kv_heads))
    details += positions
    if config.qk_norm:
        details.append(say("{norm} of queries and keys", norm=_norm(config)))
    if config.attn_scale is not None and config.attn_scale != config.head_width**-0.5:
        scaled = say("scores ×{scale:.4g}", scale=config.attn_scale)
        details.append(say("scores not scaled") if config.attn_scale == 1.0 else scaled)
    if config.attn_softcap is not None:
        details.append(say("soft cap ±{cap:g}", cap=config.attn_softcap))
    size = f"{config.n_heads}×{config.head_width}"
    first = say("{title} {size}", title=title, size=size)
    return Box([first, *(say("· {detail}", detail=each) for each in details)], "attention")


def _positions(config: ModelConfig) -> list[Text]:
    """What self-attention alone knows of positions."""
    found: list[Text] = []
    if config.position == "rotary":
        parts: list[Text] = [say("rotary, base {base:,.0f}", base=config.rope_base)]
        if config.rope_scaling is not None:
            parts.append(f"{config.rope_scaling.kind} ×{config.rope_scaling.factor:g}")
        found.append(listed(parts))
    elif "relative" in config.position:
        found.append(say("relative position bias"))
    elif config.position == "alibi":
        found.append(say("ALiBi position bias"))
    if config.window is not None:
        window: list[Text] = [say("window {n:,}", n=config.window)]
        if len(config.window_layers) != config.n_layers:
            some = stepped(config.window_layers)
            window = [say("window {n:,} in layers {layers}", n=config.window, layers=some)]
        if config.rope_local_base is not None:
            window.append(say("base {base:,.0f}", base=config.rope_local_base))
        found.append(listed(window))
    return found


def _feed_forward(config: ModelConfig) -> Box:
    plain = say("Feed-forward {width:,}", width=config.d_ff)
    activation = ACTIVATIONS[config.activation]
    how = say("gated {activation}", activation=activation) if config.gated else activation
    if not config.n_experts:
        return Box([listed([plain, how])], "feed-forward")
    chosen, of = config.n_experts_per_token, config.n_experts
    details: list[Text] = [say("each {width:,}, {how}", width=config.expert_width, how=how)]
    if not config.experts_renormalised:
        details.append(say("weights as the router has them"))
    if config.dense_layers:
        details.append(say("layers {layers}: {plain}", layers=stepped(config.dense_layers), plain=plain))
    first = say("Experts, {chosen} of {of} a token", chosen=chosen, of=of)
    return Box([first, *(say("· {detail}", detail=each) for each in details)], "feed-forward")
