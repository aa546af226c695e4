"""Values declared once: what `parse` and the constructors of `checked` classes refuse, and how they say it."""

import math
from dataclasses import replace

import pytest

from cutaway.config import ModelConfig, RopeScaling, checked, key, parse, to_dict
from cutaway.errors import CutawayError
from cutaway.words import say

TINY = {"family": "decoder-only", "vocab_size": 8, "d_model": 8, "n_layers": 2, "n_heads": 2, "d_ff": 8}


@checked
class Inner:
    part: tuple[float, ...] = key(say("loss"), default=(0.5,), ge=0, lt=1)


@checked
class Outer:
    count: int = key(say("loss"), ge=1, le=9)
    name: str = key(say("loss"), default="x")
    inner: Inner = key(say("loss"), default=Inner())
    table: dict[str, float] = key(say("loss"), default_factory=dict, gt=0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "here: key 'count' is missing"),
        ({"cuont": 1}, "here: unknown key 'cuont' (did you mean 'count'?); known keys: count, name, inner, table"),
        ({"count": 0}, "here: count is 0, expected 1 to 9"),
        ({"count": True}, "here: count is True, expected a whole number"),
        ({"count": 1, "name": 3}, "here: name is 3, expected a text"),
        ({"count": 1, "name": "a\0"}, "here: name is 'a\\x00', expected a text without NUL"),
        ({"count": 1, "inner": 3}, "here: inner is 3, expected a table of keys"),
        ({"count": 1, "inner": {"par": 3}}, "here: unknown key 'inner.par' (did you mean 'part'?); known keys: part"),
        ({"count": 1, "inner": {"part": [0, 1]}}, "here: inner.part[1] is 1.0, expected at least 0, below 1"),
        ({"count": 1, "table": {"a": math.nan}}, "here: table.a is nan, expected a number above 0"),
        ({"count": 1, "table": {"a": math.inf}}, "here: table.a is inf, expected a number above 0, at most "),
        ({"count": 1, "table": {"a": 10**400}}, "here: table.a is 1000000000"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(values: dict[str, object], message: str) -> None:
    with pytest.raises(CutawayError) as error:
        parse(Outer, values, "here")
    assert str(error.value).startswith(message)


def test_a_reader_sees_the_names_they_wrote() -> None:
    with pytest.raises(CutawayError, match="x: hidden_size is -1, expected 1 to 65,536"):
        parse(ModelConfig, {**TINY, "d_model": -1}, "x", {"d_model": "hidden_size"})


def test_values_made_in_python_are_checked_too() -> None:
    with pytest.raises(CutawayError, match="count is 10, expected 1 to 9"):
        Outer(count=10)
    config = parse(ModelConfig, TINY, "x")
    with pytest.raises(CutawayError, match=r"d_model \(8\) must be a multiple of n_heads \(3\)"):
        replace(config, n_heads=3)


def test_plain_values_and_back() -> None:
    scaling = RopeScaling(kind="llama3", factor=2.0, original_max_len=64)
    config = replace(parse(ModelConfig, TINY, "x"), window=4, window_layers=(1,), rope_scaling=scaling)
    assert parse(ModelConfig, to_dict(config), "again") == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_kv_heads": 3}, r"n_heads (2) must be a multiple of n_kv_heads (3)"),
        ({"d_head": 3}, "rotary positions need an even d_head, not 3"),
        ({"d_model": 9, "d_head": 2, "position": "sinusoidal"}, "sinusoidal positions need an even d_model, not 9"),
        ({"relative_max_distance": 16}, "relative_max_distance is 16, expected more than half"),
        ({"relative_buckets": 3}, "relative_buckets is 3, expected 4 to"),
        ({"dropout": 1.0}, "dropout is 1.0, expected at least 0, below 1"),
        ({"window_layers": [0]}, "window is None and window_layers is [0]: give both or neither"),
        ({"window": 4, "window_layers": [0, 0]}, "window_layers is [0, 0], expected layer numbers 0 to 1, each once"),
        ({"dense_layers": [2]}, "dense_layers is [2], expected layer numbers 0 to 1"),
        ({"family": "encoder-only", "window": 4, "window_layers": [0]}, "window belongs to the decoder-only family"),
        ({"n_experts": 1}, "n_experts_per_token is 2, more than there are experts (n_experts is 1)"),
        ({"n_encoder_layers": 1}, "n_encoder_layers belongs to the encoder-decoder family"),
        ({"eos_id": 8}, "eos_id is 8, expected an id below vocab_size (8)"),
    ],
)  # fmt: skip
def test_the_parts_of_a_model_fit_together(changes: dict[str, object], message: str) -> None:
    with pytest.raises(CutawayError) as error:
        parse(ModelConfig, {**TINY, **changes}, "x")
    assert message in str(error.value)
