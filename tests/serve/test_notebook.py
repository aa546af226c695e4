"""The explorer in a notebook."""

import gc
import html
import re
import threading
import urllib.parse
import weakref
from pathlib import Path

import pytest
from tests.serve.conftest import Asking

from cutaway import CutawayError, explore
from cutaway.serve.server import Server


def test_a_cell_shows_the_page(masked: Path):
    shown = explore(masked, "one [MASK] & two", height=500)
    source = re.search(r'<iframe src="([^"]*)" style="width:100%;height:500px', shown._repr_html_())
    assert source is not None
    address = urllib.parse.urlsplit(html.unescape(source[1]))
    assert address.hostname == "127.0.0.1"
    asked = urllib.parse.parse_qs(address.fragment.removeprefix("/?"))
    assert asked == {"m": ["masked0"], "text": ["one [MASK] & two"]}
    assert repr(shown) == html.unescape(source[1])
    assert address.port is not None
    there = Asking(address.port)
    assert there.ask("lens", "masked0", "one [MASK] two").status == 200
    policy = there.get("/").headers["content-security-policy"]
    assert "frame-ancestors http://localhost:* " in policy
    # the same server again
    assert explore(masked).address.startswith(f"http://127.0.0.1:{address.port}/#/?m=masked0")
    shown.close()


def test_a_closed_one_holds_nothing(masked: Path):
    before = set(threading.enumerate())
    shown = explore(masked)
    [server] = [
        weakref.ref(each)
        for each in gc.get_objects()
        if type(each) is Server and shown.address.startswith(each.door.address)
    ]
    [thread] = [
        each for each in threading.enumerate() if each.name == "cutaway explores" and each not in before
    ]
    shown.close()
    thread.join(10)
    again = explore(masked)
    assert again.address != shown.address
    again.close()
    del shown, again
    gc.collect()
    assert server() is None


def test_what_is_no_model():
    with pytest.raises(CutawayError, match="no model 'nothing'"):
        explore("nothing")
