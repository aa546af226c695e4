"""Greedy search, sampling and streaming: every row as if it were alone, within its limits."""

import math

import pytest
import torch

from cutaway.decode.generation import generate, stream
from cutaway.decode.sampling import Sampling
from cutaway.decode.score import score_continuations, score_targets
from cutaway.decode.search import LengthPenalty, Limits, Search
from cutaway.decode.stepping import Generated
from cutaway.errors import CutawayError
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder

EOS = 2
DECODERS = ["gpt2", "llama", "alibi"]
SAMPLINGS = [
    Sampling(),
    Sampling(temperature=0.8, seed=3),
    Sampling(temperature=1.2, top_k=9, top_p=0.9, min_p=0.02, repetition_penalty=1.3, seed=4),
    Sampling(repetition_penalty=1.7),
]


def continued(model, cache, prompts, **options) -> list[Generated]:
    """The one result of every prompt."""
    return [result for [result] in generate(model, cache, prompts, **options)]


def prompts_of(lengths: list[int], vocab_size: int = 29) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(3, vocab_size, (length,), generator=generator).tolist() for length in lengths]


def sources_of(lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, ids in enumerate(prompts_of(lengths)):
        source[row, : len(ids)] = torch.tensor(ids)
    return source, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


@torch.no_grad()
def next_logits(model, prompt: list[int], source: torch.Tensor | None) -> torch.Tensor:
    """The naive way: the whole text again at every step, no cache."""
    ids = torch.tensor([prompt])
    return (model(ids=ids) if source is None else model(source=source, target=ids))[0, -1].float()


def naive_greedy(
    model, prompt: list[int], source, most: int, penalty: float = 1.0
) -> tuple[list[int], list[float]]:
    ids: list[int] = []
    log_probs: list[float] = []
    while len(ids) < most and EOS not in ids:
        logits = next_logits(model, [*prompt, *ids], source)
        ranked = logits.clone()
        for id in {*prompt, *ids}:
            ranked[id] = ranked[id] * penalty if ranked[id] < 0 else ranked[id] / penalty
        ids.append(int(ranked.argmax()))
        log_probs.append(float(logits.log_softmax(dim=-1)[ids[-1]]))
    return ids, log_probs


@pytest.mark.parametrize("penalty", [1.0, 1.7])
@pytest.mark.parametrize("kind", DECODERS)
def test_prompts_of_any_length_together_equal_each_alone_without_a_cache(tiny, kind: str, penalty: float):
    model = tiny(kind)
    assert isinstance(model, DecoderOnly)
    prompts = prompts_of([1, 12, 3, 30, 7])
    found = continued(
        model,
        model.begin(len(prompts)),
        prompts,
        search=Search(sampling=Sampling(repetition_penalty=penalty)),
        limits=Limits(20, max_len=64),
        eos_id=EOS,
    )
    for prompt, result in zip(prompts, found, strict=True):
        ids, log_probs = naive_greedy(model, prompt, None, 20, penalty)
        assert result.ids == ids
        assert result.log_probs == pytest.approx(log_probs, abs=1e-4)
        assert result.finish == ("stop" if ids[-1] == EOS else "length")


@pytest.mark.parametrize("kind", ["marian", "t5"])
def test_sources_of_any_length_together_equal_each_alone_without_a_cache(tiny, kind: str):
    model = tiny(kind)
    assert isinstance(model, EncoderDecoder)
    lengths = [1, 9, 2, 25]
    source, mask = sources_of(lengths)
    with torch.no_grad():
        cache = model.begin(source, mask)
    found = continued(model, cache, [[0]] * 4, limits=Limits(40), eos_id=EOS)
    for row, result in enumerate(found):
        alone = source[row : row + 1, : lengths[row]]
        ids, log_probs = naive_greedy(model, [0], alone, 40)
        assert result.ids == ids
        assert result.log_probs == pytest.approx(log_probs, abs=1e-4)
        assert result.score == pytest.approx(sum(log_probs) / LengthPenalty().divisor(len(ids)), abs=1e-4)
        forced = score_targets(model, [alone[0].tolist()], [ids])[0]
        assert result.log_probs == pytest.approx(forced, abs=1e-4)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_row_does_not_depend_on_its_company_or_place(tiny, sampling: Sampling):
    model = tiny("llama")
    prompts = prompts_of([5, 1, 14, 3, 8, 2])

    def run(rows: list[int]):
        return continued(
            model,
            model.begin(len(rows)),
            [prompts[row] for row in rows],
            search=Search(sampling=sampling, alternatives=3),
            limits=[Limits(6 + 3 * row, min_new_tokens=row) for row in rows],
            eos_id=EOS,
            places=rows,
        )

    together = run(list(range(6)))
    # rows end at different times
    assert len({len(result.ids) for result in together}) > 2
    for rows in ([0], [1], [5], [4, 2], [3, 0, 5]):
        for row, result in zip(rows, run(rows), strict=True):
            assert result.ids == together[row].ids
            assert result.log_probs == pytest.approx(together[row].log_probs, abs=1e-4)
            assert result.finish == together[row].finish


def test_seeds_decide_and_are_derived_from_the_place(tiny):
    model, prompt = tiny("gpt2"), prompts_of([4])[0]

    def run(seed: int, n: int = 1):
        found = continued(
            model,
            model.begin(n),
            [prompt] * n,
            search=Search(sampling=Sampling(temperature=1.5, seed=seed)),
            limits=Limits(12),
            eos_id=None,
        )
        return [result.ids for result in found]

    assert run(1) == run(1)
    assert run(1) != run(2)
    three = run(1, 3)
    assert three[0] == run(1)[0]
    assert len({tuple(ids) for ids in three}) == 3


def test_log_probs_and_alternatives_are_the_models_own(toy):
    model = toy([0.1, 0.2, 0.1, 0.6])
    sampling = Sampling(temperature=2.0, top_k=2, repetition_penalty=1.1, seed=1)
    (result,) = continued(
        model,
        model.begin([0]),
        [[0]],
        search=Search(sampling=sampling, alternatives=2),
        limits=Limits(40),
        eos_id=None,
    )
    # top_k leaves the best two
    assert set(result.ids) == {1, 3}
    assert result.log_probs == pytest.approx([math.log({1: 0.2, 3: 0.6}[id]) for id in result.ids], abs=1e-6)
    assert [[id for id, _ in step] for step in result.alternatives] == [[3, 1]] * 40
    assert result.alternatives[7][0][1] == pytest.approx(math.log(0.6), abs=1e-6)


def test_penalty_reaches_back_over_all_tokens_and_the_prompt(toy):
    # Token 1 is best, then 0; 3 and 2 are far behind. A penalty on all earlier tokens makes every one come once.
    model = toy([0.3, 0.4, 0.1, 0.2])
    (result,) = continued(
        model,
        model.begin([0]),
        [[1]],
        search=Search(sampling=Sampling(repetition_penalty=9.0)),
        limits=Limits(3),
        eos_id=None,
    )
    assert result.ids == [0, 3, 2]


def test_limits_count_new_tokens_of_each_row(toy):
    model = toy(lambda history: [0.0, 0.3, 0.7] if history[0] == 0 else [0.5, 0.5, 0.0])
    prompts = [[1] * 3, [1] * 20, [1], [0] * 7]
    limits = [Limits(10, min_new_tokens=5), Limits(10, min_new_tokens=2), Limits(1), Limits(4)]
    found = continued(model, model.begin([0, 0, 0, 1]), prompts, limits=limits, eos_id=EOS)
    assert [result.ids for result in found] == [[1] * 5 + [2], [1, 1, 2], [2], [0] * 4]
    assert [result.finish for result in found] == ["stop", "stop", "stop", "length"]


def test_finished_rows_are_computed_no_more(toy):
    model = toy(lambda history: [1.0, 0.0, 0.0] if history[0] == 0 else [0.0, 0.0, 1.0])
    continued(model, model.begin([0, 1, 0]), [[1]] * 3, limits=[Limits(5), Limits(5), Limits(3)], eos_id=EOS)
    assert all(count <= 2 for count in model.fed.values())
    assert [history for history in model.fed if history[0] == 1] == [(1, 1)]
    # both rows of source 0 at their third step
    assert model.fed[(0, 1, 0, 0)] == 2
    # one of them went on
    assert model.fed[(0, 1, 0, 0, 0)] == 1


def test_prompt_near_the_limit_gets_what_is_left(tiny):
    model = tiny("gpt2")
    prompts = prompts_of([59, 64])
    (result,) = continued(model, model.begin(1), prompts[:1], limits=Limits(50, max_len=64), eos_id=None)
    assert (len(result.ids), result.finish) == (5, "length")
    with pytest.raises(CutawayError, match=r"64 tokens.*limit is 64"):
        continued(model, model.begin(1), prompts[1:], limits=Limits(50, max_len=64), eos_id=None)


def test_forbidden_ids_and_several_end_ids(toy):
    model = toy([0.5, 0.3, 0.15, 0.05])
    (result,) = continued(model, model.begin([0]), [[1]], limits=Limits(9), eos_id=[3, 1], forbidden=[0])
    assert (result.ids, result.finish) == ([1], "stop")
    (result,) = continued(
        model, model.begin([0]), [[1]], limits=Limits(9, min_new_tokens=2), eos_id=[3, 1], forbidden=[0]
    )
    assert (result.ids, result.finish) == ([2, 2, 1], "stop")


@pytest.mark.parametrize(
    "search",
    [
        Search(),
        Search(sampling=Sampling(temperature=1.0)),
        Search(sampling=Sampling(repetition_penalty=2.0)),
        Search(beam=3, n_best=2),
    ],
)
def test_where_nothing_may_be_written_it_is_said(toy, search: Search):
    model = toy(lambda history: [0.5, 0.5, 0.0] if len(history) < 4 else [0.0, 0.0, 1.0])
    for forbidden, place in (([0, 1, 2], 1), ([2], 3)):
        with pytest.raises(CutawayError, match=f"at new token {place} no token may be written"):
            continued(
                model,
                model.begin([0]),
                [[1]],
                search=search,
                limits=Limits(9),
                eos_id=None,
                forbidden=forbidden,
            )
    # an end that a beam found in time is an answer
    (result,) = continued(
        model, model.begin([0]), [[1]], search=Search(beam=3), limits=Limits(9), eos_id=0, forbidden=[2]
    )
    assert result.finish == "stop"


@pytest.mark.parametrize(
    "search", [Search(), Search(sampling=Sampling(temperature=1.0)), Search(beam=3, n_best=2)]
)
def test_no_new_token_is_an_empty_result_beside_others(tiny, search: Search):
    model, prompts = tiny("llama"), prompts_of([3, 9, 5])
    limits = [Limits(4), Limits(0), Limits(6)]
    found = generate(model, model.begin(3), prompts, search=search, limits=limits, eos_id=None)
    assert [len(results[0].ids) for results in found] == [4, 0, 6]
    assert [(each.ids, each.finish, each.score) for each in found[1]] == [([], "length", 0.0)]
    for place in (0, 2):
        alone = generate(
            model,
            model.begin(1),
            [prompts[place]],
            search=search,
            limits=limits[place],
            eos_id=None,
            places=[place],
        )
        assert [each.ids for each in alone[0]] == [each.ids for each in found[place]]
    assert [
        each[0].ids
        for each in generate(model, model.begin(3), prompts, search=search, limits=Limits(0), eos_id=None)
    ] == [[], [], []]


def test_the_chosen_token_is_among_its_alternatives(tiny):
    model = tiny("llama")
    for search in (Search(alternatives=1), Search(beam=4, n_best=4, alternatives=1)):
        found = generate(
            model,
            model.begin(1),
            [[5, 6]],
            search=search,
            limits=Limits(12, min_new_tokens=12),
            eos_id=list(range(0, 29, 2)),
        )
        lengths: set[int] = set()
        for result in found[0]:
            for id, log_prob, others in zip(result.ids, result.log_probs, result.alternatives, strict=True):
                assert dict(others)[id] == log_prob
                assert [p for _, p in others] == sorted((p for _, p in others), reverse=True)
                lengths.add(len(others))
        # half of the vocabulary ends the text, which is too early, so the best one was often not written
        assert lengths == {1, 2}


def test_top_p_zero_is_greedy(tiny):
    model, prompts = tiny("llama"), prompts_of([3, 9])
    greedy = continued(model, model.begin(2), prompts, limits=Limits(9), eos_id=EOS)
    none = Search(sampling=Sampling(temperature=0.8, top_p=0.0))
    assert continued(model, model.begin(2), prompts, search=none, limits=Limits(9), eos_id=EOS) == greedy


def test_stream_gives_each_step_once_and_joins_to_the_whole(tiny):
    model, prompts = tiny("llama"), prompts_of([3, 9])
    limits = [Limits(4), Limits(9)]
    whole = continued(model, model.begin(2), prompts, limits=limits, eos_id=EOS)
    steps = list(stream(model, model.begin(2), prompts, limits=limits, eos_id=EOS))
    for row, result in enumerate(whole):
        ids = [step.ids[step.rows.index(row)] for step in steps if row in step.rows]
        ends = [step.finish[step.rows.index(row)] for step in steps if row in step.rows]
        assert ids == result.ids
        assert ends == [None] * (len(ids) - 1) + [result.finish]


def test_stream_computes_nothing_ahead_and_leaves_the_consumers_mode_alone(toy):
    model = toy([0.5, 0.5])
    steps = stream(model, model.begin([0]), [[1]], limits=Limits(5), eos_id=None)
    assert not model.fed
    next(steps)
    assert len(model.fed) == 1
    assert not torch.is_inference_mode_enabled()
    assert torch.ones(1, requires_grad=True).sum().requires_grad


def test_cross_attention_is_that_of_the_uncached_forward(tiny):
    from cutaway.tap import Trace

    model = tiny("marian")
    source, mask = sources_of([7, 3])
    with torch.no_grad():
        full, mean, none = (
            continued(
                model,
                model.begin(source, mask),
                [[0]] * 2,
                search=Search(attention=attention),
                limits=Limits(8),
                eos_id=EOS,
            )
            for attention in ("full", "mean", None)
        )
    assert [r.ids for r in full] == [r.ids for r in mean] == [r.ids for r in none]
    assert none[0].cross_attention is None
    for row, result in enumerate(full):
        target = torch.tensor([[0, *result.ids[:-1]]])
        with torch.no_grad(), Trace(model, ["decoder.layers.*.cross_attn.pattern"]) as trace:
            model(source=source[row : row + 1], source_mask=mask[row : row + 1], target=target)
        expected = torch.cat([trace[f"decoder.layers.{layer}.cross_attn.pattern"] for layer in range(2)])
        attention = result.cross_attention
        assert attention is not None
        assert attention.shape == (2, 4, len(result.ids), 7)
        assert torch.allclose(attention, expected, atol=1e-5)
        average = mean[row].cross_attention
        assert average is not None
        assert torch.allclose(average, expected.mean(dim=(0, 1)), atol=1e-5)
        assert average.sum(dim=1).allclose(torch.ones(len(result.ids)))
    assert full[1].cross_attention is not None
    # padding is never looked at
    assert full[1].cross_attention[..., 3:].abs().max() == 0


def test_attention_of_a_model_without_a_source_is_refused(tiny):
    model = tiny("gpt2")
    with pytest.raises(CutawayError, match="no cross-attention"):
        continued(model, model.begin(1), [[3]], search=Search(attention="mean"), limits=Limits(2), eos_id=EOS)


def test_damaged_weights_are_named(toy):
    model = toy(lambda history: [math.nan if len(history) > 3 else 1.0, 0.0])
    model.logits_of = lambda history: [math.nan, 0.0] if len(history) > 3 else [1.0, 0.0]
    for sampling in SAMPLINGS[:2]:
        with pytest.raises(CutawayError, match="new token 3 is not a number"):
            continued(
                model,
                model.begin([0]),
                [[1]],
                search=Search(sampling=sampling),
                limits=Limits(9),
                eos_id=None,
            )


def test_scores_of_continuations_are_those_of_generating(tiny):
    model, prompts = tiny("alibi"), prompts_of([2, 11, 5])
    found = continued(model, model.begin(3), prompts, limits=Limits(9), eos_id=EOS)
    forced = score_continuations(model, prompts, [result.ids for result in found])
    for result, log_probs in zip(found, forced, strict=True):
        assert result.log_probs == pytest.approx(log_probs, abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"places": [1, 2]}, "places: 2, prompts: 1"),
        ({"limits": [Limits(1)] * 3}, "limits: 3, prompts: 1"),
        ({"limits": Limits()}, "nothing limits the result"),
        ({"prompts": [[]]}, "prompt 1 has no token"),
    ],
)
def test_requests_that_make_no_sense_are_refused(toy, arguments: dict, message: str):
    model = toy([1.0])
    request = {"prompts": [[0]], "limits": Limits(1), "eos_id": None, **arguments}
    with pytest.raises(CutawayError, match=message):
        continued(model, model.begin([0]), request.pop("prompts"), **request)


def test_no_prompts_give_no_results(toy):
    model = toy([1.0])
    assert continued(model, model.begin([]), [], limits=Limits(1), eos_id=None) == []
