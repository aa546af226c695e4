"""How numbers are written on a page."""

from cutaway.words import Phrase, Text, say


def number(value: float) -> str:
    """Four digits, with a sign where it is negative: `0.1235`, `-12.35`, `1.234e-07`."""
    return f"{value:.4g}"


def nats(value: float) -> str:
    """A difference of log-probabilities: two places, and a sign where it is not 0 by them."""
    return "0.00" if abs(value) < 0.005 else f"{value:+.2f}".replace("+nan", "nan")


def three_places(value: float) -> str:
    """A value among many: three places, without the sign of a zero; −∞ for what a mask hides."""
    if value != value:
        return "NaN"
    if abs(value) == float("inf"):
        return "∞" if value > 0 else "−∞"
    return "0.000" if abs(value) < 0.0005 else f"{value:.3f}"


def share(value: float) -> str:
    """A probability or weight; what is not 0 but below the last place is `<.001`."""
    return "<.001" if 0 < value < 0.0005 else f"{value:.3f}"


def reaching(unit: Text, greatest: float) -> Phrase:
    """A unit, and how far from 0 its colours reach on both sides."""
    return say("{unit}, ±{greatest:.3g}", unit=unit, greatest=greatest)
