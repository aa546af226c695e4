"""Spectra, a head's two maps, directions read as tokens, and what low rank does, each computed here another way."""

import copy
import math
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.test_tap import FAMILIES
from torch import Tensor
from torch.nn.functional import linear

from cutaway.checkpoint.folder import Loaded, load
from cutaway.config import ModelConfig, parse
from cutaway.errors import CutawayError
from cutaway.inspection.matrices.low_rank import LowRank, low_rank
from cutaway.inspection.matrices.matrix import Matrix, Side, parameter_matrix, w_ov, w_qk
from cutaway.inspection.matrices.spectrum import directions, spectrum
from cutaway.inspection.runs.run import Run, Tokens, run
from cutaway.models.build import Model, build
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.encoder_only import EncoderOnly
from cutaway.nn.attention import Attention
from cutaway.tap import Trace
from cutaway.zoo import TRANSLATOR, find

SIDES: tuple[Side, ...] = ("encoder", "decoder", "cross")


def tiny(kind: str) -> Model:
    torch.manual_seed(3)
    model = build(parse(ModelConfig, FAMILIES[kind], kind)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    return model


def opened(model: Model) -> Loaded:
    return Loaded(model, model.config, None, {}, Path("tiny"))


def tiny_run(model: Model, ids: Sequence[int] = (4, 9, 11, 7, 30)) -> Run:
    tokens = Tokens(list(ids), [f"t{id}" for id in ids])
    if isinstance(model, EncoderDecoder):
        return Run(opened(model), tokens, tokens, tokens)
    source, target = (tokens, None) if isinstance(model, EncoderOnly) else (None, tokens)
    return Run(opened(model), source, target, tokens)


def sides(model: Model) -> list[Side]:
    return [side for side in SIDES if isinstance(model, EncoderDecoder) or hasattr(model, side)]


def attention(model: Model, side: Side, layer: int) -> tuple[Attention, str]:
    name = f"decoder.layers.{layer}.cross_attn" if side == "cross" else f"{side}.layers.{layer}.self_attn"
    found = model.get_submodule(name)
    assert isinstance(found, Attention)
    return found, name


def inputs_and_trace(model: Model, part: Attention, watch: list[str]) -> tuple[tuple[Tensor, Tensor], Trace]:
    """What an attention makes queries of, and keys and values of, seen by torch's own hook."""
    seen: list[tuple[Tensor, Tensor]] = []

    def keep(_: object, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
        memory = kwargs.get("memory")
        seen.append((args[0], args[0] if memory is None else memory))

    hook = part.register_forward_pre_hook(keep, with_kwargs=True)
    _, trace = tiny_run(model).forward(watch=watch)
    hook.remove()
    return seen[0], trace


def shared_bias(part: Attention) -> Tensor:
    """The values' bias as the query heads of each group share it, side by side."""
    return (
        part.v_proj.bias.double()
        .unflatten(0, (-1, part.d_head))
        .repeat_interleave(part.groups, dim=0)
        .flatten()
    )


# What a matrix is.


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_matrix_of_a_model_maps_what_it_says(kind: str) -> None:
    """A known width of each space, and for linear layers the layer itself."""
    model, seen = tiny(kind), 0
    c = model.config
    widths = {
        "residual": c.d_model, "vocabulary": c.vocab_size, "neurons": c.d_ff, "experts": c.n_experts,
        "positions": c.max_len + c.position_offset, "segments": c.n_segments, "distances": c.relative_buckets,
    }  # fmt: skip
    heads = {c.n_heads * c.head_width, c.kv_heads * c.head_width, c.n_heads}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.ndim < 2:
            with pytest.raises(CutawayError, match=f"{name} is of shape .* a vector: expected a matrix"):
                parameter_matrix(model, name)
            continue
        seen += 1
        matrix = parameter_matrix(model, name)
        for space, size in zip((matrix.rows, matrix.columns), matrix.shape, strict=True):
            assert size in (heads if space == "heads" else {widths[space]}), name
        module = model.get_submodule(name.removesuffix(".weight"))
        if isinstance(module, torch.nn.Linear):
            x = torch.randn(3, matrix.shape[0])
            mapped = (x.double() @ matrix.dense()).float()
            torch.testing.assert_close(mapped, linear(x, module.weight), rtol=1e-4, atol=1e-5)
        else:
            assert torch.equal(matrix.dense()[1].float(), module(torch.tensor(1)))
    assert seen > 10


@pytest.mark.parametrize("kind", FAMILIES)
@torch.no_grad()
def test_w_qk_gives_the_scaled_scores_of_this_very_run(kind: str) -> None:
    """Against the tapped scores, without biases, which are not in the product; a rotated token with itself."""
    model = tiny(kind)
    for name, parameter in model.named_parameters():
        if name.endswith(("q_proj.bias", "k_proj.bias")):
            parameter.zero_()
    for side in sides(model):
        for layer in range(2):
            part, name = attention(model, side, layer)
            inputs, trace = inputs_and_trace(model, part, [f"{name}.scaled"])
            queries, keys = (x[0].double() for x in inputs)
            for head in range(model.config.n_heads):
                matrix = w_qk(model, side, layer, head)
                scores = queries @ matrix.dense() @ keys.T
                scaled = trace[f"{name}.scaled"][0, head].double()
                if model.config.qk_norm:
                    assert any("approximate: a norm" in caveat for caveat in matrix.caveats)
                elif model.config.position == "rotary" and side != "cross":
                    assert any("rotated" in caveat for caveat in matrix.caveats)
                    torch.testing.assert_close(scores.diagonal(), scaled.diagonal(), rtol=1e-4, atol=1e-4)
                else:
                    torch.testing.assert_close(scores, scaled, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", FAMILIES)
@torch.no_grad()
def test_w_ov_gives_what_the_heads_write(kind: str) -> None:
    """The patterns of the run with W_OV of every head, and the biases, are what the attention put out."""
    model = tiny(kind)
    for side in sides(model):
        part, name = attention(model, side, 1)
        (_, read), trace = inputs_and_trace(model, part, [f"{name}.pattern", f"{name}.out"])
        written = torch.zeros_like(trace[f"{name}.out"][0]).double()
        for head in range(model.config.n_heads):
            pattern = trace[f"{name}.pattern"][0, head].double()
            written += pattern @ read[0].double() @ w_ov(model, side, 1, head).dense()
        if part.v_proj.bias is not None:
            written += part.o_proj.weight.double() @ shared_bias(part)
        if part.o_proj.bias is not None:
            written += part.o_proj.bias.double()
        torch.testing.assert_close(written.float(), trace[f"{name}.out"][0], rtol=1e-4, atol=1e-4)


def test_what_is_not_there_is_refused_by_name() -> None:
    model = tiny("Llama, grouped")
    with pytest.raises(CutawayError, match=r"no parameter '.*mlp.upp.weight' \(did you mean '.*up.weight'"):
        parameter_matrix(model, "decoder.layers.0.mlp.upp.weight")
    with pytest.raises(CutawayError, match="side is 'cross': a decoder-only model attends on decoder only"):
        w_qk(model, "cross", 0, 0)
    with pytest.raises(CutawayError, match="layer is 2, expected 0 to 1 of the decoder"):
        w_ov(model, "decoder", 2, 0)
    with pytest.raises(CutawayError, match="head is 4, expected 0 to 3"):
        w_ov(model, "decoder", 0, 4)
    assert "keys are shared by the 2 heads of group 1" in " ".join(w_qk(model, "decoder", 0, 3).caveats)
    tied = parameter_matrix(tiny("GPT-2"), "head.unembed.weight")
    assert tied.caveats == ("the same tensor is embed.tokens.weight",)


# Spectra.


def check_spectrum(matrix: Matrix) -> None:
    """Against numpy's SVD of all entries."""
    found = spectrum(matrix)
    dense = matrix.dense().numpy()
    sigma = np.linalg.svd(dense, compute_uv=False)
    rank = len(found.singular_values)
    np.testing.assert_allclose(found.singular_values.numpy(), sigma[:rank], rtol=1e-8, atol=1e-10)
    assert not len(sigma[rank:]) or float(sigma[rank]) < 1e-10 * sigma[0]
    assert found.frobenius == pytest.approx(np.linalg.norm(dense))
    share = [value / sigma.sum() for value in sigma[:rank]]
    assert found.effective_rank == pytest.approx(math.exp(-sum(p * math.log(p) for p in share)), rel=1e-6)
    assert found.stable_rank == pytest.approx(np.linalg.norm(dense) ** 2 / np.linalg.norm(dense, 2) ** 2)
    assert found.condition == pytest.approx(sigma[0] / sigma[rank - 1], rel=1e-5)
    u, s, v = (part.numpy() for part in matrix.svd())
    np.testing.assert_allclose(u * s @ v.T, dense, atol=1e-9 * sigma[0])
    np.testing.assert_allclose(u.T @ u, np.eye(rank), atol=1e-9)
    np.testing.assert_allclose(v.T @ v, np.eye(rank), atol=1e-9)
    if found.symmetric_share is not None:
        assert matrix.kind == "W_QK" and "self_attn" in matrix.name
        symmetric = np.linalg.norm((dense + dense.T) / 2) ** 2 / np.linalg.norm(dense) ** 2
        assert found.symmetric_share == pytest.approx(symmetric)


@pytest.mark.parametrize("kind", ["post-norm, sinusoids", "Llama, grouped", "Mixtral", "BERT"])
def test_spectra_are_those_of_numpy(kind: str) -> None:
    model = tiny(kind)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and min(parameter.shape) > 2:
            check_spectrum(parameter_matrix(model, name))
    for side in sides(model):
        check_spectrum(w_qk(model, side, 1, 3))
        check_spectrum(w_ov(model, side, 1, 3))
        assert (spectrum(w_qk(model, side, 1, 3)).symmetric_share is None) == (side == "cross")
        assert spectrum(w_ov(model, side, 1, 3)).symmetric_share is None


def shaped(left: Tensor, right: Tensor | None = None) -> Matrix:
    name = "W_QK of decoder.layers.0.self_attn, head 0"
    kind = "parameter" if right is None else "W_QK"
    place = None if right is None else "decoder.layers.0.self_attn"
    return Matrix(
        name,
        kind,
        "",
        left.double(),
        right if right is None else right.double(),
        "residual",
        "residual",
        (),
        place,
        0,
    )


def test_known_spectra() -> None:
    even = spectrum(shaped(torch.eye(5) * 3))
    assert (even.effective_rank, even.stable_rank, even.condition) == pytest.approx((5, 5, 1))
    single = spectrum(shaped(torch.outer(torch.arange(1.0, 5), torch.ones(3))))
    assert (single.effective_rank, single.stable_rank) == pytest.approx((1, 1))
    assert single.condition == math.inf
    nothing = spectrum(shaped(torch.zeros(4, 3)))
    assert (nothing.effective_rank, nothing.stable_rank, nothing.frobenius) == (0, 0, 0)
    keys = torch.randn(6, 2)
    assert spectrum(shaped(keys, keys)).symmetric_share == pytest.approx(1)
    turned = torch.stack([keys[:, 1], -keys[:, 0]], dim=1)
    assert spectrum(shaped(keys, turned)).symmetric_share == pytest.approx(0)


# Directions.


def test_directions_are_read_through_the_right_table() -> None:
    model = tiny("Llama, grouped")  # whose tables are two
    loaded = opened(model)
    embedding = model.get_parameter("embed.tokens.weight").detach().double().numpy()
    output = model.get_parameter("head.unembed.weight").detach().double().numpy()
    for matrix, tables in (
        (w_qk(model, "decoder", 0, 1), (embedding, embedding)),
        (w_ov(model, "decoder", 0, 1), (embedding, output)),
        (parameter_matrix(model, "decoder.layers.0.mlp.down.weight"), (None, output)),
        (parameter_matrix(model, "decoder.layers.0.mlp.up.weight"), (embedding, None)),
    ):
        u, sigma, v = np.linalg.svd(matrix.dense().numpy(), full_matrices=False)
        for found in directions(loaded, matrix, first=1, count=2, top=4):
            assert found.sigma == pytest.approx(sigma[found.index])
            assert found.energy == pytest.approx(sigma[found.index] ** 2 / (sigma**2).sum())
            sign = np.sign(found.u.numpy() @ u[:, found.index])  # the pair may be turned, but only together
            assert found.u[found.u.abs().argmax()] > 0
            for reading, vector, table in zip((found.rows, found.columns), (u.T, v), tables, strict=True):
                if table is None:
                    assert reading is None
                    continue
                assert reading is not None
                values = table @ (sign * vector[found.index])
                order = np.argsort(values)
                assert [each.id for each in reading.negative] == order[:4].tolist()
                assert [each.id for each in reading.positive] == order[::-1][:4].tolist()
                np.testing.assert_allclose(
                    [each.value for each in reading.negative], values[order[:4]], rtol=1e-9
                )
        assert [found.index for found in directions(loaded, matrix, first=1, count=2)] == [1, 2]
    table = parameter_matrix(model, "embed.tokens.weight")
    (found,) = directions(loaded, table, count=1, top=3)
    assert found.rows is not None and found.rows.table == "entries"
    assert found.columns is not None and found.columns.table == "unembedding"
    entries = found.u.numpy()
    assert [each.id for each in found.rows.positive] == np.argsort(-entries)[:3].tolist()
    assert [each.id for each in found.rows.negative] == np.argsort(entries)[:3].tolist()
    with pytest.raises(CutawayError, match=r"first is 24, expected 0 to 23: .* of embed\.tokens\.weight"):
        directions(loaded, table, first=24)
    with pytest.raises(CutawayError, match="count is 0"):
        directions(loaded, table, count=0)


# Low rank.


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
    matrix = w_qk(model, "cross", 3, 2)
    check_spectrum(matrix)
    (found,) = directions(loaded, matrix, count=1, top=5)
    assert found.rows is not None and len(found.rows.positive) == 5
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
