import pytest

from cutaway.errors import CutawayError, about


def test_an_error_is_told_with_its_place_once_and_in_either_language():
    with pytest.raises(CutawayError) as caught, about("a.json"), about("a.json"), about("n_heads"):
        raise CutawayError("key {key!r} is missing", key="x")
    assert str(caught.value) == "a.json: n_heads: key 'x' is missing"
    assert caught.value.message.said("zh") == "a.json：n_heads：缺少键 'x'"
