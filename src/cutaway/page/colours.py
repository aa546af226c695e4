"""Colours of values, as a palette of 256 entries with their opacity: what is 0 shows the paper it is drawn on, light or
dark. Values as a PNG image of one byte a pixel (W3C PNG, 3rd edition, §11)."""

import base64
import struct
import zlib

import numpy as np

from cutaway.page.blocks import Scale

POSITIVE, NEGATIVE, WEIGHT = (0xD9, 0x66, 0x0B), (0x75, 0x55, 0xD0), (0x1A, 0x70, 0xE0)
HIDDEN, NOT_A_NUMBER = 254, 255  # entries of -inf and of NaN
LAST = 253  # the greatest entry of a weight

Palette = tuple[tuple[int, int, int, int], ...]  # red, green, blue, opacity, 0 to 255


def palette(scale: Scale) -> Palette:
    """Weights by opacity of one colour; signed values by opacity of two, 0 in the middle (entry 126 of 0 to 252)."""
    if scale == "weight":
        entries = [(*WEIGHT, round(255 * n / LAST)) for n in range(LAST + 1)]
    else:
        below = [(*NEGATIVE, round(255 * (126 - n) / 126)) for n in range(126)]
        above = [(*POSITIVE, round(255 * n / 126)) for n in range(127)]
        entries = [*below, *above, (*POSITIVE, 255)]
    return (*entries, (0x80, 0x80, 0x80, 0x38), (0xFF, 0x00, 0xFF, 0xFF))


def reach(values: np.ndarray, scale: Scale) -> float:
    """The value of the strongest colour: 1 for weights, else the greatest magnitude (1 where all are 0)."""
    if scale == "weight":
        return 1.0
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if finite.size and finite.max() > 0 else 1.0


def entries(values: np.ndarray, scale: Scale, greatest: float) -> np.ndarray:
    """The palette's entry of each value, as bytes. Weights by their square root, so that small ones can be told from
    none; signed values in proportion. What lies beyond `greatest` has the strongest colour."""
    with np.errstate(invalid="ignore"):
        if scale == "weight":
            found = np.sqrt(np.clip(values / greatest, 0.0, 1.0)) * LAST
        else:
            found = 126 + np.clip(values / greatest, -1.0, 1.0) * 126
    found = np.where(np.isfinite(found), np.rint(found), 0).astype(np.uint8)
    found[np.isneginf(values)] = HIDDEN
    found[np.isnan(values)] = NOT_A_NUMBER
    return found


def opaque(colour: tuple[int, int, int]) -> str:
    """A colour as CSS and SVG write it."""
    return "#{:02x}{:02x}{:02x}".format(*colour)


def tint(value: float, scale: Scale) -> str:
    """A colour of CSS that text can be read on: a weight from 0 to 1 by its square root, as in a heat map, or a signed
    value from -1 to 1."""
    if scale == "signed":
        return css(0.8 * value, 1.0)
    red, green, blue = WEIGHT
    return f"rgba({red},{green},{blue},{0.75 * max(0.0, min(1.0, value)) ** 0.5:.3f})"


def ramp(scale: Scale) -> tuple[str, list[str], str]:
    """The colours that texts stand on, from the least to the greatest value in nine steps, with what stands at both
    ends of them."""
    steps = np.linspace(-1.0 if scale == "signed" else 0.0, 1.0, 9)
    lowest, greatest = ("−", "+") if scale == "signed" else ("0", "1")
    colours = [tint(value if scale == "signed" else value**2, scale) for value in steps.tolist()]
    return lowest, colours, greatest


def css(value: float, greatest: float) -> str:
    """A signed value as a colour of CSS."""
    red, green, blue = POSITIVE if value > 0 else NEGATIVE
    return f"rgba({red},{green},{blue},{min(1.0, abs(value) / greatest):.3f})"


def png(pixels: np.ndarray, palette: Palette) -> bytes:
    """An image of `pixels` (height, width), entries of the palette."""
    height, width = pixels.shape
    # Each line begins with its filter: none.
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)
    colours = b"".join(bytes(entry[:3]) for entry in palette)
    opacity = bytes(entry[3] for entry in palette)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join((
        _chunk(b"IHDR", header), _chunk(b"PLTE", colours), _chunk(b"tRNS", opacity),
        _chunk(b"IDAT", zlib.compress(lines, 9)), _chunk(b"IEND", b""),
    ))  # fmt: skip


def data_url(image: bytes) -> str:
    """The image inside its own address."""
    return f"data:image/png;base64,{base64.b64encode(image).decode('ascii')}"


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
