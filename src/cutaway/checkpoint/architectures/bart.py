"""BART (Lewis et al. 2020) and mBART (Liu et al. 2020): learned positions from the table's third row on, and a norm
after the embeddings; post-norm and pre-norm."""

from cutaway.checkpoint.architectures import marian
from cutaway.checkpoint.table import ROW_VECTOR, Architecture, Row

ROWS = (
    Row("final_logits_bias", "head.unembed.bias", ROW_VECTOR),
    *marian.ROWS,
    Row("model.encoder.embed_positions", "source_embed.positions"),
    Row("model.decoder.embed_positions", "target_embed.positions"),
    Row("model.encoder.layernorm_embedding", "source_embed.norm"),
    Row("model.decoder.layernorm_embedding", "target_embed.norm"),
)
FIXED: dict[str, object] = {
    **marian.FIXED, "position": "learned", "position_offset": 2, "embed_norm": True, "head_bias": True,
}  # fmt: skip

BART = Architecture(
    model_type="bart",
    class_name="BartForConditionalGeneration",
    keys=marian.KEYS,
    rows=ROWS,
    fixed={**FIXED, "norm_order": "post"},
    constants=marian.CONSTANTS,
    written=marian.WRITTEN,
    zero_if_absent=marian.ZERO,
    prefix="model.",
)

MBART = Architecture(
    model_type="mbart",
    class_name="MBartForConditionalGeneration",
    keys=marian.KEYS,
    rows=(
        *ROWS,
        Row("model.encoder.layer_norm", "encoder.norm"),
        Row("model.decoder.layer_norm", "decoder.norm"),
    ),
    fixed={**FIXED, "norm_order": "pre"},
    constants=marian.CONSTANTS,
    written=marian.WRITTEN,
    zero_if_absent=marian.ZERO,
    prefix="model.",
)
