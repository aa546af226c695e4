"""How numbers are written on a page, and what is said about them."""

from collections.abc import Sequence
from itertools import pairwise

from cutaway.page.blocks import Bars, Scale
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


def no_room(labels: int) -> Phrase:
    """What a plot says about labels that it leaves out."""
    return say("labels without room: {count}", count=labels)


def bars_told(bars: Bars) -> Phrase:
    """What upright bars stand for, and the highest of them."""
    last, most = len(bars.values) - 1, number(max(bars.values, default=0.0))
    return say(
        "{across} 0 to {last} across, {unit} up to {most}",
        across=bars.across, last=last, unit=bars.unit, most=most,
    )  # fmt: skip


def means(values: Sequence[float], most: int) -> list[float]:
    """At most so many values; in the place of more, the means of neighbours."""
    if len(values) <= most:
        return list(values)
    borders = [len(values) * n // most for n in range(most + 1)]
    return [sum(values[start:end]) / (end - start) for start, end in pairwise(borders)]


def written(value: float, scale: Scale) -> str:
    """A value as it stands in a cell of a heat map: three digits, at most two places; nothing where they are 0 and
    where a mask hides it."""
    if value != value:
        return "NaN"
    if abs(value) < 0.005 or value == float("-inf"):
        return ""
    places = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{places}f}" if scale == "weight" else f"{value:+.{places}f}"
