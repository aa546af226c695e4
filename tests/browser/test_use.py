"""The page as it is used: by keyboard, links and input methods, with texts of every kind, with servers that fail."""

import json
import re
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect
from tests.browser.conftest import Open, Screen, Server

from cutaway import zoo

NET = r"Failed to load resource|net::ERR"


# By keyboard.


@pytest.mark.parametrize(
    ("model", "typed", "covered"),
    [(zoo.TRANSLATOR, "猫在家。", "猫"), (zoo.POET, "明月", "月"), (zoo.MASKED, "The cat is here.", "cat")],
)
def test_everything_is_reached_by_keyboard(open_screen: Open, model: str, typed: str, covered: str):
    """B20: type, run, go through the words, cover one, light one, ask a question, come back."""
    screen = open_screen(f"#/?m={model}")
    keyboard = screen.page.keyboard
    keyboard.press("/")
    assert screen.focused() == "Text"
    keyboard.press("ControlOrMeta+a")
    keyboard.insert_text(typed)
    keyboard.press("Enter")
    screen.settle()
    assert f"text={typed}" in screen.hash.replace("+", " ")

    keyboard.press("Tab")
    keyboard.press("Tab")
    words = screen.read()
    assert screen.focused().startswith(words[0])
    at = words.index(covered)
    for _ in range(at):
        keyboard.press("ArrowRight")
    assert screen.focused().startswith(covered)
    assert screen.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    keyboard.press("Enter")
    screen.settle()
    assert screen.covered() == [at]
    assert screen.focused().startswith(covered)

    keyboard.press("ArrowDown")
    keyboard.press("Home")
    assert screen.page.evaluate("document.activeElement.dataset.target") == "0"
    keyboard.press("Enter")
    assert screen.lit() == 0
    keyboard.press("ArrowUp")
    keyboard.press("Escape")
    screen.settle()
    assert screen.covered() == []

    keyboard.press("g")
    keyboard.press("q")
    screen.settle()
    assert screen.page.get_by_role("heading", name="All questions").is_visible()
    link = screen.page.get_by_role("link", name=re.compile("^attention"))
    link.focus()
    keyboard.press("Enter")
    screen.page.wait_for_selector(".answer article")
    assert screen.hash.startswith("#/ask/attention")
    keyboard.press("g")
    keyboard.press("f")
    screen.settle()
    assert "".join(screen.written()).strip()


def test_the_sheet_of_keys_opens_closes_and_gives_the_focus_back(open_screen: Open):
    screen = open_screen(f"#/?m={zoo.MASKED}")
    keys = screen.page.get_by_role("button", name="Keyboard")
    keys.focus()
    screen.page.keyboard.press("?")
    expect(screen.page.get_by_role("dialog")).to_be_visible()
    screen.page.keyboard.press("Escape")
    expect(screen.page.get_by_role("dialog")).to_be_hidden()
    assert screen.focused() == "Keyboard"

    keys.click()
    screen.page.get_by_label("Shortcuts by single letters").uncheck()
    screen.page.get_by_role("button", name="Close").click()
    screen.page.keyboard.press("g")
    screen.page.keyboard.press("q")
    assert screen.hash.startswith("#/?")


def test_skipping_to_the_content_is_the_first_stop(open_screen: Open):
    screen = open_screen(f"#/?m={zoo.MASKED}")
    screen.page.keyboard.press("Tab")
    assert screen.focused() == "Skip to the content"
    screen.page.keyboard.press("Enter")
    assert screen.page.evaluate("document.activeElement.id") == "content"
    assert screen.hash.startswith("#/?m=")


# Links.

SENTENCES = ["The cat is here.", 'a & b = c % d + "e" # f', "She said: 'no'?"]


def test_a_link_leads_to_what_it_was_copied_from(open_screen: Open):
    """B21: model, text, covered and lit words, language and colours all come back from a link, and look the same."""
    screen = open_screen(f"#/?m={zoo.MASKED}", go=False)
    for text in SENTENCES:
        for hide, light, lang, theme in (
            ("", None, "zh", "dark"),
            ("2", None, "en", None),
            ("1,3", 1, "zh", None),
        ):
            more = {"hide": hide, "light": light, "lang": lang, "theme": theme}
            query = {
                "m": zoo.MASKED,
                "text": text,
                **{name: value for name, value in more.items() if value},
            }
            screen.go(f"#/?{urllib.parse.urlencode(query, safe=',')}")
            assert screen.field().input_value() == text
            assert screen.covered() == [int(place) for place in hide.split(",") if place]
            assert light is None or screen.lit() == light
            root = screen.page.locator("html")
            assert root.get_attribute("lang") == {"zh": "zh-Hans", "en": "en"}[lang]
            assert root.get_attribute("data-theme") == (theme or "light")
    assert screen.page.get_by_role("status").filter(has_text="name nothing").count() == 0


def test_the_same_link_gives_the_same_pixels(open_screen: Open):
    """B13 and B21."""
    for place in (f"#/?m={zoo.MASKED}&hide=2", f"#/ask/attention?m={zoo.MASKED}&layer=0&head=0"):
        pictures = {open_screen(place).page.screenshot(animations="disabled") for _ in range(2)}
        assert len(pictures) == 1


def test_back_and_forward_go_through_what_was_looked_at(open_screen: Open):
    screen = open_screen(f"#/?m={zoo.MASKED}&text=The+cat+is+here.")

    def state() -> tuple[str, list[int]]:
        return screen.hash, screen.covered()

    def wait(hash: str) -> None:
        expect(screen.page).to_have_url(re.compile(r"#.*"))
        screen.settle()
        assert screen.hash == hash

    seen = [state()]
    steps: list[Callable[[], object]] = [
        lambda: screen.source(1).click(),
        lambda: screen.source(2).click(),
        lambda: screen.type("The dog is here."),
        lambda: screen.source(3).click(),
        lambda: screen.page.get_by_role("link", name="All questions", exact=True).click(),
        lambda: screen.page.get_by_role("link", name=re.compile("^lens")).click(),
        lambda: screen.page.get_by_role("link", name="One sentence").click(),
        lambda: screen.type("The king is here."),
        lambda: screen.source(4).click(),
        lambda: screen.source(4).click(),
    ]
    for step in steps:
        step()
        screen.settle()
        seen.append(state())
    assert len({hash for hash, _ in seen}) == 9
    for hash, covered in reversed(seen[:-1]):
        screen.page.go_back()
        wait(hash)
        assert screen.covered() == covered
    for hash, covered in seen[1:]:
        screen.page.go_forward()
        wait(hash)
        assert screen.covered() == covered


@pytest.mark.parametrize(
    ("place", "parts"),
    [
        ("#/?hide=a&light=-3", ["hide=a", "light=-3"]),
        ("#/nowhere", ["#/nowhere"]),
        ("#/?theme=pink&lang=xx", ["theme=pink", "lang=xx"]),
        ("#/ask/lens?top={", ["top={"]),
    ],
)
def test_parts_of_a_link_that_name_nothing_are_told(open_screen: Open, place: str, parts: list[str]):
    screen = open_screen(place)
    told = screen.page.get_by_role("status").filter(has_text="name nothing").inner_text()
    assert all(part in told for part in parts)
    screen.page.get_by_role("button", name="Close").click()
    expect(screen.page.get_by_text("name nothing")).to_have_count(0)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("#/?m=nobody", "No model nobody here; the server has: translate-zh-en"),
        ("#/ask/nothing", "nothing"),
        (f"#/ask/attention?m={zoo.MASKED}&layer=77", "77"),
        (f"#/?m={zoo.MASKED}&text=a&hide=77", "77"),
        (f"#/?m={zoo.MASKED}&text=a&nonsense=1", "nonsense"),
    ],
)
def test_what_a_link_asks_in_vain_is_told(open_screen: Open, place: str, said: str):
    screen = open_screen(place)
    assert said in screen.page.locator("main").inner_text()
    screen.forgive("status of 400")


# Input methods.


def test_nothing_runs_while_an_input_method_composes(open_screen: Open):
    """B22: not the text, not its Enter, not a shortcut."""
    screen = open_screen(f"#/?m={zoo.MASKED}")
    screen.type("The cat is here.")
    asked, hash = len(screen.asked), screen.hash
    devtools = screen.devtools()
    screen.field().focus()
    screen.page.keyboard.press("ControlOrMeta+a")
    for composed in ("n", "ni", "nih", "niha", "nihao"):
        devtools.send(
            "Input.imeSetComposition",
            {"text": composed, "selectionStart": len(composed), "selectionEnd": len(composed)},
        )
        screen.page.wait_for_timeout(60)
    for kind in ("rawKeyDown", "keyUp"):
        devtools.send(
            "Input.dispatchKeyEvent",
            {"type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 229},
        )
    screen.page.wait_for_timeout(300)
    assert (len(screen.asked), screen.hash) == (asked, hash)

    devtools.send("Input.insertText", {"text": "你好"})
    assert screen.field().input_value() == "你好"
    screen.page.keyboard.press("Enter")
    screen.settle()
    assert "text=你好" in screen.hash
    assert json.loads(screen.asked[-1].split(" ", 1)[1])["text"] == "你好"


# Texts of every kind.

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<script>document.title='x'</script> \"quotes\" 'and' `more`",
    "\u202eright to left\u202c \u200b\ufeff",
    "{{constructor.constructor('alert(1)')()}} ${1}",
    "a\x00b\x07c",
    "../../etc/passwd %00 %s %n",
]


def test_a_hostile_text_is_only_a_text(open_screen: Open):
    """B24: shown as it is, with no request, no error, no element of its own."""
    screen = open_screen(f"#/?m={zoo.MASKED}")
    for text in HOSTILE:
        screen.type(text)
        assert screen.field().input_value() == text
        assert screen.page.locator("img, script:not([src])").count() == 0
        assert screen.page.title().endswith("cutaway")
        assert screen.read()
    assert len({json.loads(each.split(" ", 1)[1])["text"] for each in screen.asked[1:]}) == len(HOSTILE)


def test_half_a_character_is_sent_as_what_can_be_sent(open_screen: Open):
    screen = open_screen(f"#/?m={zoo.MASKED}")
    screen.field().evaluate(
        "(field) => { field.value = 'a \\ud800 b'; field.dispatchEvent(new Event('input', {bubbles: true})) }"
    )
    screen.field().press("Enter")
    screen.settle()
    assert "�" in json.loads(screen.asked[-1].split(" ", 1)[1])["text"]


def test_pieces_of_a_character_are_one_word(open_screen: Open, translator: Path):
    """B25: whatever bytes a character falls into, it stands there whole, once, and is covered whole."""
    screen = open_screen(f"#/?m={translator.name}")
    words = ["银", "𠮷", "👩‍👩‍👧"]
    screen.type("".join(words))
    assert screen.read()[1:4] == words
    assert "\ufffd" not in screen.page.locator(".row").first.inner_text()
    for at, word in enumerate(words, start=1):
        assert len((screen.source(at).get_attribute("title") or "").split()) > len(word.encode()) - 1
        screen.source(at).click()
        screen.settle()
        assert screen.covered() == [at]
        screen.page.keyboard.press("Escape")
        screen.settle()


def test_texts_of_no_and_of_too_great_length(open_screen: Open):
    """B28."""
    screen = open_screen(f"#/?m={zoo.MASKED}")
    screen.type("   ")
    assert screen.page.get_by_text("Type a text above and press Enter.").is_visible()
    screen.type("cat")
    assert screen.read()[1:-1] == ["cat"]
    screen.type("[MASK]")
    assert screen.read()[1:-1] == ["gap"]
    assert len(screen.written()) == 1
    # The longest text: 128 tokens with the two around it.
    screen.type("cat " * 126)
    assert len(screen.read()) == 128
    screen.type("cat " * 127)
    said = screen.page.get_by_role("alert").inner_text()
    assert re.search(r"129|127|128", said)
    screen.type("cat " * 6000)
    assert len(screen.field().input_value()) == 20_000
    screen.type("cat")
    assert screen.read()[1:-1] == ["cat"]
    screen.forgive("status of (400|413)")


# Fast hands and failing servers.


def test_thirty_fast_keys_end_with_the_last_text(open_screen: Open):
    """B26: at most two runs, the last result, nothing stale."""
    screen = open_screen(f"#/?m={zoo.MASKED}")
    screen.type("The")
    asked = len(screen.asked)
    screen.field().press("End")
    screen.field().press_sequentially(" cat is in the old castle now", delay=8)
    screen.field().press("Enter")
    screen.settle()
    assert len(screen.asked) - asked <= 2
    assert screen.read()[1:-1] == ["the", "cat", "is", "in", "the", "old", "castle", "now"]
    assert json.loads(screen.asked[-1].split(" ", 1)[1])["text"] == "The cat is in the old castle now"


def test_what_is_typed_before_the_models_are_known_is_kept(open_screen: Open):
    screen = open_screen(go=False)
    held: list[Route] = []
    screen.page.route("**/api/v1/models", lambda route: held.append(route))
    with screen.page.expect_request("**/api/v1/models"):
        screen.page.goto(f"{screen.server.address}#/?m={zoo.MASKED}")
    screen.field().fill("The cat")
    for each in held:
        each.continue_()
    screen.page.unroute("**/api/v1/models")
    screen.page.wait_for_selector(".stage")
    assert screen.field().input_value() == "The cat"
    screen.field().press("Enter")
    screen.settle()
    assert screen.read()[1:-1] == ["the", "cat"]


def test_ask_asks_of_the_text_that_stands_in_the_field(open_screen: Open):
    screen = open_screen(f"#/ask/lens?m={zoo.MASKED}&text=one")
    screen.settle()
    screen.field().fill("two cats")
    screen.page.locator("details.options > summary").click()
    screen.page.locator("button.ask").click()
    screen.settle()
    assert "text=two+cats" in screen.hash
    assert json.loads(screen.asked[-1].split(" ", 1)[1])["text"] == "two cats"


def test_escape_in_a_menu_closes_the_menu_alone(open_screen: Open):
    screen = open_screen(f"#/?m={zoo.MASKED}&text=The+cat+is+here.&hide=2")
    screen.settle()
    screen.page.locator("header [popovertarget]").first.click()
    screen.page.keyboard.press("Escape")
    expect(screen.page.locator(":popover-open")).to_have_count(0)
    assert screen.covered() == [2]


def test_a_server_that_refuses_its_list_of_models_is_quoted(open_screen: Open):
    screen = open_screen(go=False)
    screen.page.route("**/api/v1/models", fulfil(REFUSED, 503))
    screen.page.goto(f"{screen.server.address}#/")
    expect(screen.page.locator(".banner")).to_contain_text("no memory left")
    screen.forgive("status of 503")


def test_the_last_of_many_clicks_is_what_is_shown(open_screen: Open):
    screen = open_screen(f"#/?m={zoo.MASKED}&text=The+cat+is+in+the+old+castle.")
    screen.page.evaluate(
        "() => { for (let n = 0; n < 31; n++) document.querySelector(`[data-source='${2 + (n % 2)}']`).click() }"
    )
    screen.settle()
    # 16 clicks uncover the first of the two again, 15 leave the second covered.
    assert screen.covered() == [3]
    assert "hide=3" in screen.hash
    assert "With is covered" in screen.said()[0]


def fulfil(body: str, status: int = 200) -> Callable[[Route], None]:
    return lambda route: route.fulfill(status=status, body=body, content_type="application/x-ndjson")


PROGRESS = json.dumps({"progress": {"what": "x", "done": 1, "total": 2}}) + "\n"
REFUSED = json.dumps(
    {"error": {"kind": "out_of_memory", "message": {"en": "no memory left", "zh": "内存不够"}}}
)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (fulfil("<h1>Internal Server Error</h1>", 500), "no whole answer"),
        (fulfil(PROGRESS), "no whole answer"),
        (fulfil(PROGRESS + '{"answer": {"question"'), "no whole answer"),
        (fulfil("not JSON\n"), "no whole answer"),
        (fulfil(PROGRESS + REFUSED), "no memory left"),
        (fulfil(REFUSED, 503), "no memory left"),
    ],
    ids=["500", "cut", "torn", "garbled", "error", "refused"],
)
@pytest.mark.parametrize("place", ["#/?m={}", "#/ask/lens?m={}"], ids=["first", "ask"])
def test_an_answer_that_fails_is_told_and_asked_again(
    open_screen: Open, place: str, answer: Callable[[Route], None], said: str
):
    """B27: what was shown stays, one sentence says why, one button asks again."""
    screen = open_screen(place.format(zoo.MASKED))
    screen.page.route("**/answers/*", answer)
    screen.type("The cat is here.")
    alert = screen.page.get_by_role("alert")
    expect(alert).to_be_visible()
    assert said in alert.inner_text()
    assert screen.page.locator(".stage, .answer").count() == 1
    screen.page.unroute("**/answers/*")
    alert.get_by_role("button").click()
    screen.settle()
    expect(alert).to_have_count(0)
    screen.forgive(NET)


def test_a_server_that_is_opened_killed_and_opened_again(open_screen: Open, own_server: Server):
    """B27: the text stands there while its model is opened; a server that is gone is told, what was shown stays, and
    what was asked meanwhile is answered once it is back."""
    own_server.start(ready=False)
    screen = open_screen(on=own_server, go=False, lang="zh")
    screen.page.goto(f"{own_server.address}#/?text=明月")
    expect(screen.page.locator(".picture bdi").first).to_be_visible()
    assert "".join(screen.page.locator(".picture bdi").all_inner_texts()).endswith("明月")
    expect(screen.page.locator(".stage")).to_be_visible(timeout=60_000)
    screen.settle()
    written = screen.written()
    assert written

    own_server.kill()
    screen.field().fill("清风")
    screen.field().press("Enter")
    banner = screen.page.get_by_text("服务器没有回应")
    expect(banner).to_be_visible()
    assert screen.written() == written
    assert screen.field().input_value() == "清风"

    own_server.start(ready=False)
    screen.page.get_by_role("button", name="立即重试").click()
    expect(banner).to_have_count(0, timeout=30_000)
    expect(screen.page.locator("[data-source] bdi").nth(1)).to_have_text("清", timeout=60_000)
    screen.settle()
    assert screen.written() != written
    screen.forgive(NET)


# Languages.


def test_another_language_changes_nothing_but_words(open_screen: Open):
    """B23: the same model, text, covered and lit words; asked of the server again is nothing."""
    screen = open_screen(f"#/?m={zoo.MASKED}&text=The+cat+is+here.&hide=2&light=0")
    before = state(screen)
    asked = list(screen.asked)
    for name in ("中文", "English") * 2:
        screen.page.get_by_role("button", name=name).click()
        assert state(screen) == before
        assert not re.search(r"\{\w+\}|undefined|NaN|\[object", screen.page.locator("body").inner_text())
    assert screen.asked == asked


def state(screen: Screen) -> tuple[str, str, list[int], int, int]:
    return screen.hash, screen.field().input_value(), screen.covered(), screen.lit(), len(screen.written())
