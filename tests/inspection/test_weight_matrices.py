"""A model's matrices are the maps that its own forward pass applies."""

from pathlib import Path

import pytest
import torch
from tests.inspection.tiny import attention, opened, sides, tiny, tiny_run
from tests.test_tap import FAMILIES
from torch import Tensor
from torch.nn.functional import linear

from cutaway.checkpoint.folder import load
from cutaway.errors import CutawayError
from cutaway.inspection.weight_matrices import parameter_matrix, w_ov, w_qk
from cutaway.models.build import Model
from cutaway.nn.attention import Attention
from cutaway.tap import Trace


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
                parameter_matrix(opened(model), name)
            continue
        seen += 1
        matrix = parameter_matrix(opened(model), name)
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
                matrix = w_qk(opened(model), side, layer, head)
                scores = queries @ matrix.dense() @ keys.T
                scaled = trace[f"{name}.scaled"][0, head].double()
                if model.config.qk_norm:
                    assert any("approximate: a norm" in str(caveat) for caveat in matrix.caveats)
                elif model.config.position == "rotary" and side != "cross":
                    assert any("rotated" in str(caveat) for caveat in matrix.caveats)
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
            written += pattern @ read[0].double() @ w_ov(opened(model), side, 1, head).dense()
        if part.v_proj.bias is not None:
            written += part.o_proj.weight.double() @ shared_bias(part)
        if part.o_proj.bias is not None:
            written += part.o_proj.bias.double()
        torch.testing.assert_close(written.float(), trace[f"{name}.out"][0], rtol=1e-4, atol=1e-4)


def test_what_is_not_there_is_refused_by_name() -> None:
    model = tiny("Llama, grouped")
    with pytest.raises(CutawayError, match=r"no parameter '.*mlp.upp.weight' \(did you mean '.*up.weight'"):
        parameter_matrix(opened(model), "decoder.layers.0.mlp.upp.weight")
    with pytest.raises(
        CutawayError, match="side is 'cross', but this decoder-only model attends on decoder only"
    ):
        w_qk(opened(model), "cross", 0, 0)
    with pytest.raises(CutawayError, match="there is no layer 2, expected 0 to 1"):
        w_ov(opened(model), "decoder", 2, 0)
    with pytest.raises(CutawayError, match="there is no head 4, expected 0 to 3"):
        w_ov(opened(model), "decoder", 0, 4)
    assert "keys are shared by the 2 heads of group 1" in " ".join(
        str(caveat) for caveat in w_qk(opened(model), "decoder", 0, 3).caveats
    )
    with torch.no_grad():
        model.get_parameter("decoder.layers.0.self_attn.k_proj.weight")[0, 0] = torch.nan
    for matrix in (
        w_qk(opened(model), "decoder", 0, 0),
        parameter_matrix(opened(model), "decoder.layers.0.self_attn.k_proj.weight"),
    ):
        with pytest.raises(
            CutawayError, match=r"decoder\.layers\.0\.self_attn.* has entries that are not finite"
        ):
            matrix.svd()
    tied = parameter_matrix(opened(tiny("GPT-2")), "head.unembed.weight")
    assert [str(caveat) for caveat in tied.caveats] == ["the same tensor is embed.tokens.weight"]


def test_a_matrix_draws_itself(translator: Path) -> None:
    found = w_ov(load(translator), "cross", -1, 0)
    text = found.to_text(locale="en")
    assert text.startswith("W_OV of decoder.layers.1.cross_attn, head 0 (16 × 16)\n")
    assert "residual stream → residual stream" in text and "残差流 → 残差流" in found.to_html("zh")
