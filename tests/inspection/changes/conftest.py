"""A run of every kind of model that changes must be right for."""

import pytest
from tests.inspection.changes.altered import RunOf

from cutaway.inspection.runs import Run

STRUCTURES = [
    ("post-norm pair", {}), ("T5", {}), ("Llama", {}), ("GPT-2", {}), ("Gemma 2", {}), ("experts", {}), ("BERT", {}),
    ("masked, pre-norm", {}), ("GPT-2", {"position": "alibi"}), ("Llama", {"qk_norm": True}),
]  # fmt: skip


@pytest.fixture(params=STRUCTURES, ids=lambda case: f"{case[0]} {case[1] or ''}")
def run(request: pytest.FixtureRequest, run_of: RunOf) -> Run:
    structure, settings = request.param
    return run_of(structure, **settings)
