import json
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.text.conftest import TEXTS

from cutaway.errors import CutawayError
from cutaway.text.batches.batch import IGNORED, Batch, Ragged
from cutaway.text.batches.documents import DocumentBatches, MaskedBatches, WindowBatches, document_ids, pack
from cutaway.text.corpus import Report
from cutaway.text.tokens.tokenizer import Tokenizer

PAD, BOS, EOS = 0, 1, 2


def documents(lengths: list[int]) -> Ragged:
    """Document n is n·1000 + 10, + 11, …: every token is of its own."""
    return Ragged.of(
        [number * 1000 + 10 + at for at in range(length)] for number, length in enumerate(lengths)
    )


LENGTHS = [3, 1, 30, 8, 7, 2, 16, 5, 4, 9, 1, 12]


def packed(lengths: list[int] = LENGTHS, **settings) -> DocumentBatches:
    settings = {"max_len": 8, "rows": 3, "pad_id": PAD, "eos_id": EOS, "start_id": BOS, "seed": 3} | settings
    return DocumentBatches(documents(lengths), **settings)


def segments(batch: Batch) -> list[list[tuple[int, int]]]:
    """(input, label) of each document of each row, padding left out."""
    ids, labels = batch.inputs["ids"], batch.labels
    places = batch.inputs.get("documents", torch.where(labels == IGNORED, 1, 0))
    found = []
    for row in range(len(ids)):
        for number in places[row].unique():
            chosen = places[row] == number
            pairs = list(zip(ids[row][chosen].tolist(), labels[row][chosen].tolist(), strict=True))
            if pairs[0][1] != IGNORED:
                found.append(pairs)
    return found


def test_every_token_is_a_label_once_and_nothing_is_predicted_across_a_border():
    batches = packed()
    seen: list[int] = []
    for batch in islice(batches, len(batches)):
        assert batch.inputs["ids"].shape == batch.labels.shape
        assert batch.labels.shape[1] == 8
        for segment in segments(batch):
            for (_, said), (heard, _) in pairwise(segment):
                assert said == heard
            owners = {label // 1000 for _, label in segment if label != EOS}
            owners |= {id // 1000 for id, _ in segment if id != BOS}
            assert len(owners) == 1
            seen += [owners.pop() * 1000 + EOS if label == EOS else label for _, label in segment]
    flat = documents(LENGTHS).flat.tolist()
    assert sorted(seen) == sorted([*flat, *(number * 1000 + EOS for number in range(len(LENGTHS)))])


def test_without_a_start_only_first_tokens_are_not_predicted():
    batches = packed(start_id=None)
    labels = torch.cat([batch.labels[batch.labels != IGNORED] for batch in batches.once()]).tolist()
    assert labels.count(EOS) == len(LENGTHS)
    firsts = {number * 1000 + 10 for number in range(len(LENGTHS))}
    assert sorted(label for label in labels if label != EOS) == sorted(
        set(documents(LENGTHS).flat.tolist()) - firsts
    )


def test_padding_is_a_document_of_its_own():
    for batch in packed().once():
        if "documents" not in batch.inputs:
            continue
        padding = batch.labels == IGNORED
        assert batch.inputs["ids"][padding].eq(PAD).all()
        for row in range(len(padding)):
            numbers = batch.inputs["documents"][row]
            assert not set(numbers[padding[row]].tolist()) & set(numbers[~padding[row]].tolist())
            assert numbers.diff().ge(0).all()


def test_document_numbers_are_left_out_where_every_row_has_one():
    assert all("documents" not in batch.inputs for batch in packed([7, 15, 7]).once())
    assert all("documents" in batch.inputs for batch in packed([3, 3]).once())


def test_rows_are_full():
    random = np.random.default_rng(0)
    batches = packed(random.integers(1, 60, 2000).tolist(), max_len=128, rows=16)
    grid = sum(batch.labels.numel() for batch in batches.once())
    assert sum(batch.tokens for batch in batches.once()) / grid > 0.99


@given(st.lists(st.integers(1, 20)))
def test_packing_loses_nothing_and_overfills_nothing(lengths: list[int]):
    rows = pack(lengths, 20)
    assert sorted(place for row in rows for place in row) == list(range(len(lengths)))
    assert all(0 < sum(lengths[place] for place in row) <= 20 for row in rows)
    assert len(rows) <= 2 * sum(lengths) / 20 + 1


def test_epochs_are_mixed_anew_and_restored_exactly():
    whole = list(islice(packed(), 30))
    length = len(packed())
    assert not torch.equal(whole[0].inputs["ids"], whole[length].inputs["ids"])
    for taken in (1, length, length + 2):
        first = packed()
        list(islice(first, taken))
        again = packed()
        again.restore(json.loads(json.dumps(first.state())))
        for one, two in zip(whole[taken:], islice(again, 30 - taken), strict=True):
            assert torch.equal(one.inputs["ids"], two.inputs["ids"])
            assert torch.equal(one.labels, two.labels)
    with pytest.raises(CutawayError, match="max_len was 8, now it is 9"):
        packed(max_len=9).restore(packed().state())


def test_documents_are_tokenised_and_blank_ones_counted(bpe: Tokenizer):
    report = Report()
    ids = document_ids([TEXTS[0], "", TEXTS[1]], bpe, report)
    assert [ids[0], ids[1]] == bpe.encode_ids(TEXTS[:2])
    assert (len(ids), report.empty) == (2, 1)


def test_no_documents_are_an_error():
    with pytest.raises(CutawayError, match="no documents"):
        packed([])
    with pytest.raises(CutawayError, match="no documents"):
        MaskedBatches(documents([]), max_len=8, budget=64, pad_id=PAD)
    with pytest.raises(CutawayError, match="max_len is 2, expected at least 3"):
        MaskedBatches(documents([4]), max_len=2, budget=64, pad_id=PAD, cls_id=BOS, sep_id=EOS)
    with pytest.raises(CutawayError, match="max_len is 0"):
        packed(max_len=0)


# One long text.


def test_windows_are_stretches_of_the_text_with_the_next_token_as_label():
    batches = WindowBatches(range(1000), context=16, rows=4, seed=1)
    seen = set()
    for batch in islice(batches, len(batches)):
        assert torch.equal(batch.inputs["ids"], batch.index[:, None] + torch.arange(16))
        assert torch.equal(batch.labels, batch.inputs["ids"] + 1)
        seen |= set(batch.index.tolist())
    assert len(batches) == 999 // (16 * 4)
    assert len(seen) > 40
    extremes = [int(batch.index.max()) for batch in islice(WindowBatches(range(18), context=16, rows=9), 20)]
    assert max(extremes) == 1


def test_windows_are_restored_exactly():
    whole = [batch.index.tolist() for batch in islice(WindowBatches(range(300), context=8, rows=4), 40)]
    first = WindowBatches(range(300), context=8, rows=4)
    list(islice(first, 13))
    again = WindowBatches(range(300), context=8, rows=4)
    again.restore(json.loads(json.dumps(first.state())))
    assert [batch.index.tolist() for batch in islice(again, 27)] == whole[13:]
    with pytest.raises(CutawayError, match="data was"):
        WindowBatches(range(1, 301), context=8, rows=4).restore(first.state())


@pytest.mark.parametrize("length", [17, 18, 100, 128, 129, 130])
def test_one_pass_counts_every_token_but_the_first_once(length: int):
    batches = list(WindowBatches(range(length), context=16, rows=3).once())
    labels = torch.cat([batch.labels.flatten() for batch in batches])
    assert labels[labels != IGNORED].tolist() == list(range(1, length))
    for batch in batches:
        counted = batch.labels != IGNORED
        assert torch.equal(batch.inputs["ids"][counted] + 1, batch.labels[counted])


def test_a_text_shorter_than_the_context_is_an_error():
    with pytest.raises(CutawayError, match="tokens of the text: 16, expected more than the context of 16"):
        WindowBatches(range(16), context=16, rows=1)
    assert len(list(WindowBatches(range(17), context=16, rows=1).once())) == 1


# Rows for a masked model.


def test_masked_rows_hold_every_token_once_between_cls_and_sep():
    batches = MaskedBatches(
        documents(LENGTHS), max_len=8, budget=64, pad_id=PAD, cls_id=BOS, sep_id=EOS, multiple=4
    )
    seen: list[int] = []
    for batch in islice(batches, len(batches)):
        ids, labels = batch.inputs["ids"], batch.labels
        mask = batch.inputs.get("mask", torch.ones_like(ids, dtype=torch.bool))
        assert torch.equal(mask, labels != IGNORED)
        assert torch.equal(ids[mask], labels[mask])
        assert ids[~mask].eq(PAD).all()
        assert ids.shape[1] <= 8
        assert ids.numel() <= 64
        for row in range(len(ids)):
            real = ids[row][mask[row]].tolist()
            assert (real[0], real[-1]) == (BOS, EOS)
            assert len({id // 1000 for id in real[1:-1]}) == 1
            seen += real[1:-1]
    assert sorted(seen) == documents(LENGTHS).flat.tolist()


def test_masked_rows_without_special_tokens_are_restored_exactly():
    def make() -> MaskedBatches:
        return MaskedBatches(documents(LENGTHS * 9), max_len=8, budget=64, pad_id=PAD)

    whole = [batch.labels for batch in islice(make(), 40)]
    first = make()
    list(islice(first, 11))
    again = make()
    again.restore(first.state())
    assert all(
        torch.equal(one, batch.labels) for one, batch in zip(whole[11:], islice(again, 29), strict=True)
    )
