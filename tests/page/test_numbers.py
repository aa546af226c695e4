"""Numbers as a page writes them."""

from cutaway.page.numbers import means, nats, number, share, three_places, written


def test_numbers_keep_the_digits_that_matter():
    assert (share(0.0), share(0.0001), share(0.5)) == ("0.000", "<.001", "0.500")
    assert (nats(-0.001), nats(1), nats(-2.345)) == ("0.00", "+1.00", "-2.35")
    assert (number(1234.5), number(-0.00012345), number(0)) == ("1234", "-0.0001234", "0")
    assert (nats(float("nan")), nats(float("-inf"))) == ("nan", "-inf")
    values = (-0.0004, -0.25, float("-inf"), float("nan"))
    assert tuple(map(three_places, values)) == ("0.000", "-0.250", "−∞", "NaN")


def test_a_cell_has_three_digits_at_most():
    assert [written(value, "weight") for value in (0.004, 0.25, 12.34, 123.4)] == ["", "0.25", "12.3", "123"]
    values = (0.25, -9.999, -123.4, float("nan"), float("-inf"))
    assert [written(value, "signed") for value in values] == ["+0.25", "-10.0", "-123", "NaN", ""]


def test_neighbours_share_a_place_where_there_is_no_room():
    assert means([1.0, 2.0, 3.0], 3) == [1.0, 2.0, 3.0]
    assert means([1.0, 3.0, 5.0, 7.0, 9.0], 2) == [2.0, 7.0]
