"""A whole vocabulary as a cloud: its directions, its groups, and that nothing near is lost among many rows."""

import numpy as np
import pytest
import torch
from tests.command import Case
from tests.inspection.test_principal_axes import naive_trustworthiness
from torch.nn.functional import normalize

from cutaway import CutawayError, find
from cutaway.checkpoint.word_vectors import first_words, load_vectors
from cutaway.inspection.direction_groups import direction_groups
from cutaway.inspection.questions.cloud import LANDMARKS, cloud
from cutaway.inspection.questions.neighbours import neighbours
from cutaway.inspection.vectors import VectorTable
from cutaway.page.blocks import Table
from cutaway.words import say

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [("translator", None, {"groups": 3, "k": 1})]


def test_it_keeps_the_directions_of_the_greatest_variance_and_says_how_much() -> None:
    """B11: against numpy's singular values and the definition of trustworthiness."""
    opened = first_words(load_vectors(find("words-en")), 120)
    found = cloud(opened, k=7)
    rows = opened.vectors.detach().double().numpy()
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    centred = rows - rows.mean(axis=0)
    _, sigma, axes = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(found.axes.variance_kept, (sigma**2 / (sigma**2).sum())[:3], rtol=1e-7)
    drawn = centred @ axes[:3].T
    np.testing.assert_allclose(np.abs(found.axes.coordinates.numpy()), np.abs(drawn), atol=1e-6)
    assert found.axes.trustworthiness == pytest.approx(naive_trustworthiness(rows, drawn, 7), abs=1e-12)
    assert found.pieces == tuple(opened.words.words)
    assert f"{100 * found.axes.total_kept:.1f} %" in str(found.told[0])
    assert f"{found.axes.trustworthiness:.3f}" in str(found.told[1])


def test_each_word_is_in_the_group_of_the_nearest_centre() -> None:
    opened = load_vectors(find("words-en"))
    found = cloud(first_words(opened, 6000), groups=4)
    rows = normalize(opened.vectors.detach()[:6000].double(), dim=1)
    sums = torch.zeros(4, rows.shape[1], dtype=rows.dtype).index_add_(0, found.groups, rows)
    own = (rows @ normalize(sums, dim=1).T).argmax(dim=1)
    # all but a few: the rounds may end before nothing changes any more
    assert (own == found.groups).double().mean() > 0.99
    assert torch.equal(cloud(first_words(opened, 6000), groups=4).groups, found.groups)
    for group, ids in enumerate(found.landmarks):
        assert 0 < len(ids) <= LANDMARKS and max(ids) < 1000
        assert set(found.groups[list(ids)].tolist()) == {group}


def test_groups_of_vectors_that_lie_in_three_directions() -> None:
    generator = torch.Generator().manual_seed(4)
    middles = torch.eye(6)[:3].repeat_interleave(40, dim=0)
    points = normalize(middles + 0.1 * torch.randn(120, 6, generator=generator), dim=1)
    told: list[tuple[int, int]] = []
    groups, centres = direction_groups(points, 3, lambda what, done, total: told.append((done, total)))
    assert [len(set(part.tolist())) for part in groups.split(40)] == [1, 1, 1] and len(
        set(groups.tolist())
    ) == 3
    torch.testing.assert_close(centres.norm(dim=1), torch.ones(3))
    assert told and told[-1][0] < told[-1][1]
    # vectors that are all the same are one group, whatever is asked for
    assert set(direction_groups(points[:1].expand(9, 6), 3)[0].tolist()) == {0}


def test_neighbours_among_150_000_rows_are_exact() -> None:
    """B11: every row is compared."""
    rows = torch.randn(150_000, 8, generator=torch.Generator().manual_seed(5))
    found = neighbours(VectorTable("made", rows, None), 77_777, top=20)
    exact = rows.double().numpy()
    cosines = (exact @ exact[77_777]) / np.linalg.norm(exact, axis=1) / np.linalg.norm(exact[77_777])
    order = np.argsort(-cosines, kind="stable")
    assert order[0] == 77_777 and [each.id for each in found.items] == order[1:21].tolist()
    assert [each.value for each in found.items] == pytest.approx(cosines[order[1:21]].tolist())


def test_what_is_too_small_for_three_directions_is_refused() -> None:
    with pytest.raises(CutawayError, match="at least 4"):
        cloud(VectorTable("made", torch.randn(3, 8), None))
    with pytest.raises(CutawayError, match="expected 1 to 5"):
        cloud(VectorTable("made", torch.randn(9, 8), None), groups=6)


def test_its_progress_can_be_heard_and_ends_it() -> None:
    class Enough(Exception):
        pass

    def hear(what: object, done: int, total: int) -> None:
        if what == say("groups"):
            raise Enough

    with pytest.raises(Enough):
        cloud(VectorTable("made", torch.randn(50, 8), None), progress=hear)


def test_its_page_names_the_groups() -> None:
    found = cloud(first_words(load_vectors(find("words-zh")), 2000))
    page = found.page()
    [table] = [block for block in page.blocks if isinstance(block, Table)]
    assert len(table.rows) == 5 and "2,000" in str(page.title)
