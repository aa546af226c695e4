"""What is written under changes, in a cache and by a beam, is what full forward passes under them say."""

import math
from dataclasses import replace

import pytest
import torch
from tests.inspection.changes.altered import Change, RunOf
from torch import Tensor, nn

from cutaway import CutawayError, Translator, find, load
from cutaway.decode.complete import continue_text
from cutaway.decode.gaps import fill
from cutaway.decode.search import LengthPenalty, Limits, Search
from cutaway.inspection.changes.lists import Changes, edits
from cutaway.inspection.changes.writing import write
from cutaway.inspection.outcome import never_written
from cutaway.inspection.questions.diff import diff
from cutaway.inspection.runs import Run, Tokens, run
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.tap import Trace

NEW = 3
END = 390
CASES = [
    ("post-norm pair", {}), ("T5", {}), ("Llama", {}), ("GPT-2", {}), ("Gemma 2", {}),
    ("pair with experts", {}), ("GPT-2", {"position": "alibi"}), ("Llama", {"qk_norm": True}),
]  # fmt: skip


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]} {case[1] or ''}")
def case(request: pytest.FixtureRequest, run_of: RunOf) -> Run:
    structure, settings = request.param
    return writing_run(run_of, structure, **settings)


def writing_run(run_of: RunOf, structure: str, **settings: object) -> Run:
    """A run whose model can write: it has an end token, and a start token where it has an encoder."""
    plain = run_of(structure, **settings)
    ids = {"eos_id": END, **({"decoder_start_id": 0} if isinstance(plain.model, EncoderDecoder) else {})}
    made = run_of(structure, **{**settings, **ids})
    with torch.no_grad():
        for parameter in made.model.parameters():
            # so that attention is sharp, and every change is felt
            parameter.mul_(2.0)
        for module in made.model.modules():
            if isinstance(module, nn.LayerNorm):
                # random ones make all tokens of a post-norm model alike
                module.reset_parameters()
    if made.source is None:
        return made
    assert made.target is not None
    return replace(made, target=Tokens([0, *made.target.ids[1:]], made.target.pieces))


def changes_for(case: Run) -> list[list[Change]]:
    """Lists that act in every way that decoding step by step could get wrong."""
    pair, config = isinstance(case.model, EncoderDecoder), case.model.config
    dec: Change = {"side": "decoder"} if pair else {}
    here = len(prompt_of(case))  # the position of the first token that was written, when it is read again
    lists: list[list[Change]] = [
        [{"op": "head", **dec, "layer": 1, "head": 2, "set": "mean"}],
        [{"op": "attn", **dec, "layer": 0, "head": "*", "q": "*", "k": 1, "value": 0}],
        [{"op": "attn", **dec, "layer": "*", "head": 0, "q": here, "k": 0, "value": 1}],
        [{"op": "attn", **dec, "layer": "*", "head": 0, "q": here + 1, "row": [0, 3]}],
        [{"op": "pattern", **dec, "layer": "*", "head": 1, "kind": "uniform"}],
        [{"op": "pattern", **dec, "layer": 0, "head": "*", "kind": "previous"}, {"op": "scale"}]
        if config.attn_scale != 1.0
        else [{"op": "pattern", **dec, "layer": 0, "head": "*", "kind": "identity"}],
        [{"op": "pattern", **dec, "layer": 0, "head": "*", "kind": "given", "rows": [[1]] * (here + 1)}],
        [{"op": "attn", **dec, "layer": 1, "head": "*", "q": "*", "row": [0, 1, 1]}],
        [{"op": "pos", "set": "none"}],
        [{"op": "pos", **dec, "set": "shuffle", "seed": 4}],
        [{"op": "embedding", **dec, "token": here, "id": 20}],
        [{"op": "expert", **dec, "layer": 0, "token": here, "ban": [0, 1]}]
        if config.n_experts
        else [{"op": "neuron", **dec, "layer": 1, "n": 3, "token": here + 1, "value": 40}],
        [{"op": "resid", **dec, "layer": 0, "token": here + 1, "from": "self", "from_token": 1}],
        [{"op": "norm", **dec, "part": "ffn", "layer": 1}, {"op": "ffn", **dec, "layer": 0}],
        [{"op": "token", "at": here, "force": 33}, {"op": "token", "ban": [40, 41]}],
        [{"op": "dropout", "seed": 2, "rate": 0.2}],
        [{"op": "temperature", "value": 2.5}],
        [{"op": "hide", **dec, "token": [1, here]} if not pair else {"op": "hide", "token": 2}],
        [{"op": "hide", **dec, "token": here + 1}],
    ]  # fmt: skip
    if config.position in ("learned", "sinusoidal"):
        lists.append([{"op": "pos", **dec, "set": "shift", "by": 2}])
    if pair:
        lists += [
            [{"op": "attn", "side": "cross", "layer": "*", "head": "*", "q": here + 1, "row": [0, 0, 1]}],
            [{"op": "pattern", "side": "cross", "layer": 1, "head": "*", "kind": "argmax"}],
            [{"op": "mask", "set": "closed"}, {"op": "attention", "side": "cross", "layer": 2}],
        ]
    return lists


def prompt_of(case: Run) -> list[int]:
    assert case.target is not None
    return [0] if case.source is not None else [*case.target.ids, case.outcome.ids[-1]]


def next_logits(case: Run, changes: Changes, ids: list[int]) -> Tensor:
    """(V,) after `ids`, by one forward pass over all of them."""
    inputs = {**case.inputs, "target" if case.source is not None else "ids": torch.tensor([ids])}
    with torch.no_grad(), Trace(case.model, edit=edits(changes, case, {"self": case})):
        return case.model(**inputs)[0, -1].double()


def test_cached_greedy_writing_is_repeated_forward_passes(case: Run) -> None:
    plain = write(case, beam=1, max_new_tokens=NEW)
    for changes in changes_for(case):
        found = write(case, changes, runs={"self": case}, beam=1, max_new_tokens=NEW)
        ids, log_probs = prompt_of(case), []
        while len(log_probs) < NEW and ids[-1:] != [END]:
            logits = next_logits(case, changes, ids)
            chosen = int(logits.index_fill(0, torch.tensor(never_written(case)), -math.inf).argmax())
            log_probs.append(float(logits.log_softmax(dim=-1)[chosen]))
            ids.append(chosen)
        assert found.ids == ids[-len(log_probs) :], changes
        assert found.log_probs == pytest.approx(log_probs, abs=2e-4), changes
        moved = max(abs(a - b) for a, b in zip(found.log_probs, plain.log_probs, strict=False))
        assert found.ids != plain.ids or moved > 1e-5, f"{changes}: nothing is changed, so nothing is tested"


def test_beam_search_under_a_change_scores_as_forced_decoding_does(case: Run) -> None:
    for changes in changes_for(case)[:4]:
        found = write(case, changes, runs={"self": case}, beam=3, max_new_tokens=NEW)
        ids, forced = prompt_of(case), []
        for id in found.ids:
            forced.append(float(next_logits(case, changes, ids).log_softmax(dim=-1)[id]))
            ids.append(id)
        assert found.log_probs == pytest.approx(forced, abs=2e-4), changes
        score = sum(forced) / LengthPenalty().divisor(len(forced))
        assert found.score == pytest.approx(score, abs=2e-4), changes


def test_forced_and_banned_tokens_are_written_and_not(run_of: RunOf) -> None:
    case = writing_run(run_of, "post-norm pair")
    for beam in (1, 4):
        assert write(case, [{"op": "token", "at": 0, "force": 50}], beam=beam).ids[0] == 50
        best = write(case, beam=beam).ids
        assert best[0] != write(case, [{"op": "token", "at": 0, "ban": [best[0]]}], beam=beam).ids[0]
        assert len(write(case, [{"op": "token", "at": 2, "force": END}], beam=1).ids) <= 3


def test_an_encoder_change_reaches_what_is_written(run_of: RunOf) -> None:
    case = writing_run(run_of, "post-norm pair")
    skipped = write(case, [{"op": "layer", "side": "encoder", "layer": "*"}], beam=1, max_new_tokens=8)
    deep = case.model
    assert isinstance(deep, EncoderDecoder)
    kept, deep.encoder.layers = deep.encoder.layers, nn.ModuleList()
    try:
        assert write(case, beam=1, max_new_tokens=8) == skipped
    finally:
        deep.encoder.layers = kept


def test_a_translators_alignment_is_that_of_the_changed_model() -> None:
    translator = run(load(find("translate-zh-en")), "我爱你。")
    assert translator.source is not None
    change = {"op": "pattern", "side": "cross", "layer": 1, "head": "*", "kind": "uniform"}
    with Trace(translator.model, edit=edits([change], translator)):
        search = Search(beam=3, n_best=2, attention="full")
        [found] = Translator(translator.loaded).translate(["我爱你。"], search=search)
    for hypothesis in found.hypotheses:
        assert hypothesis.cross_attention is not None
        uniform = torch.full_like(hypothesis.cross_attention[1], 1 / len(translator.source))
        torch.testing.assert_close(hypothesis.cross_attention[1], uniform)
        assert (hypothesis.cross_attention[2] - uniform).abs().max() > 0.1


def test_edits_of_a_text_that_was_read_already_are_refused(run_of: RunOf) -> None:
    case = run_of("GPT-2")
    used = edits([{"op": "head", "layer": 0, "head": 0}], case)
    case.forward(edit=used)
    with pytest.raises(CutawayError, match="make them anew"):
        case.forward(edit=used)


def test_the_limit_of_positions_is_named_when_a_shift_meets_it(run_of: RunOf) -> None:
    case = writing_run(run_of, "GPT-2")
    with pytest.raises(CutawayError, match="position 32 was reached by a shift"):
        write(
            case, [{"op": "pos", "set": "shift", "by": 20}, {"op": "token", "ban": [END]}], max_new_tokens=24
        )


def test_bundled_models_write_what_they_write() -> None:
    translator = run(load(find("translate-zh-en")), "我爱你。")
    plain = write(translator)
    expected = Translator(translator.loaded).translate(["我爱你。"])[0].best
    assert (plain.text, plain.ids, plain.log_probs) == (expected.text, expected.ids, expected.log_probs)
    banned = write(translator, [{"op": "token", "at": 0, "ban": [plain.ids[0]]}])
    assert banned.ids[0] != plain.ids[0]
    poet = run(load(find("poet-zh")), "床前明月光，")
    whole = continue_text(poet.loaded, ["床前明月光，"], limits=Limits(9))[0].best.ids
    assert [
        *poet.outcome.ids[-1:],
        *write(poet, max_new_tokens=8).ids,
        # the run has its first token
    ] == whole
    bert = run(load(find("bert-tiny")), "She was [MASK] happy.")
    filled = fill(bert.loaded, "She was [MASK] happy.", top=2)
    gap = filled.gaps[0]
    assert write(bert).ids[gap.position] == gap.candidates[0].id
    assert write(bert).score == pytest.approx(math.log(gap.candidates[0].probability), abs=1e-3)
    second = write(bert, [{"op": "token", "at": gap.position, "ban": [gap.candidates[0].id]}])
    assert second.ids[gap.position] == gap.candidates[1].id
    with pytest.raises(CutawayError, match="leave beam and max_new_tokens out"):
        write(bert, beam=2)


def test_a_gap_gets_what_fill_writes_and_neither_a_control_token_nor_a_row_without_piece(
    run_of: RunOf,
) -> None:
    loaded = run_of("BERT", vocab_size=500).loaded
    tokenizer = loaded.require_tokenizer()
    bias = loaded.model.get_parameter("head.unembed.bias")
    with torch.no_grad():
        bias[450], bias[tokenizer.require("eos")] = 500.0, 400.0
    read = run(loaded, "我爱[MASK]学习[MASK]")
    expected = fill(loaded, "我爱[MASK]学习[MASK]")
    found = write(read)
    assert found.text == expected.text
    for gap in expected.gaps:
        assert found.ids[gap.position] == gap.candidates[0].id
    compared = diff(read, [{"op": "head", "layer": 0, "head": 0}])
    assert compared.ids == found.ids and compared.pieces == found.pieces
