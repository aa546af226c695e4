"""RoBERTa (Liu et al. 2019): BERT whose position table begins with the rows up to pad_id, which no token takes."""

from collections.abc import Mapping

from cutaway.checkpoint.architectures import bert
from cutaway.checkpoint.table import Architecture, Key, Row, Value
from cutaway.config import ModelConfig

PAD = 1  # the default of RobertaConfig


def _offset(pad: Value, _: Mapping[str, Value]) -> Value:
    return pad + 1 if isinstance(pad, int) else 0  # a wrong pad_token_id is named under its own key


def _length(rows: Value, theirs: Mapping[str, Value]) -> Value:
    pad = theirs.get("pad_token_id", PAD)
    if not isinstance(rows, int) or not isinstance(pad, int):
        raise TypeError(rows)
    if rows <= pad + 1:
        raise ValueError(f"{rows} rows, of which the first {pad + 1} stand for no position")
    return rows - pad - 1


def _positions_agree(config: ModelConfig) -> bool:
    return config.pad_id is not None and config.position_offset == config.pad_id + 1 and config.n_segments > 0


ROBERTA = Architecture(
    model_type="roberta",
    class_name="RobertaForMaskedLM",
    keys=(
        *bert.keys(pad=PAD, bos=0, eos=2),
        Key("max_position_embeddings", "max_len", 512, read=_length,
            write=lambda _, config: config.max_len + config.position_offset),
        Key("pad_token_id", "position_offset", PAD, read=_offset, write=lambda _, config: config.pad_id),
    ),
    rows=(
        *bert.body_rows("roberta."),
        Row("lm_head.bias", "head.unembed.bias"),
        Row("lm_head.decoder", "head.unembed"),
        Row("lm_head.dense", "head.dense"),
        Row("lm_head.layer_norm", "head.norm"),
    ),
    fixed=bert.FIXED,
    # The reference's head applies GELU whatever the activation of the blocks is.
    constants={"tie_word_embeddings": True, "is_decoder": False, "hidden_act": "gelu"},
    written={"attention_probs_dropout_prob": 0.0},
    fits=_positions_agree,
    ignored=(r"roberta\.embeddings\.position_ids", r"roberta\.pooler\..*"),
    base_class="RobertaModel",
    prefix="roberta.",
)  # fmt: skip
