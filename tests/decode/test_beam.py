"""Beam search against exhaustive search, against transformers', and against its own promises."""

import itertools
import math
from typing import Any

import pytest
import torch
from tests.nearness import tolerance

from cutaway.checkpoint.folder import save
from cutaway.decode.beam import BeamStep, beam_search
from cutaway.decode.generation import generate
from cutaway.decode.sampling import Sampling
from cutaway.decode.score import score_targets
from cutaway.decode.search import LengthPenalty, Limits, Rules, Search

EOS = 0
LOGITS = 10.0  # what a toy's log-probabilities are made of, at most
ALPHAS = [-1.0, 0.0, 0.6, 1.0, 2.0]


def brute_force(model, source: int, vocab_size: int, most: int, penalty: LengthPenalty, least: int = 0):
    """All results of a toy model with their scores, best first."""
    history = (source, 1)
    scored = [
        (math.fsum(model.log_probs(history, ids)) / penalty.divisor(len(ids)), ids)
        for ids in model.results(history, vocab_size, EOS, most, least)
    ]
    return sorted(scored, reverse=True)


def searched(
    model, sources: list[int], search: Search, limits, eos_id: int | list[int] | None = EOS, **options
):
    """What a toy model writes after the prompt [1], for every source."""
    prompts = [[1]] * len(sources)
    return beam_search(
        model, model.begin(sources), prompts, search=search, limits=limits, eos_id=eos_id, **options
    )


@pytest.mark.parametrize("kind", ["gnmt", "power"])
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("spread", [0.3, 2.0])
def test_wide_beam_is_exhaustive_search(random_toy, kind, alpha: float, spread: float):
    # 3 tokens, at most 5 long: 63 results, at most 32 hypotheses side by side.
    model, penalty = random_toy(3, spread), LengthPenalty(alpha, kind)
    sources = [0, 1]
    found = searched(model, sources, Search(beam=32, n_best=32, length_penalty=penalty), Limits(5))
    for source, results in zip(sources, found, strict=True):
        expected = brute_force(model, source, 3, 5, penalty)[:32]
        assert [result.score for result in results] == pytest.approx(
            [score for score, _ in expected], abs=tolerance(LOGITS + abs(expected[-1][0]), 5 * 3)
        )
        assert tuple(results[0].ids) == expected[0][1]


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("least", [0, 2, 5])
def test_wide_beam_stops_no_sooner_than_the_best_is_certain(random_toy, alpha: float, least: int):
    model, penalty = random_toy(3, 1.0, seed=5), LengthPenalty(alpha, "power")
    for source in range(6):
        (results,) = searched(
            model, [source], Search(beam=32, length_penalty=penalty), Limits(5, min_new_tokens=least)
        )
        score, ids = brute_force(model, source, 3, 5, penalty, least)[0]
        assert tuple(results[0].ids) == ids
        assert results[0].score == pytest.approx(score, abs=tolerance(LOGITS + abs(score), 5 * 3))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("beam", [1, 2, 4, 7])
def test_first_result_does_not_depend_on_how_many_are_asked_for(random_toy, alpha: float, beam: int):
    model = random_toy(6, 1.0, seed=beam)
    sources = list(range(12))

    def run(n_best: int):
        return searched(
            model, sources, Search(beam=beam, n_best=n_best, length_penalty=LengthPenalty(alpha)), Limits(9)
        )

    most = run(beam)
    for n_best in range(1, beam):
        for few, many in zip(run(n_best), most, strict=True):
            assert few == many[:n_best]
    for results in most:
        assert len(results) == beam
        assert len({tuple(result.ids) for result in results}) == beam
        scores = [result.score for result in results]
        assert scores == sorted(scores, reverse=True)


def test_every_score_is_the_documented_formula_over_forced_log_probs(tiny):
    model = tiny("marian")
    source, mask, sources = sources_of([9, 1, 4, 17])
    for kind, alpha in itertools.product(("gnmt", "power"), (0.0, 0.6, 1.0)):
        with torch.no_grad():
            cache = model.begin(source, mask)
        found = beam_search(
            model,
            cache,
            [[0]] * 4,
            search=Search(beam=5, n_best=5, length_penalty=LengthPenalty(alpha, kind)),
            limits=Limits(12),
            eos_id=2,
        )
        for ids, results in zip(sources, found, strict=True):
            forced = score_targets(model, [ids] * 5, [result.ids for result in results])
            for result, log_probs in zip(results, forced, strict=True):
                length = len(result.ids)
                assert length == len(result.log_probs)
                assert (result.finish == "stop") == (result.ids[-1] == 2)
                assert result.log_probs == pytest.approx(log_probs, abs=1e-4)
                divisor = ((5 + length) / 6 if kind == "gnmt" else length) ** alpha
                assert result.score == pytest.approx(sum(result.log_probs) / divisor, abs=1e-5)


@pytest.mark.parametrize("kind", ["marian", "t5"])
@pytest.mark.parametrize("beam", [1, 4])
def test_a_sentence_does_not_depend_on_its_company(tiny, kind: str, beam: int):
    model = tiny(kind)
    lengths = [9, 1, 4, 17, 2, 30]
    source, mask, sources = sources_of(lengths)
    limits = [Limits(2 * length + 5, max_len=64) for length in lengths]

    def run(cache, limits: list[Limits]):
        return beam_search(
            model,
            cache,
            [[0]] * len(limits),
            search=Search(beam=beam, n_best=beam, alternatives=2, attention="full"),
            limits=limits,
            eos_id=2,
        )

    with torch.no_grad():
        together = run(model.begin(source, mask), limits)
        for row, ids in enumerate(sources):
            alone = run(model.begin(torch.tensor([ids])), [limits[row]])[0]
            assert [r.ids for r in alone] == [r.ids for r in together[row]]
            for one, other in zip(alone, together[row], strict=True):
                assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)
                assert one.finish == other.finish
                assert one.cross_attention is not None and other.cross_attention is not None
                assert torch.allclose(one.cross_attention, other.cross_attention[..., : len(ids)], atol=1e-4)


def test_attention_and_alternatives_follow_each_hypothesis(tiny):
    from cutaway.tap import Trace

    model = tiny("marian")
    source = torch.tensor([[5, 9, 11, 4, 2]])
    with torch.no_grad():
        cache = model.begin(source)
    (results,) = beam_search(
        model,
        cache,
        [[0]],
        search=Search(beam=6, n_best=6, alternatives=3, attention="full"),
        limits=Limits(10),
        eos_id=2,
    )
    assert len({tuple(result.ids[:2]) for result in results}) > 1
    for result in results:
        target = torch.tensor([[0, *result.ids[:-1]]])
        with torch.no_grad(), Trace(model, ["decoder.layers.*.cross_attn.pattern"]) as trace:
            logits = model(source=source, target=target)[0]
        expected = torch.cat([trace[f"decoder.layers.{layer}.cross_attn.pattern"] for layer in range(2)])
        assert result.cross_attention is not None
        assert torch.allclose(result.cross_attention, expected, atol=1e-5)
        scores = logits.log_softmax(dim=-1)
        best = scores.topk(3).indices.tolist()
        wanted = [
            ids if chosen in ids else [*ids, chosen] for ids, chosen in zip(best, result.ids, strict=True)
        ]
        assert [[id for id, _ in step] for step in result.alternatives] == wanted
        flat = [log_prob for step in result.alternatives for _, log_prob in step]
        assert flat == pytest.approx(
            [float(row[id]) for row, ids in zip(scores, wanted, strict=True) for id in ids], abs=1e-4
        )


def test_prompts_of_different_lengths_search_as_if_alone(tiny):
    model = tiny("llama")
    prompts = [[5, 6, 7], [8], [9, 10, 11, 12, 13, 14]]
    together = beam_search(
        model, model.begin(3), prompts, search=Search(beam=4, n_best=4), limits=Limits(8), eos_id=2
    )
    for prompt, results in zip(prompts, together, strict=True):
        (alone,) = beam_search(
            model, model.begin(1), [prompt], search=Search(beam=4, n_best=4), limits=Limits(8), eos_id=2
        )
        assert [r.ids for r in alone] == [r.ids for r in results]


def test_without_length_normalisation_the_empty_result_may_win(toy):
    # The end is the likeliest first token; the text 1 1 has the better mean.
    model = toy(lambda history: [0.4, 0.35, 0.25] if len(history) < 3 else [0.02, 0.97, 0.01])

    def run(alpha: float, least: int = 0, most: int = 4):
        (results,) = searched(
            model,
            [0],
            Search(beam=3, length_penalty=LengthPenalty(alpha)),
            Limits(most, min_new_tokens=least),
        )
        return results[0]

    assert run(0.0).ids == [EOS]
    assert run(0.0).log_probs == pytest.approx([math.log(0.4)], abs=1e-6)
    assert run(1.0).ids != [EOS]
    assert run(0.0, least=1).ids[0] != EOS
    assert len(run(0.0, least=3).ids) == 4


def test_a_model_that_never_ends_gives_exactly_n_cut_results(toy):
    model = toy([0.0, 0.5, 0.3, 0.2])
    (results,) = searched(model, [0], Search(beam=4, n_best=3), Limits(5))
    assert [len(result.ids) for result in results] == [5, 5, 5]
    assert [result.finish for result in results] == ["length"] * 3
    assert len({tuple(result.ids) for result in results}) == 3
    assert results[0].ids == [1] * 5


def test_a_finished_sentence_is_frozen_and_computed_no_more(toy):
    model = toy(lambda history: [0.97, 0.02, 0.01] if history[0] == 0 else [0.0, 0.6, 0.4])
    found = searched(model, [0, 1], Search(beam=2), Limits(40))
    assert found[0][0].ids == [EOS]
    assert found[0][0].finish == "stop"
    assert max(len(history) for history in model.fed if history[0] == 0) < 12
    assert len(found[1][0].ids) == 40


def test_width_one_without_an_early_end_is_greedy(tiny):
    model = tiny("llama")
    prompts = [[5, 6], [7, 8]]
    greedy = generate(model, model.begin(2), prompts, limits=Limits(15), eos_id=None)
    search = beam_search(
        model, model.begin(2), prompts, search=Search(beam=1), limits=Limits(15), eos_id=None
    )
    assert [result.ids for [result] in greedy] == [results[0].ids for results in search]


def test_repetition_penalty_ranks_by_penalised_log_probabilities(toy):
    model = toy([0.05, 0.6, 0.35])
    (results,) = searched(
        model,
        [0],
        Search(beam=9, length_penalty=LengthPenalty(0.0), sampling=Sampling(repetition_penalty=3.0)),
        Limits(2),
        eos_id=None,
    )
    # after the prompt 1; they are not made to sum to 1 again
    assert results[0].ids == [2, 1]
    assert results[0].score == pytest.approx(math.log(0.35) + 3 * math.log(0.6), abs=1e-5)
    assert results[0].log_probs == pytest.approx([math.log(0.35), math.log(0.6)], abs=1e-5)


def test_forbidden_ids_never_stand_in_a_result(random_toy):
    model = random_toy(5)
    (results,) = searched(model, [0], Search(beam=6, n_best=6), Limits(6), forbidden=[2, 3], eos_id=[EOS, 4])
    assert not {id for result in results for id in result.ids} & {2, 3}
    assert {result.ids[-1] for result in results if result.finish == "stop"} <= {EOS, 4}


def test_fewer_results_only_where_fewer_exist(toy):
    model = toy([0.7, 0.3])
    (results,) = searched(model, [0], Search(beam=8, n_best=8), Limits(3))
    assert sorted(result.ids for result in results) == [[0], [1, 0], [1, 1, 0], [1, 1, 1]]


def test_the_observed_tree_leads_to_every_result(random_toy):
    model, steps = random_toy(5, 1.0, seed=3), list[BeamStep]()
    found = searched(
        model,
        [0, 1],
        Search(beam=3, n_best=3, length_penalty=LengthPenalty(1.0, "power"), observe=steps.append),
        [Limits(6), Limits(4)],
    )
    for row, results in enumerate(found):
        live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
        ended: dict[tuple[int, ...], float] = {}
        for step in (step for step in steps if step.row == row):
            totals = [candidate.total for candidate in step.candidates]
            assert totals == sorted(totals, reverse=True)
            following: list[tuple[tuple[int, ...], float]] = []
            for candidate in step.candidates:
                ids, total = live[candidate.parent]
                assert candidate.total < total
                ids = (*ids, candidate.id)
                assert candidate.total == pytest.approx(sum(model.log_probs((row, 1), ids)), abs=1e-5)
                if candidate.fate == "live":
                    following.append((ids, candidate.total))
                elif candidate.fate != "dropped":
                    assert (candidate.fate == "stop") == (candidate.id == EOS)
                    ended[ids] = candidate.total
            live = following
        for result in results:
            assert result.score == pytest.approx(ended[tuple(result.ids)] / len(result.ids), abs=1e-6)


# Settings of a search, and what transformers calls them.
BAD_WORDS = ((3, 11), (7,), (9, 9, 4), (2,))
SETTINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"sampling": Sampling(repetition_penalty=1.7)}, {"repetition_penalty": 1.7}),
    ({"sampling": Sampling(repetition_penalty=0.8)}, {"repetition_penalty": 0.8}),
    ({"rules": Rules(no_repeat_ngram=1)}, {"no_repeat_ngram_size": 1}),
    ({"rules": Rules(no_repeat_ngram=2)}, {"no_repeat_ngram_size": 2}),
    ({"rules": Rules(bad_words=BAD_WORDS)}, {"bad_words_ids": [list(word) for word in BAD_WORDS]}),
    (
        {"rules": Rules(suppressed=(5, 8, 20), suppressed_first=(2, 4, 9))},
        {"suppress_tokens": [5, 8, 20], "begin_suppress_tokens": [2, 4, 9]},
    ),
    ({"rules": Rules(end_at_limit=(2,))}, {"forced_eos_token_id": 2}),
]


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize(("ours_asked", "theirs_asked"), SETTINGS)
def test_settings_are_those_of_transformers(tiny, tmp_path, beam: int, ours_asked, theirs_asked):
    """Greedy and by beams, ids and scores, of a decoder alone and of one with an encoder."""
    import transformers

    prompts = [[5, 9, 4], [7, 8, 11], [9, 9, 3]]
    for kind, opens in (
        ("llama", transformers.AutoModelForCausalLM),
        ("marian", transformers.AutoModelForSeq2SeqLM),
    ):
        ours = tiny(kind, eos_id=2, max_len=32)
        save(tmp_path / kind, ours)
        theirs: Any = opens.from_pretrained(tmp_path / kind)
        with torch.no_grad():
            cache = ours.begin(3) if kind == "llama" else ours.begin(torch.tensor(prompts))
            expected = theirs.generate(
                torch.tensor(prompts),
                attention_mask=torch.ones(3, 3, dtype=torch.long),
                num_beams=beam,
                num_return_sequences=beam,
                max_new_tokens=10,
                length_penalty=0.7,
                early_stopping="never",
                eos_token_id=2,
                pad_token_id=0,
                do_sample=False,
                return_dict_in_generate=True,
                output_scores=True,
                **theirs_asked,
            )
        begun = prompts if kind == "llama" else [[0]] * 3
        search = Search(beam=beam, n_best=beam, length_penalty=LengthPenalty(0.7, "power"), **ours_asked)
        found = generate(ours, cache, begun, search=search, limits=Limits(10), eos_id=2)
        flat = [result for results in found for result in results]
        if beam > 1:
            scores = expected.sequences_scores.tolist()
            assert [result.score for result in flat] == pytest.approx(scores, abs=1e-4)
        for result, sequence in zip(flat, expected.sequences[:, len(begun[0]) :].tolist(), strict=True):
            assert result.ids == sequence[: len(result.ids)]
            assert set(sequence[len(result.ids) :]) <= {0, 2}
            if "forced_eos_token_id" in theirs_asked:
                assert result.ids[-1] == 2
                assert (result.finish == "length") == (len(result.ids) == 10)


@pytest.mark.parametrize("alpha", [-0.5, 0.0, 0.7, 1.3])
def test_results_are_those_of_transformers(tiny, tmp_path, alpha: float):
    """Same weights, `early_stopping="never"`: the setting in which its stop rule is exact too."""
    import transformers

    ours = tiny("llama", eos_id=2, max_len=32)
    save(tmp_path, ours)
    theirs: Any = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    prompts = [[5, 9, 4], [7, 8, 11], [3, 3, 3]]
    with torch.no_grad():
        expected = theirs.generate(
            torch.tensor(prompts),
            attention_mask=torch.ones(3, 3, dtype=torch.long),
            num_beams=4,
            num_return_sequences=4,
            max_new_tokens=10,
            length_penalty=alpha,
            early_stopping="never",
            eos_token_id=2,
            pad_token_id=0,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
        )
    found = beam_search(
        ours,
        ours.begin(3),
        prompts,
        search=Search(beam=4, n_best=4, length_penalty=LengthPenalty(alpha, "power")),
        limits=Limits(10),
        eos_id=2,
    )
    flat = [result for results in found for result in results]
    assert [result.score for result in flat] == pytest.approx(expected.sequences_scores.tolist(), abs=1e-4)
    for result, sequence in zip(flat, expected.sequences[:, 3:].tolist(), strict=True):
        assert result.ids == sequence[: len(result.ids)]
        # padding
        assert set(sequence[len(result.ids) :]) <= {0, 2}


def sources_of(lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor, list[list[int]]]:
    generator = torch.Generator().manual_seed(2)
    rows = [[*torch.randint(3, 29, (length - 1,), generator=generator).tolist(), 2] for length in lengths]
    source = torch.zeros(len(rows), max(lengths), dtype=torch.long)
    for row, ids in enumerate(rows):
        source[row, : len(ids)] = torch.tensor(ids)
    return source, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None], rows
