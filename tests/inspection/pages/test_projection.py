"""Pages of points: a large cloud stays small, and says what it leaves out."""

import re

import torch

from cutaway import load
from cutaway.inspection import neighbours, pca, project_table, table_of
from cutaway.inspection.geometry.vectors import VectorTable
from cutaway.page.blocks import Points
from cutaway.zoo import MASKED, find


def test_a_whole_table_is_thinned_out_evenly():
    found = project_table(table_of(load(find(MASKED))))
    n = len(found.coordinates)
    every = -(-n // 1500)
    plane = next(block for block in found.page().blocks if isinstance(block, Points))
    assert [(point.x, point.y) for point in plane.points] == [
        (x, y) for x, y in found.coordinates[::every].tolist()
    ]
    html = found.to_html("zh")
    assert len(html.encode()) < 300_000
    assert f"{n:,} 个点中按次序等距画出 {len(plane.points):,} 个。" in html
    assert "估计" in html and f"{found.trustworthiness:.3f}" in html


def test_few_points_have_their_names():
    table = table_of(load(find(MASKED)))
    drawn = project_table(table, ["cat", "dog", "house", "room"], k=1)
    assert set(re.findall("<title>(.*?)</title>", drawn.to_svg("en"))) >= {"cat", "dog", "house", "room"}
    third = pca(torch.randn(6, 4, generator=torch.Generator().manual_seed(1)), dims=3, k=2)
    assert "第三轴未画出。" in third.to_text(locale="zh")
    assert "axis 3 " in third.to_text()


def test_neighbours_by_other_measures_and_of_a_vector():
    table = table_of(load(find(MASKED)))
    far = neighbours(table, "cat", measure="euclid", top=3)
    assert f"{far.items[0].value:.4g}" in far.to_text() and "Distance in the full space" in far.to_text()
    point = neighbours(table, table.vectors[7].detach(), measure="dot", top=3)
    assert point.to_text(locale="zh").startswith("嵌入表中离该向量最近的行\n")
    assert "按点积与全部" in point.to_text(locale="zh")


def test_a_table_of_the_users_own():
    table = VectorTable("glove", torch.eye(5)[:4], None)
    assert neighbours(table, 0).to_text().startswith("Nearest to ⟨0⟩ (id 0) in the glove table\n")
