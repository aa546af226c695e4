"""Ours against transformers' on tiny random weights: one file, one forward path, the same numbers."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from cutaway.checkpoint import folder
from cutaway.decode.generate import Limits, generate
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.encoder_only import EncoderOnly
from cutaway.tap import Trace

V = 97


@dataclass(frozen=True)
class Case:
    name: str
    model: type[transformers.PreTrainedModel]
    config: transformers.PretrainedConfig


SEQ2SEQ = {
    "vocab_size": V, "d_model": 32, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "scale_embedding": True,
}  # fmt: skip
CASES = [
    Case(
        "marian",
        transformers.MarianMTModel,
        transformers.MarianConfig(
            **SEQ2SEQ, decoder_start_token_id=0, activation_function="silu", forced_eos_token_id=None
        ),
    ),
    Case(
        "m2m_100",
        transformers.M2M100ForConditionalGeneration,
        transformers.M2M100Config(**SEQ2SEQ, decoder_start_token_id=2),
    ),
    Case(
        "llama",
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(
            vocab_size=V, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False, rms_norm_eps=1e-5,
        ),
    ),
    Case(
        "llama, tied",
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(
            vocab_size=V, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=64, tie_word_embeddings=True, attention_bias=True,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        ),
    ),
    Case(
        "gpt2",
        transformers.GPT2LMHeadModel,
        transformers.GPT2Config(
            vocab_size=V, n_embd=32, n_layer=3, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2
        ),
    ),
    Case(
        "bert",
        transformers.BertForMaskedLM,
        transformers.BertConfig(
            vocab_size=V, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
            max_position_embeddings=64,
        ),
    ),
]  # fmt: skip


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def pair(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[transformers.PreTrainedModel, folder.Loaded]:
    """Their model with weights of std 0.15, so that nothing hides, and the folder it saved, opened by us."""
    case: Case = request.param
    torch.manual_seed(0)
    theirs = case.model(case.config).eval()
    theirs.set_attn_implementation("eager")
    with torch.no_grad():
        for tensor in theirs.state_dict().values():
            if tensor.dtype.is_floating_point:
                tensor.normal_(0, 0.15)
    theirs.tie_weights()
    for module in theirs.modules():  # the fixed sinusoid tables are state there; they must stay what they are
        if isinstance(module, MarianSinusoidalPositionalEmbedding):
            module.weight.data.copy_(module.create_weight())
        if isinstance(module, M2M100SinusoidalPositionalEmbedding):
            rows, width = module.weights.shape
            module.make_weights(rows, width, module.padding_idx)
    theirs.save_pretrained(tmp_path / "theirs")
    return theirs, folder.load(tmp_path / "theirs")


def random_ids(rows: int, length: int, seed: int) -> Tensor:
    return torch.randint(3, V, (rows, length), generator=torch.Generator().manual_seed(seed))


def right_padding() -> Tensor:
    mask = torch.ones(2, 11, dtype=torch.bool)
    mask[1, 7:] = False
    return mask


@torch.no_grad()
def their_logits(model: transformers.PreTrainedModel, ids: Tensor, mask: Tensor, target: Tensor) -> Tensor:
    filled = ids.masked_fill(~mask, 0)
    if model.config.is_encoder_decoder:
        return model(input_ids=filled, attention_mask=mask.long(), decoder_input_ids=target).logits
    return model(input_ids=filled, attention_mask=mask.long()).logits


@torch.no_grad()
def our_logits(loaded: folder.Loaded, ids: Tensor, mask: Tensor | None, target: Tensor) -> Tensor:
    model = loaded.model
    if isinstance(model, EncoderDecoder):
        return model(ids, target, mask)
    if isinstance(model, DecoderOnly):
        return model(ids, mask=mask)
    return model(ids, mask)


def test_logits_alone_and_padded(pair: tuple[transformers.PreTrainedModel, folder.Loaded]) -> None:
    theirs, ours = pair
    ids, target, mask = random_ids(2, 11, 1), random_ids(2, 6, 2), right_padding()
    everywhere = torch.ones_like(mask)
    expected = their_logits(theirs, ids, everywhere, target)
    torch.testing.assert_close(our_logits(ours, ids, None, target), expected, rtol=0, atol=1e-5)
    counted = torch.ones(2, 6, dtype=torch.bool) if theirs.config.is_encoder_decoder else mask
    expected = their_logits(theirs, ids, mask, target)
    got = our_logits(ours, ids.masked_fill(~mask, 0), mask, target)
    torch.testing.assert_close(got[counted], expected[counted], rtol=0, atol=1e-5)


def test_attention_patterns(pair: tuple[transformers.PreTrainedModel, folder.Loaded]) -> None:
    theirs, ours = pair
    ids, target, mask = random_ids(1, 11, 3), random_ids(1, 6, 4), torch.ones(1, 11, dtype=torch.bool)
    with torch.no_grad():
        if theirs.config.is_encoder_decoder:
            out = theirs(input_ids=ids, decoder_input_ids=target, output_attentions=True)
            expected = {
                "encoder.layers.{}.self_attn": out.encoder_attentions,
                "decoder.layers.{}.self_attn": out.decoder_attentions,
                "decoder.layers.{}.cross_attn": out.cross_attentions,
            }
        else:
            out = theirs(input_ids=ids, output_attentions=True)
            stack = "encoder" if isinstance(ours.model, EncoderOnly) else "decoder"
            expected = {stack + ".layers.{}.self_attn": out.attentions}
    with Trace(ours.model, watch=["*.pattern"]) as trace:
        our_logits(ours, ids, mask, target)
    for name, patterns in expected.items():
        assert len(patterns) > 0
        for i, pattern in enumerate(patterns):
            torch.testing.assert_close(trace[name.format(i) + ".pattern"], pattern, rtol=0, atol=1e-6)


def test_step_by_step(pair: tuple[transformers.PreTrainedModel, folder.Loaded]) -> None:
    _, ours = pair
    if isinstance(ours.model, EncoderOnly):
        assert not hasattr(ours.model, "step")
        return
    ids, target, mask = random_ids(2, 11, 5), random_ids(2, 6, 6), right_padding()
    with torch.no_grad():
        if isinstance(ours.model, EncoderDecoder):
            full, cache, fed = ours.model(ids, target, mask), ours.model.begin(ids, mask), target
        else:
            full, cache, fed = ours.model(ids), ours.model.begin(2), ids
        for t in range(fed.shape[1]):
            logits = ours.model.step(fed[:, t : t + 1], cache)
            torch.testing.assert_close(logits, full[:, t], rtol=0, atol=1e-5)


def test_left_padded_prompts(pair: tuple[transformers.PreTrainedModel, folder.Loaded]) -> None:
    theirs, ours = pair
    if not isinstance(ours.model, DecoderOnly):
        return
    long, short = random_ids(1, 9, 7), random_ids(1, 4, 8)
    prompt = torch.cat([long, torch.cat([torch.zeros(1, 5, dtype=torch.long), short], dim=1)])
    mask = torch.ones_like(prompt, dtype=torch.bool)
    mask[1, :5] = False
    follow = random_ids(2, 3, 9)
    with torch.no_grad():
        cache = ours.model.begin(2)
        logits = [ours.model.step(prompt, cache, mask)]
        logits += [ours.model.step(follow[:, t : t + 1], cache) for t in range(3)]
        for row, alone in enumerate((long, short)):
            expected = theirs(torch.cat([alone, follow[row : row + 1]], dim=1)).logits[
                0, alone.shape[1] - 1 :
            ]
            got = torch.stack([step[row] for step in logits])
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)


def test_written_and_opened_there(
    pair: tuple[transformers.PreTrainedModel, folder.Loaded], tmp_path: Path
) -> None:
    theirs, ours = pair
    folder.save(tmp_path / "ours", ours.model)
    opened = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert isinstance(opened, tuple)
    again, info = opened
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    expected = theirs.state_dict()
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    tied = [
        getattr(m.get_output_embeddings(), "weight") is m.get_input_embeddings().weight
        for m in (theirs, again)
    ]
    assert tied[0] == tied[1]
    for key in ("rope_parameters", "scale_embedding", "tie_word_embeddings"):
        assert getattr(again.config, key, None) == getattr(theirs.config, key, None)
    reread = folder.load(tmp_path / "ours")
    assert reread.config == ours.config
    assert reread.config.decoder_start_id == theirs.config.to_dict().get("decoder_start_token_id")


def test_greedy_and_beam_ids(pair: tuple[transformers.PreTrainedModel, folder.Loaded]) -> None:
    """The whole way to ids, where their own behaviour is right: see tests/decode for the rest."""
    theirs, ours = pair
    if not isinstance(ours.model, EncoderDecoder):
        return
    ids, mask = random_ids(2, 11, 10), right_padding()
    start = theirs.config.decoder_start_token_id
    expected = getattr(theirs, "generate")(
        input_ids=ids.masked_fill(~mask, 0), attention_mask=mask.long(), max_new_tokens=12, num_beams=1,
        do_sample=False, forced_eos_token_id=None,
    )  # fmt: skip
    with torch.inference_mode():
        cache = ours.model.begin(ids.masked_fill(~mask, 0), mask)
        got = generate(ours.model, cache, [[start], [start]], limits=Limits(max_new_tokens=12), eos_id=2)
    for row, result in enumerate(got):
        theirs_row = expected[row, 1:].tolist()
        theirs_row = theirs_row[: theirs_row.index(2)] if 2 in theirs_row else theirs_row
        ours_row = [i for i in result.ids if i != 2]
        assert ours_row == theirs_row
