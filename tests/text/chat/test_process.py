"""Chat templates as programs by strangers: right ones render as the reference does, hostile ones end."""

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from cutaway.errors import CutawayError
from cutaway.text.chat import process as template_process
from cutaway.text.chat.process import LONGEST_TEMPLATE, LONGEST_TEXT, SHARED, TemplateProcess

CHAT = [
    {"role": "system", "content": " Be <kind> & 'brief'. "},
    {"role": "user", "content": "你好 😀\n"},
    {"role": "assistant", "content": "Hi!"},
    {"role": "user", "content": "1 < 2"},
]


@pytest.fixture(scope="module")
def hasty() -> Iterator[TemplateProcess]:
    """A process whose renders may take half a second."""
    process = TemplateProcess(seconds=0.5)
    yield process
    process.stop()


@pytest.mark.parametrize(
    "template",
    [
        (
            "{% for m in messages %}\n  {%- if m.role == 'user' %}\n[U]{{ m['content'] }}\n  {% else %}\n"
            "    {{ m.content | trim }}\n  {% endif %}\n{% endfor %}\n"
        ),
        (
            "{% for m in messages %}{% if loop.index0 == 1 %}{% continue %}{% endif %}{{ m.content }}"
            "{% if loop.index == 3 %}{% break %}{% endif %}{% endfor %}"
        ),
        "{{ messages | tojson }}{{ messages[1] | tojson(indent=2, ensure_ascii=true, sort_keys=true) }}",
        "{{ bos_token }}{% if tools is not none %}{{ tools | length }}{% endif %}{{ nothing }}{{ eos_token }}",
        "{% if add_generation_prompt %}<a>{% endif %}{{ documents is none }}",
        (
            "{% for m in messages %}a{% generation %}  {{ m.content }}{% set x = 1 %}{% endgeneration %}{{ x }}\n"
            "{% endfor %}"
        ),
        (
            "{% set ns = namespace(n=0, self=2) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
            "{{ ns.n }}{{ ns.self }}{{ dict(a=1) }}{{ range(3) | list }}"
        ),
        (
            "{% macro say(m) %}<{{ m.role }}>{{ caller() if caller else m.content[::-1] }}{% endmacro %}"
            "{% for m in messages[1:] %}{{ say(m) }}{% endfor %}{% call say(messages[0]) %}x{% endcall %}"
        ),
        "{{ messages[1].content.split('\\n')[0].strip() }}{{ '%s-%d' % ('a', 3) }}{{ '{:>5}'.format('b') }}",
        "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join('|') }}",
    ],
)
@pytest.mark.parametrize("reply", [False, True])
def test_templates_render_as_in_the_reference(template: str, reply: bool):
    tokens: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>"}
    [expected], _ = render_jinja_template(
        [CHAT], chat_template=template, add_generation_prompt=reply, tools=None, **tokens
    )
    values = {"messages": CHAT, "tools": None, "documents": None, "add_generation_prompt": reply, **tokens}
    assert SHARED.render(template, values, "test") == expected


def test_the_date_is_today():
    before, after = (datetime.now(UTC).astimezone().strftime("%d %b %Y") for _ in range(2))
    assert SHARED.render("{{ strftime_now('%d %b %Y') }}", {}, "test") in (before, after)


HOSTILE = {
    "long string": ("{{ 'x' * 10**10 }}", "too much memory"),
    "wide string": ("{{ 'x' | center(10**10) }}{{ '%0999999999d' % 1 }}", "too much memory"),
    "format": ("{{ '{:>9999999999}'.format(1) }}", "too much memory"),
    "doubling": (
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "too much memory",
    ),
    "doubling list": (
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "too much memory",
    ),
    "replace": ("{{ ('x' * 10**6) | replace('x', 'y' * 4000) }}", "too much memory"),
    "nested loops": (
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "did not end",
    ),
    "long output": ("{% for i in range(99999) %}" + "x" * 1000 + "{% endfor %}", "more than 4 MB"),
    "wide output": ("{{ '字' * 1500000 }}", "more than 4 MB"),
    "range": ("{{ range(10**9) | list | length }}", "Range too big"),
    "recursion": ("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "too deep"),
    "nesting": ("{{ " + "[" * 20000 + "]" * 20000 + " }}", "too deep"),
    "include": ("{% include '/etc/passwd' %}", "no loader"),
    "import": ("{% import 'os' as os %}", "no loader"),
    "extends": ("{% extends 'base' %}", "no loader"),
    "class": ("{{ ''.__class__.__mro__ }}", "may not do"),
    "globals": ("{{ cycler.__init__.__globals__ }}", "may not do"),
    "code": ("{{ raise_exception.__code__.co_consts }}", "may not do"),
    "append": ("{{ messages.append(1) }}", "may not do"),
    "pop": ("{{ messages[0].pop('role') }}", "may not do"),
    "namespace": ("{{ namespace(__class__=1) }}", "may not do"),
    "set namespace": ("{% set ns = namespace() %}{% set ns.__init__ = 1 %}", "may not do"),
    "undefined": ("{{ nothing.at.all }}", "'nothing' is undefined"),
    "syntax": ("a\n{% if %}", "malformed: line 2"),
    "unknown tag": ("{% do messages %}", "unknown tag 'do'"),
    "division": ("{{ 1 // 0 }}", "ZeroDivisionError"),
    "too long": ("x" * (LONGEST_TEMPLATE + 1), f"has {LONGEST_TEMPLATE + 1:,} bytes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_end_in_time_and_leave_memory_alone(hasty: TemplateProcess, name: str):
    template, message = HOSTILE[name]
    hasty.render("started", {}, "test")
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(CutawayError, match=r"folder: the chat template") as caught:
        hasty.render(template, {"messages": CHAT}, "folder")
    # On a busy machine half a second of work may not come before the half second of the clock is over.
    assert message in str(caught.value) or "did not end" in str(caught.value)
    assert time.monotonic() - began < 2
    # KB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
    # KB, of those that were not ended
    assert max(map(_peak, _children()), default=0) < 300_000
    assert hasty.render("{{ a }}", {"a": "next"}, "test") == "next"


@pytest.mark.parametrize(
    "trick", ["{{ '' | attr('__class__') }}", "{{ '{0.__class__}'.format(1) }}", "{{ lipsum.__globals__ }}"]
)
def test_what_is_hidden_is_undefined(trick: str):
    assert SHARED.render(trick, {}, "test") == ""


def test_as_much_as_may_come_out_does():
    assert len(SHARED.render("{{ 'x' * n }}", {"n": LONGEST_TEXT}, "test")) == LONGEST_TEXT
    wide = "字\x01" * (LONGEST_TEXT // 4)
    assert SHARED.render("{{ a }}", {"a": wide}, "test") == wide


def test_the_limit_is_two_seconds():
    began = time.monotonic()
    with pytest.raises(CutawayError, match="did not end within 2 seconds"):
        SHARED.render(HOSTILE["nested loops"][0], {}, "test")
    assert 1.9 < time.monotonic() - began < 4


def test_what_a_template_says_reaches_the_reader_without_control_characters():
    template = "{{ raise_exception('不行: no \x1b[31m system\n') }}"
    with pytest.raises(CutawayError) as caught:
        SHARED.render(template, {}, "test")
    assert str(caught.value) == r"test: the chat template refuses these messages: 不行: no \x1b[31m system\n"


def test_one_process_is_kept_and_replaced_when_it_is_gone():
    others, process = _children(), TemplateProcess()
    assert process.render("a", {}, "test") == "a"
    [child] = _children() - others
    assert process.render("b", {}, "test") == "b"
    assert _children() - others == {child}
    os.kill(child, 9)
    while _state(child) not in ("Z", ""):
        time.sleep(0.01)
    assert process.render("c", {}, "test") == "c"
    assert len(_children() - others - {child}) == 1
    process.stop()
    assert _children() == others
    assert process.render("d", {}, "test") == "d"
    process.stop()


def test_threads_get_their_own_answers():
    found: dict[int, list[str]] = {}

    def ask(number: int) -> None:
        found[number] = [SHARED.render("{{ a }}", {"a": f"{number} {i}"}, "test") for i in range(20)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [f"{number} {i}" for i in range(20)] for number in range(4)}


SCRIPT = """
import os, sys, threading
from cutaway.text.chat.process import SHARED, TemplateProcess
process = SHARED if sys.argv[1] == "ended" else TemplateProcess(seconds=0.5)
process.render("a", {}, "test")
print(process._process.pid, flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
if sys.argv[1] == "busy":
    threading.Timer(0.2, os._exit, (0,)).start()
    process.render("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", {}, "test")
"""


@pytest.mark.parametrize("how", ["ended", "killed", "busy"])
def test_no_process_is_left_behind(how: str):
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, how], capture_output=True, text=True, check=False
    )
    assert run.stderr == ""
    child = int(run.stdout)
    waited = time.monotonic()
    while _state(child) not in ("Z", "", "X"):
        # a busy one ends by its own clock
        assert time.monotonic() - waited < 30
        time.sleep(0.02)


def test_nothing_is_imported_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("jinja2", "json", "markupsafe"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = TemplateProcess()
    assert process.render("a", {}, "test") == "a"
    process.stop()


def test_a_process_that_cannot_start_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(template_process, "_NEEDED", ())
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(CutawayError, match=r"did not start \(/bin/false\); is jinja2 installed"):
        TemplateProcess().render("a", {}, "test")


def _children() -> set[int]:
    """The processes started by this one that render templates."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        try:
            found += [int(pid) for pid in (task / "children").read_text().split()]
        # a thread that has ended since
        except FileNotFoundError:
            continue
    return {pid for pid in found if _state(pid) != "Z" and "chat/worker.py" in _command(pid)}


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _peak(pid: int) -> int:
    """The most memory (KB) that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()
