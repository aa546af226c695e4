"""PNG images of one byte a pixel with a palette (W3C PNG, 3rd edition, §11)."""

import base64
import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from cutaway.page.colours import Palette


def png(pixels: "np.ndarray", palette: "Palette") -> bytes:
    """An image of `pixels` (height, width), entries of the palette."""
    height, width = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)  # each line with its filter: none
    colours = b"".join(bytes(entry[:3]) for entry in palette)
    opacity = bytes(entry[3] for entry in palette)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = (
        (b"IHDR", header),
        (b"PLTE", colours),
        (b"tRNS", opacity),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in parts)


def data_url(image: bytes) -> str:
    """The image inside its own address."""
    return f"data:image/png;base64,{base64.b64encode(image).decode('ascii')}"


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
