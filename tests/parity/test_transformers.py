"""Ours against transformers' on tiny random weights: one file, one forward path, the same numbers."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from tests.nearness import assert_near
from tests.parity.reference import (
    CASES,
    Case,
    make,
    our_output,
    padding,
    parity,
    random_ids,
    save_and_open,
    their_output,
)
from torch import Tensor

from cutaway.checkpoint import folder
from cutaway.checkpoint.published import ARCHITECTURES, OWN_TYPE
from cutaway.checkpoint.table import explicit
from cutaway.decode.generation import generate
from cutaway.decode.search import LengthPenalty, Limits, Search
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.encoder_only import EncoderOnly
from cutaway.tap import Trace

Pair = tuple[Case, transformers.PreTrainedModel, folder.Loaded, Path]
SUMMED = 6 * 48  # up to five layers and the output, none wider than 48


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    case: Case = request.param
    theirs, where = make(case), tmp_path_factory.mktemp("theirs")
    return case, theirs, save_and_open(case, theirs, where), where


def test_every_architecture_has_a_case() -> None:
    assert {a.model_type for a in ARCHITECTURES} == {case.model_type for case in CASES}


@pytest.mark.parametrize("side", ["none", "right", "left"])
def test_outputs(pair: Pair, side: str) -> None:
    _, theirs, ours, _ = pair
    ids, target, mask = random_ids(2, 11, 1), random_ids(2, 6, 2), padding(side)
    encoder_decoder = isinstance(ours.model, EncoderDecoder)
    if side == "none":
        mask = torch.ones_like(mask)
    if side == "left" and (encoder_decoder or theirs.config.model_type == "distilbert"):
        # There the reference counts positions from the first column on, padding or not, and is wrong (faults.md):
        # a row padded on the left must give what it gives alone.
        expected = their_output(theirs, ids, torch.ones_like(mask), target)
        alone = their_output(theirs, ids[1:, 4:], mask[1:, 4:], target[1:])
        expected[1:, -alone.shape[1] :] = alone
    elif side == "left" and isinstance(ours.model, EncoderOnly):
        expected = their_output(theirs, ids, torch.ones_like(mask), target)
        expected[1:, 4:] = their_output(theirs, ids[1:, 4:], mask[1:, 4:], target)
    else:
        expected = their_output(theirs, ids, mask, target)
    got = our_output(ours, ids.masked_fill(~mask, 0), None if side == "none" else mask, target)
    counted = torch.ones(2, 6, dtype=torch.bool) if encoder_decoder else mask
    assert_near(got[counted], expected[counted], SUMMED)
    assert bool(got.isfinite().all())


def test_attention_patterns(pair: Pair) -> None:
    _, theirs, ours, _ = pair
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
        our_output(ours, ids, mask, target)
    for name, patterns in expected.items():
        assert len(patterns) > 0
        for i, pattern in enumerate(patterns):
            assert_near(trace[name.format(i) + ".pattern"], pattern, SUMMED)


def test_step_by_step(pair: Pair) -> None:
    _, theirs, ours, _ = pair
    if isinstance(ours.model, EncoderOnly):
        assert not hasattr(ours.model, "step")
        return
    ids, target, mask = random_ids(2, 11, 5), random_ids(2, 6, 6), padding("right")
    with torch.no_grad():
        if isinstance(ours.model, EncoderDecoder):
            expected = their_output(theirs, ids, mask, target)
            cache, fed = ours.model.begin(ids, mask), target
        else:
            expected = their_output(theirs, ids, torch.ones_like(mask), target)
            cache, fed = ours.model.begin(2), ids
        for t in range(fed.shape[1]):
            logits = ours.model.step(fed[:, t : t + 1], cache)
            assert_near(logits, expected[:, t], SUMMED)


def test_left_padded_prompts(pair: Pair) -> None:
    _, theirs, ours, _ = pair
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
            assert_near(got, expected, SUMMED)


def test_written_and_opened_there(pair: Pair, tmp_path: Path) -> None:
    case, theirs, ours, _ = pair
    folder.save(tmp_path / "ours", ours.model)
    kind = _written_type(tmp_path / "ours")
    assert kind == SAID_AS.get(case.model_type, case.model_type)
    again, info = _opened(tmp_path / "ours")
    missing = [name for name in info["missing_keys"] if not name.startswith(UNREAD)]
    assert not missing and not info["unexpected_keys"] and not info["mismatched_keys"]
    if kind == case.model_type:
        _assert_same_tensors(again, theirs)
    tied = [_tied(m) for m in (theirs, again)]
    assert tied[0] == tied[1]
    # The same in meaning: their own model made of our config says the same.
    ids, target, mask = random_ids(2, 11, 12), random_ids(2, 6, 13), torch.ones(2, 11, dtype=torch.bool)
    again.set_attn_implementation("eager")
    outputs = [their_output(m, ids, mask, target) for m in (theirs, again.eval())]
    torch.testing.assert_close(outputs[1], outputs[0], rtol=0, atol=0)
    kept = ("scale_embedding", "pad_token_id", "bos_token_id", "eos_token_id", "max_position_embeddings")
    for key in (*kept, "router_aux_loss_coef"):
        assert getattr(again.config, key, None) == getattr(theirs.config, key, None), key
    reread = folder.load(tmp_path / "ours")
    assert explicit(reread.config) == explicit(ours.config), case.name


# Architectures that another one says as well: a model of theirs is written in its words.
SAID_AS = {"xlm-roberta": "roberta", "mt5": "t5", "phi3": "mistral"}
# What no output comes from: poolers, and of a model without tied matrices those that would be the one for all uses.
UNREAD = ("pooler.", "model.shared.", "cls.predictions.bias", "lm_head.bias")


def _written_type(where: Path) -> str:
    return json.loads((where / "config.json").read_text())["model_type"]


def _opened(where: Path) -> tuple[transformers.PreTrainedModel, dict[str, set[str]]]:
    """What the reference makes of a folder, and which tensors it missed."""
    named = json.loads((where / "config.json").read_text())["architectures"][0]
    opened = getattr(transformers, named).from_pretrained(where, output_loading_info=True)
    assert isinstance(opened, tuple)
    return opened


def _assert_same_tensors(model: transformers.PreTrainedModel, theirs: transformers.PreTrainedModel) -> None:
    expected = theirs.state_dict()
    for name, tensor in model.state_dict().items():
        assert name.startswith(UNREAD) or torch.equal(tensor, expected[name]), name


def _tied(model: transformers.PreTrainedModel) -> bool | None:
    output = model.get_output_embeddings()
    return None if output is None else getattr(output, "weight") is model.get_input_embeddings().weight


def test_sharded_both_ways(pair: Pair, tmp_path: Path) -> None:
    case, theirs, ours, _ = pair
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    assert (tmp_path / "theirs" / "model.safetensors.index.json").exists()
    for name, parameter in folder.load(tmp_path / "theirs").model.named_parameters():
        assert torch.equal(parameter, ours.model.get_parameter(name)), name
    folder.save(tmp_path / "ours", ours.model, shard_size=20_000)
    assert (tmp_path / "ours" / "model.safetensors.index.json").exists()
    # Of a type that they do not know, they would make a model of their default size.
    assert _written_type(tmp_path / "ours") != OWN_TYPE
    if _written_type(tmp_path / "ours") == case.model_type:
        _assert_same_tensors(_opened(tmp_path / "ours")[0], theirs)


@pytest.mark.parametrize("beam", [1, 4])
def test_generated_ids(pair: Pair, beam: int) -> None:
    """The whole way to ids, where their own behaviour is right: see tests/decode for the rest."""
    _, theirs, ours, _ = pair
    if isinstance(ours.model, EncoderOnly):
        return
    ids, mask = random_ids(2, 11, 10), padding("right")
    limits = Limits(max_new_tokens=12)
    with torch.inference_mode():
        if isinstance(ours.model, EncoderDecoder):
            start = theirs.config.decoder_start_token_id
            cache, prompts = ours.model.begin(ids.masked_fill(~mask, 0), mask), [[start], [start]]
            inputs = {"input_ids": ids.masked_fill(~mask, 0), "attention_mask": mask.long()}
        else:
            cache, prompts = ours.model.begin(2), ids.tolist()
            inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        eos = ours.config.eos_id
        search = Search(beam=beam, length_penalty=LengthPenalty(1.0, "power"))
        found = generate(ours.model, cache, prompts, search=search, limits=limits, eos_id=eos)
    expected: Tensor = getattr(theirs, "generate")(
        **inputs, max_new_tokens=12, num_beams=beam, do_sample=False, early_stopping="never",
        pad_token_id=0, length_penalty=1.0, forced_eos_token_id=None,
    )  # fmt: skip
    for row, [result] in enumerate(found):
        new = expected[row, len(prompts[row]) :].tolist()
        new = new[: new.index(eos)] if eos in new else new
        assert [id for id in result.ids if id != eos] == new


def test_parity_is_what_the_documents_say(tmp_path: Path) -> None:
    """docs/checkpoints.md prints this figure for every case; here one of them is checked to be a figure."""
    assert 0 < parity(CASES[0], tmp_path) < 1e-5
