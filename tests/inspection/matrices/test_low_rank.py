"""A run with a matrix of low rank is that of a model whose weights were replaced."""

import copy
import math
import threading

import numpy as np
import pytest
import torch
from tests.inspection.matrices.tiny import attention, sides, tiny, tiny_run
from tests.test_tap import FAMILIES
from torch import Tensor

from cutaway.checkpoint.folder import load
from cutaway.errors import CutawayError
from cutaway.inspection.matrices.low_rank import LowRank, low_rank
from cutaway.inspection.matrices.matrix import parameter_matrix, w_ov, w_qk
from cutaway.inspection.runs import run
from cutaway.models.build import Model
from cutaway.models.encoder_only import EncoderOnly
from cutaway.zoo import TRANSLATOR, find


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
        for rank, found in zip(
            ranks, low_rank(of_run, parameter_matrix(model, matrix_name), ranks), strict=True
        ):
            low = u[:, :rank] * sigma[:rank] @ vt[:rank]
            error = np.linalg.norm(stored - low) / np.linalg.norm(stored)
            assert (found.matrix, found.rank) == (matrix_name, rank)
            assert found.matrix_error == pytest.approx(error, abs=1e-12)
            other = copy.deepcopy(model)  # tied tensors stay tied in a deep copy
            other.get_parameter(matrix_name).copy_(torch.from_numpy(low))
            check_against(plain, tiny_run(other).forward()[0], found)
            if rank == len(sigma):
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
        for matrix in (w_qk(model, side, 1, head), w_ov(model, side, 1, head)):
            (found,) = low_rank(of_run, matrix, [2])
            u, sigma, vt = np.linalg.svd(matrix.dense().numpy())
            assert found.matrix_error == pytest.approx(math.sqrt((sigma[2:] ** 2).sum() / (sigma**2).sum()))
            low = torch.from_numpy(u[:, :2] * sigma[:2] @ vt[:2])
            other = copy.deepcopy(model)
            changed, _ = attention(other, side, 1)
            if matrix.kind == "W_OV":  # W_V · W = low, by least squares
                values = changed.v_proj.weight[group].double().T
                changed.o_proj.weight[:, own] = torch.linalg.lstsq(values, low).solution.T.float()
            else:  # W · W_Kᵀ · scale = low
                if model.config.qk_norm:
                    continue
                keys = changed.k_proj.weight[group].double().T * changed.scale
                changed.q_proj.weight[own] = torch.linalg.lstsq(keys, low.T).solution.float()
            check_against(plain, tiny_run(other).forward()[0], found)
            assert float(found.kl.max()) > 0


def test_a_model_is_never_touched_while_another_thread_uses_it() -> None:
    model = tiny("GPT-2")
    of_run = tiny_run(model)
    matrix = parameter_matrix(model, "embed.tokens.weight")
    plain = of_run.forward()[0]
    stop, wrong = threading.Event(), []

    def serve() -> None:
        while not stop.is_set():
            wrong.extend([1] if not torch.equal(of_run.forward()[0], plain) else [])

    thread = threading.Thread(target=serve)
    thread.start()
    results = low_rank(of_run, matrix, range(1, 24))
    stop.set()
    thread.join()
    assert not wrong
    assert [found.rank for found in results] == list(range(1, 24))
    errors = [found.matrix_error for found in results]
    assert errors == sorted(errors, reverse=True)


def test_what_low_rank_refuses() -> None:
    model = tiny("GPT-2")
    of_run, matrix = tiny_run(model), parameter_matrix(model, "decoder.layers.0.mlp.up.weight")
    with pytest.raises(CutawayError, match=r"rank is 25, expected 0 to 24, the most that .*up\.weight"):
        low_rank(of_run, matrix, [3, 25])
    other = tiny("GPT-2")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(2)
    for foreign in (
        parameter_matrix(other, matrix.name),
        w_ov(other, "decoder", 0, 1),
        w_qk(other, "decoder", 1, 1),
    ):
        with pytest.raises(CutawayError, match="is a matrix of another model"):
            low_rank(of_run, foreign, [1])


@torch.no_grad()
def test_the_bundled_translator() -> None:
    loaded = load(find(TRANSLATOR))
    model = loaded.model
    of_run = run(loaded, "我爱你。", target="I love you.")
    plain, kept = of_run.forward()[0], weights(model)
    name = "decoder.layers.3.mlp.down.weight"
    half, whole = low_rank(of_run, parameter_matrix(model, name), (32, 256))
    u, sigma, vt = np.linalg.svd(kept[name].double().numpy(), full_matrices=False)
    other = copy.deepcopy(model)
    other.get_parameter(name).copy_(torch.from_numpy(u[:, :32] * sigma[:32] @ vt[:32]))
    check_against(plain, other(**of_run.inputs)[0], half)
    assert whole.mean_kl < 1e-8 < half.mean_kl and not whole.changed
    assert all(torch.equal(value, kept[key]) for key, value in model.state_dict().items())
