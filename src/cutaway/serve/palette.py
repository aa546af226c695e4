"""The colours of pages as custom properties of CSS, light and dark: the browser draws what HTML and SVG draw."""

from cutaway.page.colours import HIDDEN, NEGATIVE, NOT_A_NUMBER, POSITIVE, WEIGHT, opaque, palette

# What surrounds the values, and what tells groups and parts of a model apart: light, dark.
ROLES = {
    "paper": ("#ffffff", "#0d1117"),
    "ink": ("#1a1a1a", "#e6edf3"),
    "value": ("#00795c", "#7ee787"),
    "feed-forward": ("#8e2a6b", "#e79bc6"),
    "output": ("#333333", "#ffffff"),
}


def palette_css() -> str:
    """`--weight`, `--above` and `--below` are the strongest colours of weights and signed values, which stand on the
    paper by their opacity; `--hidden` is what a mask hides, `--nan` what is no number."""
    red, green, blue, opacity = palette("weight")[HIDDEN]
    values = {
        "weight": opaque(WEIGHT),
        "above": opaque(POSITIVE),
        "below": opaque(NEGATIVE),
        "hidden": f"rgb({red} {green} {blue} / {opacity / 255:.3f})",
        "nan": opaque(palette("weight")[NOT_A_NUMBER][:3]),
    }
    light, dark = ({name: each[place] for name, each in ROLES.items()} for place in (0, 1))
    return (
        f":root {{{_declared(values | light)} color-scheme: light;}}\n"
        f"@media (prefers-color-scheme: dark) {{:root:not([data-theme=light]) "
        f"{{{_declared(dark)} color-scheme: dark;}}}}\n"
        f":root[data-theme=dark] {{{_declared(dark)} color-scheme: dark;}}\n"
    )


def _declared(values: dict[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in values.items())
