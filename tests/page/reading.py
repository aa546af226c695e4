"""What tests read out of pages and figures: elements of HTML, pixels of PNG."""

import base64
import re
import struct
import zlib
from html.parser import HTMLParser

import numpy as np

VOID = {"meta", "img", "br", "wbr", "link"}


class Reader(HTMLParser):
    """Collects texts and attributes, and checks that every element is closed in order."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.inside: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)
            self.inside.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        for tag in set(self.open):
            self.inside[tag][-1] += data

    def all(self, tag: str, **attributes: str) -> list[dict[str, str]]:
        """The attributes of the elements of one kind that have some of them as given."""
        found = [each for name, each in self.tags if name == tag]
        return [
            each
            for each in found
            if all(
                each.get(name.rstrip("_").replace("_", "-")) == value for name, value in attributes.items()
            )
        ]


def unpacked(image: bytes) -> np.ndarray:
    """The palette's entries of a PNG image, by its specification."""
    assert image[:8] == b"\x89PNG\r\n\x1a\n"
    at, parts = 8, dict[bytes, bytes]()
    while at < len(image):
        size = struct.unpack(">I", image[at : at + 4])[0]
        name, data = image[at + 4 : at + 8], image[at + 8 : at + 8 + size]
        assert struct.unpack(">I", image[at + 8 + size : at + 12 + size])[0] == zlib.crc32(name + data)
        parts[name] = data
        at += 12 + size
    assert list(parts) == [b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"]
    width, height, depth, kind = struct.unpack(">IIBB", parts[b"IHDR"][:10])
    assert (depth, kind, len(parts[b"PLTE"]), len(parts[b"tRNS"])) == (8, 3, 768, 256)
    lines = np.frombuffer(zlib.decompress(parts[b"IDAT"]), dtype=np.uint8).reshape(height, width + 1)
    assert not lines[:, 0].any()
    return lines[:, 1:]


def images(text: str) -> list[np.ndarray]:
    """The images of a page or figure in order."""
    found = re.findall(r"data:image/png;base64,([^\"]+)", text)
    return [unpacked(base64.b64decode(each)) for each in found]


def halves(packed: str) -> np.ndarray:
    """The values that a page carries in 16 bits."""
    return np.frombuffer(base64.b64decode(packed), dtype="<f2").astype(np.float64)
