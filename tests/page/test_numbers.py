"""Numbers as a page writes them."""

from cutaway.page.numbers import nats, number, share, three_places


def test_numbers_keep_the_digits_that_matter():
    assert (share(0.0), share(0.0001), share(0.5)) == ("0.000", "<.001", "0.500")
    assert (nats(-0.001), nats(1), nats(-2.345)) == ("0.00", "+1.00", "-2.35")
    assert (number(1234.5), number(-0.00012345), number(0)) == ("1234", "-0.0001234", "0")
    assert (nats(float("nan")), nats(float("-inf"))) == ("nan", "-inf")
    values = (-0.0004, -0.25, float("-inf"), float("nan"))
    assert tuple(map(three_places, values)) == ("0.000", "-0.250", "−∞", "NaN")
