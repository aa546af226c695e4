"""What a run reads and stands before, in models that write and in those that give vectors."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
import torch

from cutaway import CutawayError, Tokenizer
from cutaway.checkpoint.folder import Loaded, load
from cutaway.decode.complete import continue_text
from cutaway.decode.search import Limits, Search
from cutaway.decode.translator import Translator
from cutaway.inspection.questions.diff import diff
from cutaway.inspection.questions.lens import lens
from cutaway.inspection.questions.overview import overview
from cutaway.inspection.questions.sweep import sweep
from cutaway.inspection.runs import (
    Run,
    piece_of,
    position_in,
    run,
    stack_named,
    stacks,
    token_id,
)
from cutaway.zoo import POET, find

RunOf = Callable[..., Run]


def opened(run_of: RunOf, structure: str, **changes: object) -> Loaded:
    return run_of(structure, **changes).loaded


def test_a_single_token_is_followed_by_what_the_model_writes(run_of: RunOf) -> None:
    loaded = opened(run_of, "Llama", eos_id=5)
    (first, *_) = loaded.require_tokenizer().encode("天气").ids
    text = loaded.require_tokenizer().decode([first])
    found = run(loaded, text)
    assert found.target is not None and found.target.ids == [first]
    assert found.outcome.ids == continue_text(loaded, [text], limits=Limits(1))[0].best.ids
    assert len(lens(found).outcome) == 1
    more = run(loaded, text, max_new_tokens=3)
    assert more.outcome.ids == continue_text(loaded, [text], limits=Limits(3))[0].best.ids


def test_all_of_a_text_is_read_and_one_token_written_after_it(run_of: RunOf) -> None:
    loaded = opened(run_of, "Llama", eos_id=5)
    ids = loaded.require_tokenizer().encode("今天天气很好").ids
    found, bare = run(loaded, "今天天气很好"), run(loaded, "今天天气很好", max_new_tokens=0)
    written = continue_text(loaded, ["今天天气很好"], limits=Limits(1))[0].best.ids
    assert found.target is not None and bare.target is not None
    assert (found.target.ids, found.outcome.ids) == (ids, [*ids[1:], *written])
    assert (bare.target.ids, bare.outcome.ids) == (ids[:-1], ids[1:])


def test_hidden_states_are_what_the_head_reads(run_of: RunOf) -> None:
    for structure in ("post-norm pair", "Llama", "BERT"):
        read = run_of(structure)
        states, trace = read.hidden(["*.layers.0.resid_pre"])
        logits, _ = read.forward()
        with torch.no_grad():
            assert torch.equal(read.model.head(states[None])[0], logits)
        assert trace.calls


def test_an_edit_reaches_the_hidden_states(run_of: RunOf) -> None:
    read = run_of("no head")
    plain, _ = read.hidden()
    doubled, _ = read.hidden(edit={"encoder.normed": lambda x: x * 2})
    assert torch.equal(doubled, plain * 2)


def test_logits_alone_of_a_model_without_head_are_refused(run_of: RunOf) -> None:
    with pytest.raises(CutawayError, match="no output head"):
        run_of("no head").forward(edit={"encoder.normed": lambda x: x * 2})


def test_texts_that_a_vector_model_cannot_read(run_of: RunOf, small_tokenizer: Tokenizer) -> None:
    loaded = opened(run_of, "no head")
    for text, message in (("  ", "empty"), ("很好" * 40, "but this model reads at most 32")):
        with pytest.raises(CutawayError, match=message):
            run(loaded, text)
    with pytest.raises(CutawayError, match="no tokenizer"):
        run(dataclasses.replace(loaded, tokenizer=None), "好")
    small = dataclasses.replace(loaded, config=dataclasses.replace(loaded.config, vocab_size=4))
    with pytest.raises(CutawayError, match="they do not belong together"):
        run(small, "今天")
    # as `embed` reads it
    assert run(loaded, "[MASK]").outcome.ids == small_tokenizer.encode("[MASK]").ids


@pytest.mark.parametrize(
    ("structure", "parameter", "tap"),
    [
        ("Llama", "decoder.layers.1.self_attn.q_proj.weight", r"decoder\.layers\.1\.self_attn\.q"),
        ("post-norm pair", "encoder.layers.1.mlp.up.bias", r"encoder\.layers\.1\.mlp\.pre"),
        ("Llama", "head.unembed.weight", "its output head"),
        ("no head", "embed.tokens.weight", r"embed\.embed"),
    ],
)
def test_what_is_no_number_is_refused_with_the_first_tap_where_it_is_none(
    run_of: RunOf, structure: str, parameter: str, tap: str
) -> None:
    read = run_of(structure)
    with torch.no_grad():
        read.model.get_parameter(parameter).fill_(torch.nan)
    for ask in (sweep, overview):
        with pytest.raises(
            CutawayError, match=f"tiny {structure}: .* is not a number, from {tap} on: its weights"
        ):
            ask(read)


def test_edits_that_make_no_numbers_are_told_apart_from_logits_that_are_minus_infinity(run_of: RunOf) -> None:
    read = run_of("Llama")
    with pytest.raises(CutawayError, match="under these edits the model's output is not a number"):
        diff(read, [{"op": "temperature", "value": 1e-300}], writing=False)
    found = diff(read, [{"op": "token", "ban": [read.outcome.ids[0]]}], writing=False)
    assert found.changed_log_probs[0] == -torch.inf


def test_several_texts_are_several_runs(run_of: RunOf) -> None:
    """One forward pass has one alignment for each target token (jessevig/bertviz#101): a list
    of texts is no text."""
    loaded = load(find(POET))
    for texts in (["床前明月光", "疑是地上霜"], 5, None):
        with pytest.raises(CutawayError, match="expected one text: a run is one forward pass"):
            run(loaded, cast("str", texts))


def test_at_a_prompt_a_run_a_model_and_an_answer_are_short() -> None:
    loaded = load(find(POET))
    asked = run(loaded, "床前明月光")
    assert repr(loaded).startswith("<poet-zh: decoder-only model of 2,923,200 parameters, from ")
    assert repr(asked) == asked.to_text() and repr(asked).startswith("A text on its way through poet-zh\n")
    found = lens(asked, top=1)
    assert repr(found) == found.to_text() and "Tensor" not in f"{asked!r}{found!r}{loaded!r}"
    assert "2,923,200 个参数" in asked.to_html("zh") and "仅解码器" in asked.to_html("zh")


def test_the_stacks_of_a_run_and_what_a_reader_points_at(run_of: RunOf) -> None:
    pair, writer = run_of("pre-norm pair"), run_of("Llama")
    assert pair.source is not None and pair.target is not None
    assert [(name, each.embedding_name, each.tokens) for name, each in stacks(pair).items()] == [
        ("encoder", "source_embed", pair.source),
        ("decoder", "target_embed", pair.target),
    ]
    assert stack_named(pair, None).name == stack_named(writer, None).name == "decoder"
    assert stack_named(run_of("BERT"), None).name == "encoder"
    with pytest.raises(CutawayError, match=r"decoder-only model has no stack 'encoder'.*, expected decoder"):
        stack_named(writer, "encoder")
    assert [position_in(pair.target, at) for at in (0, -1, 6)] == [0, 6, 6]
    with pytest.raises(
        CutawayError, match="position -8 is not in the text, which has 7 tokens: expected 0 to 6"
    ):
        position_in(pair.target, -8)
    assert token_id(writer, "天") == writer.loaded.require_tokenizer().encode("天").ids[0]
    assert (token_id(writer, 5), piece_of(writer, 9_999)) == (5, "⟨9999⟩")


def test_what_is_made_of_a_run_is_made_once(run_of: RunOf) -> None:
    read, made = run_of("Llama"), list[Run]()

    def length(asked: Run) -> int:
        made.append(asked)
        return len(asked.outcome)

    assert read.kept(length) == read.kept(length) == 7 and made == [read]
    assert dataclasses.replace(read).kept(length) == 7


def test_a_translation_may_be_given_or_searched_for(run_of: RunOf, translator: Path) -> None:
    loaded = load(translator)
    end = loaded.require_tokenizer().require("eos")
    given = run(loaded, "今天很好。", target="time")
    assert given.target is not None and given.outcome.ids[-1] == end
    assert given.outcome.ids[:-1] == loaded.require_tokenizer().target.encode("time").ids
    assert given.target.ids == [loaded.config.decoder_start_id, *given.outcome.ids[:-1]]
    for beam in (1, 4):
        expected = Translator(loaded).translate(["今天很好。"], search=Search(beam=beam))[0].best.ids
        assert run(loaded, "今天很好。", beam=beam).outcome.ids == expected
    with pytest.raises(CutawayError, match="a decoder-only model has no target text"):
        run(opened(run_of, "Llama"), "今天", target="x")
    with pytest.raises(CutawayError, match="the text is empty"):
        run(loaded, " ")
