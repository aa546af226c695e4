"""A hidden token is one that the mask of padding hides: to the numbers of a model that is given that mask."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from tests.inspection.changes.altered import Change, RunOf, changed, differ, same
from torch import Tensor

from cutaway import find, load
from cutaway.decode.generation import generate
from cutaway.decode.own_settings import own_settings
from cutaway.decode.search import GREEDY, Limits
from cutaway.decode.translator import BEAM, Translator
from cutaway.inspection.changes.lists import edits
from cutaway.inspection.changes.writing import write
from cutaway.inspection.outcome import never_written
from cutaway.inspection.runs import Run
from cutaway.inspection.runs import run as prepare
from cutaway.inspection.source_effect import source_effect
from cutaway.inspection.wiring import places, sides
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.zoo import POET, TRANSLATOR

SENTENCE = "她的妹妹在北京工作。"
PLACES = [[2], [0], [1, 4], [0, 3, 6], [2, 3, 4]]


def kept(run: Run, tokens: Sequence[int]) -> Tensor:
    """The mask of what the first stack reads, False at these places."""
    read = run.source or run.target
    assert read is not None
    mask = torch.ones(1, len(read), dtype=torch.bool)
    mask[0, list(tokens)] = False
    return mask


def masked(run: Run, tokens: Sequence[int]) -> Tensor:
    """The logits (T, V) of the unchanged model, given the mask."""
    name = "source_mask" if isinstance(run.model, EncoderDecoder) else "mask"
    with torch.no_grad():
        return run.model(**run.inputs, **{name: kept(run, tokens)})[0]


def hiding(tokens: Sequence[int]) -> Change:
    return {"op": "hide", "token": list(tokens)}


@pytest.mark.parametrize("tokens", PLACES, ids=str)
def test_it_is_the_mask_of_padding(run: Run, tokens: list[int]) -> None:
    found = changed(run, hiding(tokens))
    same(found, masked(run, tokens))
    differ(found, run.forward()[0])
    # one by one they are hidden together
    assert torch.equal(changed(run, *({"op": "hide", "token": token} for token in tokens)), found)


def test_no_token_attends_to_it(run: Run) -> None:
    hidden = [1, 4]
    for side in sides(run.model):
        if side == "decoder" and run.source is not None:
            continue
        names = [f"{place.attention_path}.pattern" for place in places(run.model, side)]
        _, trace = run.forward(names, edits([hiding(hidden)], run))
        for name in names:
            pattern = trace[name]
            assert bool((pattern[..., hidden] == 0).all())
            seen = pattern.sum(dim=-1)
            # a decoder's first tokens may see nothing but what is hidden
            assert bool(((seen - 1).abs() < 1e-5).logical_or(seen == 0).all()) and bool((seen > 0).any())


@pytest.mark.parametrize("structure", ["post-norm pair", "T5"])
def test_a_decoder_of_a_pair_can_be_kept_from_its_own_tokens(run_of: RunOf, structure: str) -> None:
    run = run_of(structure)
    names = [f"{place.attention_path}.pattern" for place in places(run.model, "decoder")]
    change: Change = {"op": "hide", "side": "decoder", "token": 2}
    _, trace = run.forward(names, edits([change], run))
    for name in names:
        assert bool((trace[name][..., 2] == 0).all()) and bool((trace[name][..., 1] > 0).any())
    before, after = run.forward()[0], changed(run, change)
    same(after[:2], before[:2])
    differ(after[3:], before[3:])


@pytest.mark.parametrize("structure", ["Llama", "GPT-2", "post-norm pair"])
def test_it_is_a_text_that_never_had_it(run_of: RunOf, structure: str) -> None:
    run = run_of(structure)
    tokens = [1, 4]
    inputs = dict(run.inputs)
    name = "source" if run.source is not None else "ids"
    left = [place for place in range(inputs[name].shape[1]) if place not in tokens]
    inputs[name] = inputs[name][:, left]
    with torch.no_grad():
        expected = run.model(**inputs)[0]
    found = changed(run, hiding(tokens))
    same(found if run.source is not None else found[left], expected)


def test_its_fall_is_that_of_source_effect() -> None:
    asked = prepare(load(find(TRANSLATOR)), SENTENCE)
    assert asked.source is not None
    effect = source_effect(asked)
    rows = range(len(asked.outcome))
    for token in range(len(asked.source)):
        logits, _ = asked.forward(edit=edits([{"op": "hide", "token": token}], asked))
        found = effect.log_probs - logits.log_softmax(dim=-1)[rows, asked.outcome.ids]
        torch.testing.assert_close(found, effect.effect[:, token], rtol=0, atol=1e-4)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("tokens", [[4], [5], [4, 5], [0, 1, 6]], ids=str)
def test_what_is_written_is_what_is_translated_of_a_masked_source(tokens: list[int], beam: int) -> None:
    loaded = load(find(TRANSLATOR))
    asked, translator = prepare(loaded, SENTENCE), Translator(loaded)
    assert asked.source is not None and isinstance(loaded.model, EncoderDecoder)
    with torch.inference_mode():
        cache = loaded.model.begin(asked.inputs["source"], kept(asked, tokens))
    ((expected, *_),) = generate(
        loaded.model,
        cache,
        [translator.start(translator.prepare(SENTENCE))],
        search=own_settings(loaded).search(BEAM, beam=beam, temperature=0.0),
        limits=translator.limits(asked.source.ids),
        eos_id=translator.end_ids,
        forbidden=never_written(asked),
    )
    found = write(asked, [hiding(tokens)], beam=beam)
    assert found.ids == expected.ids and found.ids != asked.outcome.ids
    assert found.log_probs == pytest.approx(expected.log_probs, abs=1e-4)


@pytest.mark.parametrize("beam", [1, 3])
def test_what_a_decoder_writes_on_is_what_it_writes_after_the_text_without_it(beam: int) -> None:
    loaded = load(find(POET))
    whole = prepare(loaded, "床前明月光", max_new_tokens=0)
    assert whole.target is not None and isinstance(loaded.model, DecoderOnly)
    ids = [*whole.target.ids, whole.outcome.ids[-1]]
    left = [id for place, id in enumerate(ids) if place not in (2, 3)]
    ((expected, *_),) = generate(
        loaded.model,
        loaded.model.begin(1),
        [left],
        search=own_settings(loaded).search(GREEDY, beam=beam, temperature=0.0),
        limits=Limits(12),
        eos_id=loaded.config.eos_id,
        forbidden=never_written(whole),
    )
    found = write(whole, [hiding([2, 3])], beam=beam, max_new_tokens=12)
    assert found.ids == expected.ids
    assert found.log_probs == pytest.approx(expected.log_probs, abs=1e-4)
    assert found.ids != write(whole, beam=beam, max_new_tokens=12).ids


def test_what_stands_there_has_no_influence(run: Run) -> None:
    read = run.source or run.target
    assert read is not None
    other = replace(read, ids=[*read.ids[:2], (read.ids[2] + 7) % run.model.config.vocab_size, *read.ids[3:]])
    swapped = replace(run, **{"source" if run.source is not None else "target": other})
    assert torch.equal(changed(swapped, hiding([2])), changed(run, hiding([2])))
