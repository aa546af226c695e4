"""What is asked on the way to an answer draws itself too."""

import pytest

from cutaway import load
from cutaway.inspection import (
    agreement,
    alignment_error,
    cross_weights,
    read_pharaoh,
    run,
    source_effect,
    table_of,
    w_ov,
)
from cutaway.page.drawn import Drawn
from cutaway.zoo import TRANSLATOR, find


@pytest.fixture(scope="module")
def small() -> dict[str, Drawn]:
    loaded = load(find(TRANSLATOR))
    asked = run(loaded, "好久不见。")
    return {
        "agreement": agreement(cross_weights(asked), source_effect(asked).effect),
        "error": alignment_error({(0, 0), (1, 1)}, read_pharaoh("0-0 1-2")),
        "matrix": w_ov(loaded, "cross", -1, 0),
        "table": table_of(loaded),
    }


@pytest.mark.parametrize(
    ("name", "english", "chinese"),
    [
        ("agreement", "Spearman's ρ", "一致程度"),
        ("error", "0.50", "对齐错误率"),
        ("matrix", "(256 × 256)", "（256 × 256）"),
        ("table", "8,000 vectors of 256 numbers", "8,000 个向量，各 256 个分量"),
    ],
)
def test_small_answers_draw_themselves(
    small: dict[str, Drawn], name: str, english: str, chinese: str
) -> None:
    found = small[name]
    assert english in found.to_text(locale="en") and chinese in found.to_html("zh")
    assert found.to_svg("zh").startswith("<svg ")
    assert "tensor(" not in repr(found)
