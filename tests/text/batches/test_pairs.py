import json
import time
from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch

from cutaway.errors import CutawayError
from cutaway.text.batches.batch import IGNORED, Batch
from cutaway.text.batches.pairs import PairBatches, Pairs, pair_examples
from cutaway.text.corpus import Pair, Report
from cutaway.text.tokens.tokenizer import Tokenizer

PAD, START, EOS = 0, 1, 2


def made_up(count: int, seed: int = 0, longest: int = 40) -> Pairs:
    """Pairs whose lengths are spread like sentences', ids that name the example they are of."""
    random = np.random.default_rng(seed)
    lengths = np.clip(random.gamma(3.0, 5.0, count).astype(int) + 1, 1, longest)
    others = np.clip(lengths + random.integers(-4, 5, count), 1, longest)
    return Pairs.of(
        ([*random.integers(3, 90, one).tolist(), EOS], [*random.integers(3, 90, two).tolist(), EOS])
        for one, two in zip(lengths, others, strict=True)
    )


def batches_of(parts: list[Pairs], **settings) -> PairBatches:
    settings = {"budget": 1000, "pad_id": PAD, "decoder_start_id": START, "seed": 7} | settings
    return PairBatches(parts, **settings)


def one_epoch(batches: PairBatches) -> list[Batch]:
    return list(islice(batches, len(batches)))


def counts(batches: list[Batch]) -> Counter[int]:
    return Counter(index for batch in batches for index in batch.index.tolist())


def same(one: Batch, two: Batch) -> bool:
    return one.inputs.keys() == two.inputs.keys() and all(
        torch.equal(left, right)
        for left, right in zip(
            [*one.inputs.values(), one.labels, one.index],
            [*two.inputs.values(), two.labels, two.index],
            strict=True,
        )
    )


def test_every_pair_comes_once_an_epoch_with_its_own_ids():
    pairs = made_up(500)
    batches = one_epoch(batches_of([pairs]))
    assert counts(batches) == Counter(range(500))
    for batch in batches:
        source, target, labels = batch.inputs["source"], batch.inputs["target"], batch.labels
        mask = batch.inputs.get("source_mask", torch.ones_like(source, dtype=torch.bool))
        assert source.dtype == target.dtype == labels.dtype == batch.index.dtype == torch.int64
        assert mask.dtype == torch.bool
        for row, index in enumerate(batch.index.tolist()):
            real = source[row][mask[row]].tolist()
            said = labels[row][labels[row] != IGNORED].tolist()
            assert (real, said) == (pairs.source[index], pairs.target[index])
            assert target[row, : len(said)].tolist() == [START, *said[:-1]]
            assert source[row, len(real) :].eq(PAD).all()
            assert labels[row, len(said) :].eq(IGNORED).all()
            assert not target[row].eq(IGNORED).any()
    assert sum(batch.tokens for batch in batches) == len(pairs.target.flat)


def test_the_mask_is_left_out_exactly_where_nothing_is_padded():
    equal = Pairs.of([([5] * 9, [5] * 9)] * 50)
    assert not any("source_mask" in batch.inputs for batch in batches_of([equal], multiple=1).once())
    assert all("source_mask" in batch.inputs for batch in batches_of([equal], multiple=2).once())
    for batch in batches_of([made_up(500)], multiple=1).once():
        assert ("source_mask" in batch.inputs) == bool(batch.inputs["source"].eq(PAD).any())


@pytest.mark.parametrize("multiple", [1, 2, 4])
def test_grids_stay_in_the_budget_and_little_is_padding(multiple: int):
    pairs = made_up(20_000)
    batches = one_epoch(batches_of([pairs], budget=4000, multiple=multiple))
    grids = [batch.inputs["source"].numel() + batch.labels.numel() for batch in batches]
    assert max(grids) <= 4000
    real = len(pairs.source.flat) + len(pairs.target.flat)
    assert 1 - real / sum(grids) < {1: 0.04, 2: 0.06, 4: 0.12}[multiple]
    rows = [len(batch.index) for batch in batches]
    assert sum(count % 8 for count in rows) <= 7
    for batch in batches:
        assert batch.labels.shape[1] % multiple == batch.inputs["source"].shape[1] % multiple == 0


def test_one_pair_longer_than_the_budget_is_a_batch_of_its_own():
    pairs = Pairs.of([([5] * 60, [5] * 60), ([6, EOS], [6, EOS]), ([7, EOS], [7, EOS])])
    batches = one_epoch(batches_of([pairs], budget=20))
    assert sorted(batch.index.tolist() for batch in batches) in ([[0], [1, 2]], [[0], [2, 1]])


def test_epochs_differ_and_seeds_decide():
    def order(epochs: int, seed: int) -> list[list[int]]:
        batches = batches_of([made_up(300)], seed=seed)
        return [batch.index.tolist() for _ in range(epochs) for batch in one_epoch(batches)]

    assert order(2, 7) == order(2, 7)
    assert order(1, 7) != order(1, 8)
    both = order(2, 7)
    assert both[: len(order(1, 7))] == order(1, 7)
    assert both[len(both) // 2 :] != both[: len(both) // 2]


def test_neighbours_change_from_epoch_to_epoch():
    batches = batches_of([made_up(2000)])
    first, second = ({frozenset(batch.index.tolist()) for batch in one_epoch(batches)} for _ in range(2))
    assert len(first & second) < len(first) / 10


@pytest.mark.parametrize("taken", [0, 1, 5, 17, 30, 31, 47])
def test_restored_it_goes_on_as_if_uninterrupted(taken: int):
    parts = [made_up(150, 1).weighted(1.5), made_up(100, 2).weighted(0.4)]
    whole = list(islice(batches_of(parts, budget=400), 60))
    first = batches_of(parts, budget=400)
    list(islice(first, taken))
    state = json.loads(json.dumps(first.state()))
    again = batches_of(parts, budget=400)
    list(islice(again, 3))
    again.restore(state)
    assert again.state() == state
    assert all(same(one, two) for one, two in zip(whole[taken:], islice(again, 60 - taken), strict=True))
    # an epoch's border lies within
    assert 0 < len(first) < 60


def test_a_state_of_other_data_or_settings_is_refused_by_name():
    state = batches_of([made_up(50)]).state()
    for other, name in (
        (batches_of([made_up(50)], budget=999), "budget was 1000, now it is 999"),
        (batches_of([made_up(50)], seed=8), "seed was 7, now it is 8"),
        (batches_of([made_up(51)]), "examples was"),
        (batches_of([made_up(50, seed=3)]), "data was"),
        (batches_of([made_up(50).weighted(2.0)]), "weights was"),
    ):
        with pytest.raises(CutawayError, match=name):
            other.restore(state)
    with pytest.raises(CutawayError, match="expected epoch, position and settings"):
        batches_of([made_up(50)]).restore({"epoch": "1"})
    with pytest.raises(CutawayError, match="position 99999, expected 0 to"):
        batches_of([made_up(50)]).restore(state | {"position": 99_999})


def test_weights_repeat_parts_and_draw_fractions_anew_each_epoch():
    parts = [made_up(100, 1).weighted(3.0), made_up(200, 2).weighted(0.5), made_up(10, 3).weighted(0.0)]
    batches = batches_of(parts)
    first, second = (counts(one_epoch(batches)) for _ in range(2))
    for drawn in (first, second):
        assert [drawn[index] for index in range(100)] == [3] * 100
        assert sum(drawn[index] for index in range(100, 300)) == 100
        assert max(drawn[index] for index in range(100, 300)) == 1
        assert not any(drawn[index] for index in range(300, 310))
    assert first != second
    assert counts(one_epoch(batches_of([made_up(3).weighted(0.1)]))).total() == 1


def test_one_pass_leaves_the_place_of_the_endless_one():
    batches = batches_of([made_up(300)])
    list(islice(batches, 3))
    state = batches.state()
    assert counts(list(batches.once())) == Counter(range(300))
    assert batches.state() == state


def test_nothing_to_train_on_is_an_error():
    for parts in ([], [made_up(0)], [made_up(5).weighted(0.0)]):
        with pytest.raises(CutawayError, match="no pairs to make batches of"):
            batches_of(parts)
    with pytest.raises(CutawayError, match="budget is 0"):
        batches_of([made_up(5)], budget=0)
    with pytest.raises(CutawayError, match="weight is -1"):
        made_up(5).weighted(-1.0)
    with pytest.raises(CutawayError, match="sources: 2, targets: 1"):
        Pairs(Pairs.of([([1], [1])] * 2).source, Pairs.of([([1], [1])]).target)


def test_one_pair_is_enough():
    batches = batches_of([Pairs.of([([5, EOS], [6, EOS])])])
    assert [batch.index.tolist() for batch in islice(batches, 3)] == [[0]] * 3


def test_a_batch_costs_less_than_a_millisecond():
    batches = batches_of([made_up(20_000)], budget=5000)
    len(batches)
    best = 1.0
    for _ in range(30):
        started = time.perf_counter()
        next(batches)
        best = min(best, time.perf_counter() - started)
    assert best < 1e-3


def test_examples_go_both_ways_with_their_marks(bpe: Tokenizer):
    pairs = [Pair("我爱你。", "I love you.", "a", 1), Pair("好", "Good", "b", 2), Pair("你", "you", "a", 3)]
    parts = pair_examples(pairs, bpe, target_mark=">>eng<<", source_mark=">>zho<<")
    assert {domain: len(part) for domain, part in parts.items()} == {"a": 4, "b": 2}
    eos, zh, en = bpe.require("eos"), bpe.encode("我爱你。").ids, bpe.encode("I love you.").ids
    part = parts["a"]
    assert (part.source[0], part.target[0]) == ([bpe.id(">>eng<<"), *zh, eos], [*en, eos])
    assert (part.source[1], part.target[1]) == ([bpe.id(">>zho<<"), *en, eos], [*zh, eos])
    alone = pair_examples(pairs[:1], bpe)["a"]
    assert (len(alone), alone.source[0]) == (1, [*zh, eos])


def test_what_is_left_out_is_counted(bpe: Tokenizer):
    pairs = [
        Pair("我", "I", "", 1),
        Pair("  ", "x", "", 2),
        Pair("我", "no " * 50, "", 3),
        Pair("x", "", "", 4),
    ]
    report = Report()
    parts = pair_examples(
        pairs, bpe, target_mark=">>eng<<", source_mark=">>zho<<", max_target=20, report=report
    )
    # 3 is too long as a target, fine as a source
    assert len(parts[""]) == 3
    assert (report.empty, report.long) == (2, 1)
    assert [str(problem).split(":")[0] for problem in report.problems] == ["line 2", "line 3", "line 4"]


def test_the_longest_allowed_pair_is_kept(bpe: Tokenizer):
    length = len(bpe.encode("我爱你。").ids)
    for source, target, kept in (
        (length + 2, length + 1, 1),
        (length + 1, length + 1, 0),
        (length + 2, length, 0),
    ):
        report = Report()
        parts = pair_examples(
            [Pair("我爱你。", "我爱你。")],
            bpe,
            target_mark=">>eng<<",
            max_source=source,
            max_target=target,
            report=report,
        )
        assert (sum(map(len, parts.values())), report.long) == (kept, 1 - kept)


def test_control_tokens_in_a_corpus_are_only_text(bpe: Tokenizer):
    part = pair_examples([Pair("</s> >>zho<<", "<pad>")], bpe, target_mark=">>eng<<")[""]
    assert [id for id in part.source[0] if bpe.is_control(id)] == [bpe.id(">>eng<<"), bpe.role("eos")]
    assert [id for id in part.target[0] if bpe.is_control(id)] == [bpe.role("eos")]


def test_a_mark_must_be_a_control_token(bpe: Tokenizer):
    for mark in (">>deu<<", "a"):
        with pytest.raises(
            CutawayError, match=rf"'{mark}' is no control token of the tokenizer; it has: <pad>"
        ):
            pair_examples([], bpe, target_mark=mark)
