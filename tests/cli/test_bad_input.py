"""Every wrong file, key, value, name, size or text: one clear message on stderr, exit code 2, no traceback."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cutaway import CutawayError
from cutaway.text.corpus import read_jsonl
from cutaway.zoo import bundled

# Arguments with `{translator}`, `{poet}`, `{masked}`, `{folder}` put in; what the message must say.
WALK: list[tuple[str, str]] = [
    # names
    ("translat 你好", "cutaway has no command 'translat' (did you mean 'translate'?)"),
    ("translate 你好 --beem 3", "cutaway translate has no option --beem (did you mean '--beam'?)"),
    ("translate 你好 -m translate-zh-em", "no model 'translate-zh-em': neither a folder nor a bundled model"),
    ("generate 你 -m nonsense", "bundled: {bundled}"),
    ("translate 你好 -m {translator} --show alinment", "--show is alinment (did you mean 'alignment'?)"),
    ("translate 你好 -m {translator} --to english", "to is 'english', expected one of en, zh"),
    ("tokenizer train {folder}/text.txt -o {folder}/new --kind bpee", "--kind is bpee (did you mean 'bpe'?)"),
    # families
    ("translate 你好 -m {poet}", "decoder-only family, expected encoder-decoder; use it with `cutaway generate`"),
    ("generate 你好 -m {masked}", "use it with `cutaway fill`"),
    ("fill 你[MASK] -m {translator}", "use it with `cutaway translate`"),
    # values and sizes
    ("translate 你好 -m {translator} --beam 0", "beam is 0, expected 1 to 32"),
    ("translate 你好 -m {translator} --beam 1000", "beam is 1000, expected 1 to 32"),
    ("translate 你好 -m {translator} --beam four", "--beam is four, expected a whole number"),
    ("translate 你好 -m {translator} --n-best 9", "n_best is 9, expected 1 to the beam's width (4)"),
    ("translate 你好 -m {translator} --min-new-tokens 9 --max-new-tokens 3", "min_new_tokens is 9"),
    ("translate 你好 -m {translator} --length-penalty 99", "length penalty alpha is 99.0"),
    ("generate 今天 -m {poet} --temperature -1", "temperature is -1.0, expected 0 or more"),
    ("generate 今天 -m {poet} --temperature nan", "temperature is nan"),
    ("generate 今天 -m {poet} --top-p -1", "top_p is -1.0"),
    ("generate 今天 -m {poet} --top-k -1", "top_k is -1"),
    ("generate 今天 -m {poet} --min-p 2", "min_p is 2.0"),
    ("generate 今天 -m {poet} --repetition-penalty 0", "repetition_penalty is 0.0"),
    ("generate 今天 -m {poet} --max-new-tokens -1", "max_new_tokens is -1"),
    ("fill 我[MASK] -m {masked} --top 0", "top is 0, expected 1 to"),
    ("tokenizer train {folder}/text.txt -o {folder}/new --vocab-size 3", "vocab"),
    # files
    ("translate -f {folder}/missing -m {translator}", "{folder}/missing"),
    ("translate -f {folder} -m {translator}", "{folder}"),
    ("translate -f {folder}/latin1.txt -m {translator}", "latin1.txt:2"),
    ("translate 你好 -f {folder}/text.txt -m {translator}", "a text and --file were given; give one of them"),
    ("translate 你好 -m {folder}/text.txt", "a file, expected a model's folder"),
    ("translate 你好 -m {folder}/empty", "a folder without config.json"),
    ("tokenize 你好 -t {folder}/empty", "{folder}/empty"),
    ("tokenize 你好 -t {folder}/text.txt", "not a tokenizer.json"),
    ("tokenizer train {folder}/missing -o {folder}/new", "{folder}/missing"),
    ("tokenizer train {folder}/latin1.txt -o {folder}/new", "latin1.txt:2"),
    ("tokenizer train {folder}/blank.txt -o {folder}/new", "no text to learn a vocabulary from"),
    ("tokenizer train {folder}/text.txt -o {folder}/text.txt", "a file, expected a folder"),
    ("evaluate {folder}/text.txt {folder}/blank.txt --to en -m {translator}", "different numbers of lines"),
    ("evaluate {folder}/none.txt {folder}/none.txt --to en -m {translator}", "no lines to translate"),
    ("evaluate {folder}/text.txt {folder}/text.txt --to en --only x", "--labels and --only belong together"),
    ("evaluate {folder}/text.txt {folder}/text.txt --to fr -m {translator}", "to is 'fr'"),
    ("evaluate {folder}/text.txt {folder}/text.txt --to en -m {translator} --out {folder}/no/x",
     "there is no folder {folder}/no"),
    ("evaluate {folder}/text.txt {folder}/text.txt -m {translator}", "SOURCE and REFERENCE --to LANGUAGE"),
    ("train {folder}/missing.toml", "{folder}/missing.toml"),
    ("train {folder}/broken.toml", "broken.toml:1: not valid TOML: Expected "),
    ("train {folder}/unknown.toml", "broken_key"),
    # texts
    ("fill nothing -m {masked}", "the text has no gap to fill; write [MASK]"),
    ("translate " + "好" * 50 + " -m {translator}", "this model reads at most"),
    ("generate " + "好" * 50 + " -m {poet}", "this model's limit is 32 positions"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("我爱你。\nI love you.\n", encoding="utf-8")
    (tmp_path / "latin1.txt").write_bytes("good\ncafé\n".encode("latin-1"))
    (tmp_path / "blank.txt").write_text("\n\n\n")
    (tmp_path / "none.txt").write_text("")
    (tmp_path / "broken.toml").write_text("[run\n")
    (tmp_path / "unknown.toml").write_text('broken_key = 1\n[run]\nname = "x"\n')
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.parametrize(("command", "message"), WALK, ids=[command[:60] for command, _ in WALK])
def test_one_clear_message(
    cutaway, command: str, message: str, translator: Path, poet: Path, masked: Path, folder: Path
):
    names = {"translator": translator, "poet": poet, "masked": masked, "folder": folder}
    names |= {"bundled": ", ".join(model.name for model in bundled()) or "none"}
    result = cutaway(*(word.format(**names) for word in command.split()))
    assert result.code == 2
    assert result.out == ""
    assert message.format(**names) in result.err
    last = result.err.splitlines()[-1]
    assert last.lower().startswith("error: ")
    assert "Traceback" not in result.err


def test_bad_bytes_on_standard_input(cutaway, translator: Path):
    result = cutaway("translate", "-m", translator, given=b"good\n\xff\xfe\n")
    assert result.code == 2
    assert (
        "standard input:2: a byte that is not UTF-8 at byte 1 of the line, byte 6 of the file" in result.err
    )


@pytest.mark.parametrize("alone", [False, True], ids=["mixed", "Chinese"])
@pytest.mark.parametrize(
    ("encoding", "named"),
    [("gb18030", "GB18030"), ("utf-16", "UTF-16"), ("utf-32", "UTF-32"), ("utf-16-le", "UTF-16LE"),
     ("utf-16-be", "UTF-16BE"), ("utf-32-le", "UTF-32LE"), ("utf-32-be", "UTF-32BE")],
)  # fmt: skip
def test_another_encoding_is_called_by_its_name_with_a_command_that_works(
    cutaway, encoding: str, named: str, alone: bool, translator: Path, tmp_path: Path
):
    # text without Latin letters has no zeros in UTF-16
    text = "今天天气很好，我们去公园。\n" if alone else "Hello, how are you?\n今天天气很好，我们去公园。\n"
    file = tmp_path / "a b.txt"
    file.write_bytes(text.encode(encoding))
    whole = cutaway("translate", "-m", translator, "-f", file)
    piped = cutaway("translate", "-m", translator, given=file.read_bytes())
    for result, command in (
        (whole, f"iconv -f {named} -t UTF-8 'a b.txt' > new-file"),
        (piped, f"… | iconv -f {named} -t UTF-8 | cutaway …"),
    ):
        assert (result.code, result.out) == (2, "") and command in result.err
    subprocess.run(
        ["bash", "-c", f"iconv -f {named} -t UTF-8 'a b.txt' > new-file"], cwd=tmp_path, check=True
    )
    assert (tmp_path / "new-file").read_text(encoding="utf-8").removeprefix("\ufeff") == text


def test_bytes_that_no_encoding_is_known_for_and_nuls_are_refused_everywhere(
    cutaway, translator: Path, tmp_path: Path
):
    file = tmp_path / "file"
    for data, what in (
        (b"caf\xe9 r\xe9sum\xe9\n", "a byte that is not UTF-8"),
        (b"long \0 time no see\n", "a NUL"),
    ):
        file.write_bytes(data)
        for result in (
            cutaway("translate", "-m", translator, "-f", file),
            cutaway("translate", "-m", translator, given=data),
            cutaway("tokenize", "-t", translator, given=data),
        ):
            assert (result.code, result.out) == (2, "")
            assert what in result.err and "iconv -f ENCODING -t UTF-8" in result.err
    file.write_bytes(b'{"a": "x\\u0000"}\n')
    with pytest.raises(CutawayError, match="file:1: field 'a' has a NUL, expected text"):
        list(read_jsonl(file, ["a"]))


def test_bad_bytes_in_an_argument(process, translator: Path):
    result = process("tokenize", b"\xff".decode(errors="surrogateescape"), "-t", translator)
    assert result.returncode == 2
    assert result.stderr.decode() == (
        "error: the text is not valid UTF-8; set the terminal to UTF-8, or give the text in a file\n"
    )


def rewrite(name: str, change: Callable[[dict], None]) -> Callable[[Path], None]:
    def write(model: Path) -> None:
        values = json.loads((model / name).read_text(encoding="utf-8"))
        change(values)
        (model / name).write_text(json.dumps(values), encoding="utf-8")

    return write


def cut(name: str, bytes_left: int) -> Callable[[Path], None]:
    def shorten(model: Path) -> None:
        (model / name).write_bytes((model / name).read_bytes()[:bytes_left])

    return shorten


def without_end(model: Path) -> None:
    rewrite("config.json", lambda values: values.update(eos_token_id=None))(model)
    rewrite("generation_config.json", lambda values: values.pop("eos_token_id"))(model)


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "no weights": (lambda model: (model / "model.safetensors").unlink(), "model.safetensors is missing"),
    "weights cut short": (cut("model.safetensors", 900), "model.safetensors"),
    "config cut short": (cut("config.json", 40), "config.json"),
    "no tokenizer": (lambda model: (model / "tokenizer.json").unlink(), "no tokenizer"),
    "tokenizer cut short": (cut("tokenizer.json", 500), "tokenizer.json: not a tokenizer.json"),
    "unknown architecture": (
        rewrite("config.json", lambda values: values.update(model_type="mariam")), "did you mean 'marian'?",
    ),
    "wrong size": (rewrite("config.json", lambda values: values.update(d_model=32)), "shape"),
    "size of the wrong type": (rewrite("config.json", lambda values: values.update(d_model="16")), "d_model"),
    "vocabulary too small": (rewrite("config.json", lambda values: values.update(vocab_size=100)), "vocab_size"),
    "no end token": (without_end, "eos_token_id"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_model_is_refused(cutaway, damage: str, translator: Path, tmp_path: Path):
    model = tmp_path / "model"
    shutil.copytree(translator, model)
    spoil, message = DAMAGE[damage]
    spoil(model)
    result = cutaway("translate", "好久不见。", "-m", model)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: ")
    assert message in result.err
    assert len(result.err.splitlines()) == 1
