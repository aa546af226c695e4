"""Where real data and real models lie that the project does not carry; a test that needs absent ones is skipped."""

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / ".." / "shared" / "data"


def shared(name: str, what: str) -> Path:
    """A file or folder of the data that lie beside a checkout; `what` says in a skip what is missing."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"../shared/data/{name} is not here: {what}")
    return path
