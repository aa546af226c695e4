"""What a model's files say of how it writes: the keys of generation_config.json, which older models have in
config.json.

The names, their meaning and what is left out where a file has none are those of transformers' `GenerationConfig`.
"""

from collections.abc import Callable, Mapping

Fits = Callable[[object], bool]


def _whole(least: int) -> Fits:
    return lambda value: type(value) is int and value >= least


def _number(least: float, most: float) -> Fits:
    def fits(value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most

    return fits


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _id(value: object) -> bool:
    return type(value) is int and value >= 0


def _ids(value: object) -> bool:
    return isinstance(value, list) and all(map(_id, value))


# What decoding has, with the values that it can follow.
KEYS: Mapping[str, Fits] = {
    "num_beams": _whole(1),
    "length_penalty": _number(-10, 10),
    "do_sample": _flag,
    "temperature": _number(0, 1e9),
    "top_k": _whole(0),
    "top_p": _number(0, 1),
    "min_p": _number(0, 1),
    "repetition_penalty": _number(1e-9, 1e9),
    "no_repeat_ngram_size": _whole(0),
    "suppress_tokens": _ids,
    "begin_suppress_tokens": _ids,
    "bad_words_ids": lambda value: isinstance(value, list) and all(_ids(word) and word for word in value),
    "forced_bos_token_id": _id,
    "forced_eos_token_id": lambda value: _id(value) or (_ids(value) and bool(value)),
    "max_length": _whole(1),
    "max_new_tokens": _whole(0),
    "min_length": _whole(0),
    "min_new_tokens": _whole(0),
}

# What it does not have and what would change a result, with the values that leave it alone. An early stop that is
# false or "never" is how a beam search here ends: when nothing better can come.
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "early_stopping": (False, "never"),
    "num_beam_groups": (1,),
    "diversity_penalty": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,),
    "exponential_decay_length_penalty": (),
    "sequence_bias": (),
    "guidance_scale": (1,),
    "renormalize_logits": (False,),
    "penalty_alpha": (0,),
    "dola_layers": (),
    "constraints": (),
    "force_words_ids": (),
    "forced_decoder_ids": (),
    "stop_strings": (),
    "max_time": (),
    "token_healing": (False,),
    "watermarking_config": (),
}
# The same, of what is drawn only.
NEUTRAL_DRAWN: Mapping[str, tuple[object, ...]] = {
    "typical_p": (1,),
    "top_h": (1,),
    "epsilon_cutoff": (0, 1),
    "eta_cutoff": (0, 1),
}


def with_older(generation: Mapping[str, object], config: Mapping[str, object]) -> dict[str, object]:
    """What generation_config.json says, and what config.json alone says of the same things."""
    known = {*KEYS, *NEUTRAL, *NEUTRAL_DRAWN}
    older = {key: value for key, value in config.items() if key in known and value is not None}
    return {**older, **generation}
