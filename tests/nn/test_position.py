"""Rotary positions that are stretched for longer texts, against the papers' formulas."""

import math

import pytest
import torch

from cutaway.config import ModelConfig, RopeScaling, parse
from cutaway.errors import CutawayError
from cutaway.models.build import PRESETS, build
from cutaway.nn.position import Rotary

E, BASE = 16, 10_000.0


def plain(i: int) -> float:
    return BASE ** (-2 * i / E)


def test_linear_scaling_reads_positions_as_if_they_lay_closer() -> None:
    stretched, ordinary = Rotary(E, BASE, RopeScaling(kind="linear", factor=4.0)), Rotary(E, BASE)
    for there, here in zip(stretched.angles(torch.tensor([[8, 40]])), ordinary.angles(torch.tensor([[2, 10]])),
                           strict=True):  # fmt: skip
        torch.testing.assert_close(there, here)


def test_llama3_keeps_fast_pairs_slows_slow_ones_and_steps_smoothly_between() -> None:
    scaling = RopeScaling(
        kind="llama3", factor=8.0, original_max_len=512, low_freq_factor=1.0, high_freq_factor=4.0
    )
    got = Rotary(E, BASE, scaling).frequency.tolist()
    kinds = set()
    for i, value in enumerate(got):
        wavelength = 2 * math.pi / plain(i)
        if wavelength < 512 / 4.0:
            kind, expected = "kept", plain(i)
        elif wavelength > 512 / 1.0:
            kind, expected = "slowed", plain(i) / 8.0
        else:
            smooth = (512 / wavelength - 1.0) / (4.0 - 1.0)
            kind, expected = "between", (1 - smooth) * plain(i) / 8.0 + smooth * plain(i)
        kinds.add(kind)
        assert value == pytest.approx(expected, rel=1e-5)
    assert kinds == {"kept", "slowed", "between"}


def test_yarn_recommends_its_amplitude_and_takes_a_given_one() -> None:
    scaling = RopeScaling(kind="yarn", factor=4.0, original_max_len=64)
    cos, _ = Rotary(E, BASE, scaling).angles(torch.tensor([[0]]))
    assert cos.max().item() == pytest.approx(0.1 * math.log(4.0) + 1)
    given = RopeScaling(kind="yarn", factor=4.0, original_max_len=64, attention_factor=1.5)
    cos, _ = Rotary(E, BASE, given).angles(torch.tensor([[0]]))
    assert cos.max().item() == pytest.approx(1.5)


def test_dynamic_scaling_changes_nothing_within_the_limit() -> None:
    scaling = RopeScaling(kind="dynamic", factor=4.0)
    assert torch.equal(Rotary(E, BASE, scaling).frequency, Rotary(E, BASE).frequency)


@pytest.mark.parametrize("kind", ["linear", "llama3", "yarn"])
def test_angles_stay_exact_in_a_model_of_16_bits(kind: str) -> None:
    scaling = {"kind": kind, "factor": 4.0, "original_max_len": 64}
    values = {**PRESETS["llama-tiny"], "vocab_size": 8, "n_layers": 1, "rope_scaling": scaling}
    model = build(parse(ModelConfig, values, "config"))
    positions = torch.tensor([[0, 100, 4000]])
    rotary = model.get_submodule("decoder.rotary")
    assert isinstance(rotary, Rotary)
    before = [angle.clone() for angle in rotary.angles(positions)]
    model.bfloat16()
    for angle, exact in zip(rotary.angles(positions), before, strict=True):
        assert torch.equal(angle, exact)


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"kind": "llama3", "factor": 8.0}, "original_max_len is missing"),
        ({"kind": "linear", "factor": 0.0}, "factor is 0.0, expected a number above 0"),
        ({"kind": "longrope", "factor": 2.0}, "kind is 'longrope', expected one of linear, llama3, yarn, dynamic"),
        ({"kind": "llama3", "factor": 8.0, "original_max_len": 64, "low_freq_factor": 4.0}, "must be below"),
    ],
)  # fmt: skip
def test_a_wrong_scaling_is_named(scaling: dict[str, object], message: str) -> None:
    values = {**PRESETS["llama-tiny"], "vocab_size": 8, "rope_scaling": scaling}
    with pytest.raises(CutawayError, match=message):
        parse(ModelConfig, values, "config")
