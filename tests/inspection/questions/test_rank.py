"""A run with a matrix of low rank is that of a model whose weights were replaced."""

import copy
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese
from tests.command import Run as Command
from tests.inspection.tiny import attention, opened, sides, tiny, tiny_run
from tests.test_tap import FAMILIES
from torch import Tensor

from cutaway.checkpoint.folder import load
from cutaway.errors import CutawayError
from cutaway.inspection.questions.rank import LowRank, rank
from cutaway.inspection.runs import run
from cutaway.inspection.weight_matrices import w_ov, w_qk
from cutaway.models.build import Model
from cutaway.models.encoder_only import EncoderOnly
from cutaway.page.blocks import Matrix
from cutaway.zoo import TRANSLATOR, find

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("masked", "今天[MASK]好。", {"parameter": "encoder.layers.0.mlp.up.weight", "ranks": [0, 3]}),
]


def weights(model: Model) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def check_against(before: Tensor, after: Tensor, found: LowRank) -> None:
    """Divergence and argmax from the logits of two models, in plain Python."""
    for row, other, kl in zip(before.tolist(), after.tolist(), found.kl.tolist(), strict=True):
        p, q = (
            np.exp(np.array(row) - np.logaddexp.reduce(row)),
            np.exp(np.array(other) - np.logaddexp.reduce(other)),
        )
        assert kl == pytest.approx(float((p * np.log(p / q)).sum()), rel=1e-3, abs=1e-5)
    pairs = list(zip(before.argmax(-1).tolist(), after.argmax(-1).tolist(), strict=True))
    assert [(each.position, each.before, each.after) for each in found.changed] == [
        (position, *pair) for position, pair in enumerate(pairs) if pair[0] != pair[1]
    ]


@pytest.mark.parametrize("kind", FAMILIES)
@torch.no_grad()
def test_a_parameter_of_low_rank_is_that_of_a_model_with_its_weights_replaced(kind: str) -> None:
    model = tiny(kind)
    of_run, kept = tiny_run(model), weights(model)
    plain = of_run.forward()[0]
    stack = "encoder" if isinstance(model, EncoderOnly) else "decoder"
    for name in (
        f"{stack}.layers.1.self_attn.v_proj.weight",
        f"{stack}.layers.1.mlp.down.weight",
        "head.unembed.weight",
    ):
        matrix_name = name if name in kept else f"{stack}.layers.0.mlp.experts.2.down.weight"
        stored = model.get_parameter(matrix_name).detach().double().numpy()
        u, sigma, vt = np.linalg.svd(stored, full_matrices=False)
        ranks = (0, 3, len(sigma))
        (lowered,) = rank(of_run, parameter=matrix_name, ranks=ranks).matrices
        assert (lowered.matrix, lowered.full_rank) == (matrix_name, len(sigma))
        for kept_rank, found in zip(ranks, lowered.ranks, strict=True):
            low = u[:, :kept_rank] * sigma[:kept_rank] @ vt[:kept_rank]
            error = np.linalg.norm(stored - low) / np.linalg.norm(stored)
            assert found.rank == kept_rank
            assert found.error == pytest.approx(error, abs=1e-12)
            other = copy.deepcopy(model)  # tied tensors stay tied in a deep copy
            other.get_parameter(matrix_name).copy_(torch.from_numpy(low))
            check_against(plain, tiny_run(other).forward()[0], found)
            if kept_rank == len(sigma):
                assert found.mean_kl < 1e-9 and not found.changed
            else:
                assert found.mean_kl > 1e-4
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    assert torch.equal(of_run.forward()[0], plain)


@pytest.mark.parametrize("kind", FAMILIES)
@torch.no_grad()
def test_a_heads_product_of_low_rank_is_that_of_replaced_projections(kind: str) -> None:
    """A model whose query or output weights are rewritten, so that its product is numpy's best of rank 2; without
    biases and head norms, which a rewritten weight and a projected query treat differently."""
    model = tiny(kind)
    for name, parameter in model.named_parameters():
        if name.endswith(("q_proj.bias", "v_proj.bias")):
            parameter.zero_()
    of_run = tiny_run(model)
    plain = of_run.forward()[0]
    for side in sides(model):
        part, name = attention(model, side, 1)
        head, width = 3, part.d_head
        group = slice(head // part.groups * width, (head // part.groups + 1) * width)
        own = slice(head * width, (head + 1) * width)
        matrices = (w_qk(opened(model), side, 1, head), w_ov(opened(model), side, 1, head))
        both = rank(of_run, side=side, layer=1, head=head, ranks=(2,)).matrices
        for matrix, lowered in zip(matrices, both, strict=True):
            assert (lowered.matrix, lowered.full_rank) == (matrix.name, width)
            (found,) = lowered.ranks
            u, sigma, vt = np.linalg.svd(matrix.dense().numpy())
            assert found.error == pytest.approx(math.sqrt((sigma[2:] ** 2).sum() / (sigma**2).sum()))
            low = torch.from_numpy(u[:, :2] * sigma[:2] @ vt[:2])
            other = copy.deepcopy(model)
            changed, _ = attention(other, side, 1)
            # W_V · W = low, by least squares
            if matrix.kind == "W_OV":
                values = changed.v_proj.weight[group].double().T
                changed.o_proj.weight[:, own] = torch.linalg.lstsq(values, low).solution.T.float()
            else:
                # W · W_Kᵀ · scale = low
                if model.config.qk_norm:
                    continue
                keys = changed.k_proj.weight[group].double().T * changed.scale
                changed.q_proj.weight[own] = torch.linalg.lstsq(keys, low.T).solution.float()
            check_against(plain, tiny_run(other).forward()[0], found)
            assert float(found.kl.max()) > 0


def test_a_model_is_never_touched_while_another_thread_uses_it() -> None:
    model = tiny("GPT-2")
    of_run = tiny_run(model)
    plain = of_run.forward()[0]
    stop, wrong = threading.Event(), []

    def serve() -> None:
        while not stop.is_set():
            wrong.extend([1] if not torch.equal(of_run.forward()[0], plain) else [])

    thread = threading.Thread(target=serve)
    thread.start()
    (lowered,) = rank(of_run, parameter="embed.tokens.weight", ranks=tuple(range(1, 24))).matrices
    stop.set()
    thread.join()
    assert not wrong
    assert [found.rank for found in lowered.ranks] == list(range(1, 24))
    errors = [found.error for found in lowered.ranks]
    assert errors == sorted(errors, reverse=True)


def test_ranks_of_its_own_where_none_are_given() -> None:
    found = rank(tiny_run(tiny("Llama, grouped")), layer=0, head=1)
    assert [[each.rank for each in one.ranks] for one in found.matrices] == [[0, 1, 3], [0, 1, 3]]
    assert [str(one.title).split()[0] for one in found.matrices] == ["W_QK", "W_OV"]


@torch.no_grad()
def test_the_bundled_translator() -> None:
    loaded = load(find(TRANSLATOR))
    model = loaded.model
    of_run = run(loaded, "我爱你。", target="I love you.")
    plain, kept = of_run.forward()[0], weights(model)
    name = "decoder.layers.3.mlp.down.weight"
    half, whole = rank(of_run, parameter=name, ranks=(32, 256)).matrices[0].ranks
    u, sigma, vt = np.linalg.svd(kept[name].double().numpy(), full_matrices=False)
    other = copy.deepcopy(model)
    other.get_parameter(name).copy_(torch.from_numpy(u[:, :32] * sigma[:32] @ vt[:32]))
    check_against(plain, other(**of_run.inputs)[0], half)
    assert whole.mean_kl < 1e-8 < half.mean_kl and not whole.changed
    assert all(torch.equal(value, kept[key]) for key, value in model.state_dict().items())


# As it is asked for.

NAME = "decoder.layers.1.mlp.down.weight"
TEXT = "今天天气"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "rank needs a matrix"),
        ({"parameter": NAME, "ranks": ()}, "no rank is given: expected numbers from 0 to 24"),
        (
            {"parameter": NAME, "ranks": (3, 25)},
            r"rank is 25, expected 0 to 24, the most that .*down\.weight",
        ),
        ({"parameter": NAME, "ranks": (-1,)}, "ranks is -1, expected at least 0"),
        ({"parameter": NAME, "layer": 1}, "give one of the two"),
        ({"layer": 1}, "a head is named by both `layer` and `head`"),
    ],
)
def test_what_cannot_be_ranked_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CutawayError, match=message):
        rank(tiny_run(tiny("GPT-2")), **options)


def test_several_ranks_of_a_parameter(cutaway: Command, poet: Path) -> None:
    asked = ("rank", TEXT, "-m", poet, "--parameter", NAME, "--ranks", "0,8,16")
    out = shown(cutaway, *asked)
    assert out.startswith(f"{NAME} at lower ranks, full rank 16\n")
    found = rank(run(load(poet), TEXT), parameter=NAME, ranks=(0, 8, 16))
    for line, each in zip(out.splitlines()[3:6], found.matrices[0].ranks, strict=True):
        expected = [str(each.rank), f"{each.error:.3f}", f"{each.mean_kl:.4f}", str(len(each.changed))]
        assert line.split()[:4] == expected
    (grid,) = (block for block in found.page().blocks if isinstance(block, Matrix))
    kl = [each.kl.tolist() for each in found.matrices[0].ranks]
    assert grid.values.tolist() == kl
    assert f"{kl[0][2]:.3f}</td>" in page_of(cutaway, *asked)
    assert result(cutaway, *asked)["matrices"][0]["ranks"][0]["kl"] == kl[0]
    assert shown_in_chinese(cutaway, *asked).startswith(f"{NAME}，降秩之后（满秩 16）\n")


def test_one_rank_is_told_token_by_token(cutaway: Command, poet: Path) -> None:
    read = run(load(poet), TEXT)
    found = rank(read, parameter=NAME, ranks=(0,)).matrices[0].ranks[0]
    lines = shown(cutaway, "rank", TEXT, "-m", poet, "--parameter", NAME, "--ranks", "0").splitlines()
    assert lines[0] == f"{NAME} at rank 0 of 16"
    changed = {each.position: [each.before_piece, "→", each.after_piece] for each in found.changed}
    for line, (position, kl) in zip(lines[5:], enumerate(found.kl.tolist()), strict=False):
        assert line.split()[2:] == [f"{kl:.3f}", *changed.get(position, [])]
    assert changed


def test_a_heads_two_matrices_passes_and_arrays(
    cutaway: Command, passes: Callable[[], int], translator: Path, tmp_path: Path
) -> None:
    asked = ("rank", "好", "--target", "Good.", "-m", translator, "--layer", "-1", "--head", "1")
    out = shown(cutaway, *asked)
    assert out.startswith("W_QK of decoder.layers.1.cross_attn, head 1 at lower ranks, full rank 8\n")
    assert "\nW_OV of decoder.layers.1.cross_attn, head 1 at lower ranks, full rank 8\n" in out
    assert out.count("not purpose") == 1
    path = tmp_path / "rank.safetensors"
    assert cutaway("inspect", *asked, "--save", path).code == 0
    read = run(load(translator), "好", target="Good.")
    passes()
    heard: list[tuple[int, int]] = []
    found = rank(read, layer=-1, head=1, progress=lambda what, done, count: heard.append((done, count)))
    assert passes() == 1 + sum(len(each.ranks) for each in found.matrices)
    assert heard[-1] == (8, 8)
    assert torch.equal(load_file(path)["matrices.ranks.kl"][0, 1], found.matrices[0].ranks[1].kl)


def test_what_is_refused(cutaway: Command, poet: Path, headless: Path) -> None:
    asked = ("rank", TEXT, "-m", poet)
    assert "rank needs a matrix" in refused(cutaway, *asked)
    assert "expected whole numbers with commas" in refused(
        cutaway, *asked, "--parameter", NAME, "--ranks", "1,x"
    )
    near = refused(cutaway, *asked, "--parameter", NAME.replace("down", "dwn"))
    assert f"(did you mean '{NAME}'?)" in near
    assert "rank needs an output head" in refused(
        cutaway, "rank", "今天", "-m", headless, "--layer", "0", "--head", "1"
    )
