"""What must give the same numbers: with and without cache, batched and alone, packed and apart, whatever is masked."""

import math

import pytest
import torch
from tests.nearness import assert_near, tolerance
from torch import Tensor

from cutaway.config import ModelConfig, parse
from cutaway.errors import CutawayError
from cutaway.inspection.arithmetic.rounding import FUNCTION_ULPS
from cutaway.models.build import PRESETS, build, preset
from cutaway.models.decoder_only import DecoderOnly, positions_in_documents
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.encoder_only import EncoderOnly
from cutaway.nn.attention import Attention, softmax_over_keys
from cutaway.nn.bias import AlibiBias, RelativeBias, causal_bias, key_bias
from cutaway.nn.position import Rotary, sinusoids
from cutaway.tap import Trace

SMALL = {"vocab_size": 61, "d_model": 24, "n_layers": 2, "n_heads": 4, "d_ff": 40, "dropout": 0.0}
POSITIONS = ["learned", "sinusoidal", "rotary", "relative", "alibi", "none"]


def small(family: str, position: str, **changes: object) -> torch.nn.Module:
    torch.manual_seed(1)
    base = {"encoder-decoder": "m2m100-tiny", "decoder-only": "llama-tiny", "encoder-only": "bert-tiny"}[
        family
    ]
    values = {
        **PRESETS[base],
        **SMALL,
        "embed_scale": 1.0,
        "position_offset": 0,
        "position": position,
        **changes,
    }
    model = build(parse(ModelConfig, values, "config")).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    return model


def ids(rows: int, length: int, seed: int = 2) -> Tensor:
    return torch.randint(1, 61, (rows, length), generator=torch.Generator().manual_seed(seed))


def close(a: Tensor, b: Tensor) -> None:
    # up to three layers and the output, none wider than 40
    assert_near(a, b, 4 * 40)


@pytest.mark.parametrize("position", POSITIONS)
@torch.no_grad()
def test_decoder_only_cached_step_by_step_and_left_padded(position: str) -> None:
    model = small("decoder-only", position)
    assert isinstance(model, DecoderOnly)
    text, other = ids(1, 40), ids(1, 7, seed=3)
    full, alone = model(text), model(other)
    cache = model.begin(1)
    # more than the cache's first buffer
    for t in range(40):
        close(model.step(text[:, t : t + 1], cache), full[:, t])
    prompt = torch.zeros(2, 12, dtype=torch.long)
    prompt[0], prompt[1, 7:] = text[0, :12], other[0, :5]
    mask = prompt.new_ones(2, 12, dtype=torch.bool)
    mask[1, :7] = False
    cache = model.begin(2)
    logits = model.step(prompt, cache, mask)
    close(logits[0], full[0, 11])
    close(logits[1], alone[0, 4])
    cache.select(torch.tensor([1, 0, 1]))
    logits = model.step(torch.stack([other[0, 5:6], text[0, 12:13], other[0, 5:6]]), cache)
    close(logits[1], full[0, 12])
    close(logits[0], alone[0, 5])
    close(logits[0], logits[2])


@pytest.mark.parametrize("position", POSITIONS)
@torch.no_grad()
def test_encoder_decoder_cached_and_padded(position: str) -> None:
    model = small("encoder-decoder", position)
    assert isinstance(model, EncoderDecoder)
    source, target = ids(2, 11), ids(2, 9, seed=4)
    mask = torch.ones(2, 11, dtype=torch.bool)
    mask[1, 4:] = False
    full = model(source, target, mask)
    close(full[1:], model(source[1:, :4], target[1:]))
    cache = model.begin(source, mask)
    for t in range(5):
        close(model.step(target[:, t : t + 1], cache), full[:, t])
    cache.select(torch.tensor([1, 1, 0]))
    close(model.step(target[[1, 1, 0], 5:6], cache), full[[1, 1, 0], 5])
    cache.select(torch.tensor([1, 0, 2]), same_source=True)
    close(model.step(target[[1, 1, 0], 6:9], cache), full[[1, 1, 0], 8])


@pytest.mark.parametrize("position", POSITIONS)
@torch.no_grad()
def test_masked_content_never_matters(position: str) -> None:
    model = small("encoder-only", position)
    assert isinstance(model, EncoderOnly)
    text, mask = ids(2, 10), torch.ones(2, 10, dtype=torch.bool)
    mask[1, 6:] = False
    expected = model(text, mask)
    other = text.clone()
    other[1, 6:] = 5
    assert torch.equal(model(other, mask)[1, :6], expected[1, :6])
    close(model(text[1:, :6])[0], expected[1, :6])
    assert torch.equal(model(text, torch.ones_like(mask)), model(text, torch.ones_like(mask)))
    close(model(text, torch.ones_like(mask)), model(text))


@pytest.mark.parametrize("position", POSITIONS)
@torch.no_grad()
def test_packed_documents_do_not_see_one_another(position: str) -> None:
    model = small("decoder-only", position)
    assert isinstance(model, DecoderOnly)
    first, second = ids(1, 5), ids(1, 8, seed=5)
    packed = torch.cat([first, second], dim=1)
    documents = torch.tensor([[0] * 5 + [1] * 8])
    together = model(packed, documents)
    close(together[:, :5], model(first))
    close(together[:, 5:], model(second))
    changed = packed.clone()
    changed[:, :5] = 7
    assert torch.equal(model(changed, documents)[:, 5:], together[:, 5:])
    # an all-ones mask means the same as none
    assert torch.equal(model(packed, documents, torch.ones(1, 13, dtype=torch.bool)), together)


def test_positions_restart_with_each_document() -> None:
    documents = torch.tensor([[3, 3, 3, 1, 1, 7], [0, 0, 0, 0, 0, 0]])
    assert positions_in_documents(documents).tolist() == [[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize("explicit", [True, False])
def test_a_fully_masked_row_gives_zero_and_no_nan_anywhere(explicit: bool) -> None:
    torch.manual_seed(3)
    attention = Attention(16, 4, 2, 4, use_bias=True, out_bias=True)
    x = torch.randn(2, 5, 16, requires_grad=True)
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[1] = False
    bias = key_bias(mask, torch.float32)
    if explicit:
        with Trace(attention, watch=["pattern", "z"]) as trace:
            out = attention(x, bias=bias)
        assert trace["pattern"][1].abs().max() == 0
    else:
        with Trace(attention, watch=["z"]) as trace, torch.no_grad():
            out = attention(x, bias=bias)
    assert trace["z"][1].abs().max() == 0
    assert torch.isfinite(out).all()
    if explicit:
        out.sum().backward()
        assert x.grad is not None and torch.isfinite(x.grad).all()


def test_softmax_over_keys_equals_the_formula() -> None:
    masked = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1))
    masked[0, 0, 2:] = -math.inf
    expected = masked.double().exp() / masked.double().exp().sum(-1, keepdim=True)
    assert_near(softmax_over_keys(masked), expected, 5 + FUNCTION_ULPS)


def test_attention_equals_its_formula_head_by_head() -> None:
    torch.manual_seed(4)
    attention = Attention(12, 6, 3, 4, use_bias=True, out_bias=True)
    x, memory = torch.randn(1, 5, 12), torch.randn(1, 7, 12)
    with torch.no_grad():
        out = attention(x, memory)
        q, k, v = (
            layer(at).double()[0] for layer, at in zip(
                (attention.q_proj, attention.k_proj, attention.v_proj), (x, memory, memory), strict=True
            )
        )  # fmt: skip
        z = torch.zeros(5, 24, dtype=torch.float64)
        for head in range(6):
            shared = head // 2  # two query heads to one key/value head
            queries, keys = q[:, 4 * head : 4 * head + 4], k[:, 4 * shared : 4 * shared + 4]
            weights = (queries @ keys.T / math.sqrt(4)).softmax(-1)
            z[:, 4 * head : 4 * head + 4] = weights @ v[:, 4 * shared : 4 * shared + 4]
        expected = z @ attention.o_proj.weight.double().T + attention.o_proj.bias.double()
    assert_near(out[0], expected, 12 + 4 + 7 + 24 + FUNCTION_ULPS)


def test_sinusoids_are_the_papers() -> None:
    table = sinusoids(50, 16)
    for position in (0, 1, 17, 49):
        for i in range(8):
            angle = position / 10_000 ** (2 * i / 16)
            assert table[position, i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 8 + i].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_rotary_products_depend_on_the_distance_alone_and_stay_exact_in_16_bits() -> None:
    rotary = Rotary(8, 10_000.0)
    torch.manual_seed(0)
    q, k = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)
    rounded_angle = tolerance(
        105 * float(q.norm() * k.norm()), 1
    )  # of position 105, in radians, by what it turns

    def product(i: int, j: int) -> float:
        angles = [rotary.angles(torch.tensor([[n]])) for n in (i, j)]
        return float((Rotary.rotate(q, *angles[0]) * Rotary.rotate(k, *angles[1])).sum())

    assert product(9, 4) == pytest.approx(product(105, 100), abs=rounded_angle)
    assert product(9, 4) != pytest.approx(product(9, 5), abs=100 * rounded_angle)
    exact = rotary.angles(torch.tensor([[4000]]))
    rounded = Rotary(8, 10_000.0).to(torch.bfloat16).angles(torch.tensor([[4000]]))
    assert torch.equal(exact[0], rounded[0]) and torch.equal(exact[1], rounded[1])


def test_alibi_slopes_are_the_papers() -> None:
    assert AlibiBias(8).slopes.tolist() == [2.0**-i for i in range(1, 9)]
    twelve = AlibiBias(12).slopes.tolist()
    assert twelve[8:] == pytest.approx([2.0 ** (-i / 2) for i in (1, 3, 5, 7)])
    bias = AlibiBias(2)(2, 4)
    assert bias[0, 0].tolist() == [[-0.0625 * abs(k - q) for k in range(4)] for q in (2, 3)]


def test_relative_buckets_are_t5s() -> None:
    bias = RelativeBias(2, 32, 128, bidirectional=True)
    from transformers.models.t5.modeling_t5 import T5Attention

    for bidirectional in (True, False):
        ours = RelativeBias(2, 32, 128, bidirectional)
        distance = torch.arange(-200, 201)[None]
        theirs = getattr(T5Attention, "_relative_position_bucket")(distance, bidirectional, 32, 128)
        assert torch.equal(ours.bucket(distance), theirs)
    assert bias(3, 5).shape == (1, 2, 3, 5)


def test_causal_bias_with_a_cache_lets_a_query_see_itself_and_the_past() -> None:
    bias = causal_bias(2, 5, torch.float32, torch.device("cpu"))
    assert (bias == 0).tolist() == [[True] * 4 + [False], [True] * 5]


def test_too_long_an_input_is_refused_before_anything_is_computed() -> None:
    model = small("decoder-only", "learned", max_len=8)
    assert isinstance(model, DecoderOnly)
    with pytest.raises(CutawayError, match=r"9 tokens.*limit is 8"):
        model(ids(1, 9))
    prompts, mask = ids(2, 8), torch.ones(2, 8, dtype=torch.bool)
    mask[:, :3] = False  # padding takes none of the room
    cache = model.begin(2)
    model.step(prompts, cache, mask)
    model.step(ids(2, 3), cache)
    with pytest.raises(CutawayError, match=r"9 tokens.*limit is 8"):
        model.step(ids(2, 1), cache)
    cache = model.begin(1)
    model.step(ids(1, 8), cache)
    with pytest.raises(CutawayError, match=r"9 tokens.*limit is 8"):
        model.step(ids(1, 1), cache)


def test_presets_are_the_papers_sizes() -> None:
    base, big = (
        preset("transformer-base", {"vocab_size": 37_000}),
        preset("transformer-big", {"vocab_size": 37_000}),
    )
    with torch.device("meta"):
        n_base, n_big = (sum(p.numel() for p in build(c).parameters()) for c in (base, big))
    # Vaswani et al. 2017, Table 3: 65 and 213 million
    assert round(n_base / 1e6) in (63, 64, 65) and round(n_big / 1e6) in (213, 214, 215)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_heads": 5}, r"d_model \(24\) must be a multiple of n_heads \(5\)"),
        ({"n_kv_heads": 3}, r"n_heads \(4\) must be a multiple of n_kv_heads \(3\)"),
        ({"d_ff": 0}, "d_ff is 0, expected 1 to"),
        ({"n_layers": 10**9}, "n_layers is 1000000000, expected 1 to 1,000"),
        ({"position_offset": -5}, "position_offset is -5, expected 0 to"),
        ({"n_segments": -1}, "n_segments is -1, expected 0 to"),
        ({"norm_eps": -1.0}, r"norm_eps is -1\.0, expected a number above 0"),
        (
            {"rope_base": 1.0, "rope_scaling": {"kind": "yarn", "factor": 2.0, "original_max_len": 8}},
            "rope_base is 1, expected another number",
        ),
        ({"rope_base": 0.0}, r"rope_base is 0\.0, expected a number above 0"),
        ({"relative_buckets": 1}, "relative_buckets is 1, expected 4 to"),
        (
            {"relative_max_distance": 8},
            "relative_max_distance is 8, expected more than half",
        ),
        ({"dropout": 1.5}, r"dropout is 1\.5"),
        ({"position": "rotarry"}, "did you mean 'rotary'"),
        ({"d_modle": 3}, "unknown key 'd_modle'.*did you mean 'd_model'"),
        ({"n_layers": "two"}, "n_layers is 'two', expected a whole number"),
        ({"n_layers": True}, "n_layers is True, expected a whole number"),
        ({"pad_id": 61}, "pad_id is 61, expected an id below vocab_size"),
        ({"position": "rotary", "d_head": 3}, "even d_head, not 3"),
    ],
)
def test_a_wrong_config_names_the_key(changes: dict[str, object], message: str) -> None:
    with pytest.raises(CutawayError, match=message):
        parse(ModelConfig, {**PRESETS["llama-tiny"], **SMALL, **changes}, "recipe.model")


@pytest.mark.parametrize("window", [1, 3, 100])
@torch.no_grad()
def test_a_window_hides_what_lies_further_back_also_step_by_step(window: int) -> None:
    model = small("decoder-only", "rotary", n_layers=3, window=window, window_layers=[0, 2])
    assert isinstance(model, DecoderOnly)
    text = ids(2, 12)
    with Trace(model, watch=["*.pattern"]) as trace:
        full = model(text)
    for layer in range(3):
        pattern = trace[f"decoder.layers.{layer}.self_attn.pattern"]  # (B, H, T, S)
        distance = torch.arange(12)[:, None] - torch.arange(12)
        far = (distance >= window) & (distance >= 0)
        assert bool((pattern[..., far] == 0).all()) == (layer != 1 or not bool(far.any()))
        assert bool((pattern[..., (distance >= 0) & ~far] > 0).all())
    cache = model.begin(2)
    for t in range(12):
        close(model.step(text[:, t : t + 1], cache), full[:, t])
    plain = small("decoder-only", "rotary", n_layers=3)
    plain.load_state_dict(model.state_dict())
    assert torch.allclose(plain(text), full, atol=1e-4) == (window == 100)


@pytest.mark.parametrize("held", [math.nan, math.inf, 1e30])
@torch.no_grad()
def test_what_stands_at_padding_has_no_influence_whatever_it_holds(held: float) -> None:
    """A row of an embedding that is not finite reaches no token through the mask (pytorch#101967)."""
    rows, mask = ids(2, 9), torch.ones(2, 9, dtype=torch.bool)
    for family in ("encoder-only", "encoder-decoder", "decoder-only"):
        model = small(family, "learned" if family == "encoder-only" else "rotary")
        left = family == "decoder-only"
        mask[:] = True
        mask[1, slice(0, 4) if left else slice(5, None)] = False
        padded = rows.masked_fill(~mask, 0)
        assert isinstance(model, EncoderDecoder | EncoderOnly | DecoderOnly)
        embed = model.source_embed if isinstance(model, EncoderDecoder) else model.embed
        outputs = []
        for value in (0.0, held):
            embed.tokens.weight[0] = value
            if isinstance(model, EncoderDecoder):
                outputs.append(model.hidden(padded, ids(2, 4, seed=5), mask))
                cache = model.begin(padded, mask)
                outputs[-1] = torch.cat([outputs[-1], model.step(ids(2, 1), cache)[:, None, 1:25]], dim=1)
            else:
                outputs.append(model.hidden(padded, mask=mask)[mask])
            if isinstance(model, DecoderOnly):
                cache = model.begin(2)
                model.step(padded, cache, mask)
                outputs[-1] = torch.cat(
                    [outputs[-1].flatten(), model.step(ids(2, 1), cache)[:, 1:].flatten()]
                )
        assert bool(outputs[1].isfinite().all())
        assert torch.equal(outputs[0], outputs[1])
