"""Model folders from strangers: refused with the file's name, in no time and no memory, and nothing of them is run."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.checkpoint.models import change_json, rewrite, write
from tests.limits import grows_less_than, takes_less_than

from cutaway.checkpoint import folder
from cutaway.checkpoint.parameters import fill
from cutaway.errors import CutawayError
from cutaway.models.build import skeleton
from cutaway.text.tokens.tokenizer import Tokenizer

INDEX = "model.safetensors.index.json"
HUGE: list[tuple[str, dict[str, object], str]] = [
    ("llama", {"hidden_size": 65_536}, "the config asks for [61, 65536]"),
    ("llama", {"vocab_size": 10_000_000}, "the config asks for [10000000, 24]"),
    ("llama", {"vocab_size": 10**30}, "vocab_size is 1000000000000000000000000000000, expected 1 to 10,000,000"),
    ("llama", {"intermediate_size": 1_000_000}, "the config asks for [1000000, 24]"),
    ("llama", {"num_hidden_layers": 1000}, "asks for 1,000 layers and experts"),
    ("llama", {"num_hidden_layers": 10**9}, "n_layers is 1000000000, expected 1 to 1,000"),
    ("llama", {"num_attention_heads": 1024, "num_key_value_heads": 1024}, "the config asks for [6144, 24]"),
    ("llama", {"head_dim": 8192}, "the config asks for [32768, 24]"),
    ("llama", {"model_type": "mixtral", "num_local_experts": 65_536}, "asks for 131,074 layers and experts"),
    ("marian", {"max_position_embeddings": 10_000_000}, "a table of 10,000,000 positions has 240,000,000 numbers"),
    ("m2m_100", {"pad_token_id": 60, "max_position_embeddings": 5_000_000}, "a table of 5,000,000 positions"),
    ("marian", {"encoder_layers": 900, "decoder_layers": 900}, "asks for 1,800 layers and experts"),
    ("gpt2", {"n_positions": 10_000_000}, "the config asks for [10000000, 24]"),
    ("bert", {"type_vocab_size": 1_000_000}, "the config asks for [1000000, 24]"),
    ("cutaway", {"n_kv_heads": 4, "d_head": 8192}, "the config asks for"),
    ("cutaway", {"window": 5, "window_layers": list(range(100_000))}, "window_layers"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "changes", "message"), HUGE)
def test_sizes_that_the_weights_do_not_have(
    kind: str, changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path, kind)
    folder.load(path)
    change_json(path / "config.json", **changes)
    with takes_less_than(2), grows_less_than(50), pytest.raises(CutawayError) as error:
        folder.load(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("where", ["rope_parameters", "rope_scaling", None])
def test_rotary_positions_of_a_part_of_each_head_are_refused_by_name(
    where: str | None, tmp_path: Path
) -> None:
    """A model that rotates only some dimensions would run, and run wrong, if the key were passed over."""
    path = write(tmp_path, "llama")
    part = {"partial_rotary_factor": 0.5}
    changes = part if where is None else {"rope_parameters": None, where: {"rope_type": "default", **part}}
    change_json(path / "config.json", **changes)
    with pytest.raises(CutawayError, match="partial_rotary_factor other than 1 is not supported") as error:
        folder.load(path)
    assert str(path) in str(error.value)


WRONG = (None, -1, 0, 10**30, 2.5, True, "x", [], {})


@pytest.mark.parametrize("kind", ["llama", "marian", "cutaway"])
def test_a_value_of_any_kind_under_any_key_opens_or_is_refused(kind: str, tmp_path: Path) -> None:
    contents = folder.open_contents(write(tmp_path, kind))
    config, _ = folder.read_config(contents)
    messages: list[str] = []
    for key in contents.config:
        for value in WRONG:
            spoilt = replace(contents, config={**contents.config, key: value})
            try:
                found, architecture = folder.read_config(spoilt)
                if found != config:
                    fill(skeleton(found), architecture, spoilt.tensors, spoilt.weights_file)
            except CutawayError as error:
                messages.append(str(error))
    assert all(message.startswith(str(tmp_path)) for message in messages)
    assert len(messages) > 3 * len(contents.config)


def test_config_files_that_are_no_config(tmp_path: Path) -> None:
    path = write(tmp_path, "llama")
    for content, message in (
        ("[]", "expected a JSON object"),
        ("{", "not valid JSON"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"vocab_size": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"a": ' * 100_000, "nested too deeply"),
        ('{"a": [' + "0," * 1_000_000 + "0]}", "too large"),
        ('{"a": "' + " " * 17_000_000 + '"}', "too large"),
    ):
        (path / "config.json").write_text(content)
        with grows_less_than(50), pytest.raises(CutawayError, match=message) as error:
            folder.load(path)
        assert str(path / "config.json") in str(error.value)
    (path / "config.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(CutawayError, match="not valid UTF-8"):
        folder.load(path)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn])
def test_weights_that_are_no_floats(dtype: torch.dtype, tmp_path: Path) -> None:
    path, name = write(tmp_path, "llama"), "model.layers.0.mlp.up_proj.weight"
    rewrite(path, lambda t: t.update({name: t[name].to(dtype)}))
    kind = str(dtype).removeprefix("torch.")
    with pytest.raises(
        CutawayError, match=f"tensor '{name}' is of type {kind}, expected floats of 16, 32 or 64"
    ):
        folder.load(path)


def test_shapes_that_no_operation_has_a_meaning_for(tmp_path: Path) -> None:
    for kind, name, shape in (
        ("gpt2", "transformer.h.0.attn.c_attn.weight", [24, 2]),
        ("gpt2", "transformer.h.0.attn.c_attn.bias", []),
        ("gpt2", "transformer.h.0.attn.c_attn.weight", [1, 24, 72]),
        ("marian", "final_logits_bias", []),
        ("marian", "final_logits_bias", [0, 61]),
        ("marian", "final_logits_bias", [61]),
    ):
        path = write(tmp_path / kind, kind)
        rewrite(path, lambda t, name=name, shape=shape: t.update({name: torch.zeros(shape)}))
        with pytest.raises(CutawayError, match=f"tensor '{name}' gives .* the config asks for"):
            folder.load(path)


def test_a_tokenizer_with_more_pieces_than_the_model_has(tmp_path: Path) -> None:
    path = write(tmp_path, "llama")
    tokenizer = Tokenizer.train(["a few words of text, and a few more"], "bpe-bytes", 300)
    tokenizer.save(path)
    message = f"vocab_size is 61, but the tokenizer has {tokenizer.vocab_size} pieces"
    with pytest.raises(CutawayError, match=message):
        folder.load(path)


def index(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    values = json.loads((path / INDEX).read_text())
    change(values["weight_map"])
    (path / INDEX).write_text(json.dumps(values))


NAME = "model.norm.weight"
FIRST = "model-00001-of-00003.safetensors"


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("../outside.safetensors", "expected the name of a safetensors file in this folder"),
        ("{tmp}/outside.safetensors", "expected the name of a safetensors file in this folder"),
        ("sub/inside.safetensors", "expected the name of a safetensors file in this folder"),
        ("..", "expected the name of a safetensors file in this folder"),
        ("", "expected the name of a safetensors file in this folder"),
        ("pytorch_model.bin", "expected the name of a safetensors file in this folder"),
        (7, "expected the name of a safetensors file in this folder"),
        (None, "expected the name of a safetensors file in this folder"),
        ("link.safetensors", "leads out of the model folder"),
        ("missing.safetensors", "missing.safetensors is missing"),
        ("folder.safetensors", "folder.safetensors is missing"),
        ("pipe.safetensors", "pipe.safetensors is missing"),
        (FIRST, "holds 'model.norm.weight'; its place by model.safetensors.index.json: model-0000"),
    ],
)
def test_an_index_that_points_elsewhere(file: object, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "model", "llama", shard_size=20_000)
    folder.load(path)
    outside = tmp_path / "outside.safetensors"
    outside.write_bytes((path / FIRST).read_bytes())
    if file == "link.safetensors":
        (path / "link.safetensors").symlink_to(outside)
    (path / "folder.safetensors").mkdir()
    os.mkfifo(path / "pipe.safetensors")
    target = file.replace("{tmp}", str(tmp_path)) if isinstance(file, str) else file
    index(path, lambda said: said.update({NAME: target}))
    with pytest.raises(CutawayError, match=message) as error:
        folder.load(path)
    assert str(path) in str(error.value)


def test_an_index_that_says_something_else(tmp_path: Path) -> None:
    path = write(tmp_path, "llama", shard_size=20_000)
    whole = (path / INDEX).read_text()
    index(path, lambda said: said.update({"extra": FIRST}))
    with pytest.raises(
        CutawayError, match=f"{FIRST}: tensor extra is missing, which {INDEX} says lies there"
    ):
        folder.load(path)
    (path / INDEX).write_text(whole)
    index(path, lambda said: said.pop(NAME))
    with pytest.raises(CutawayError, match=rf"holds '{NAME}'; its place by {INDEX}: nowhere"):
        folder.load(path)
    for wrong in ({}, [], "x", None):
        (path / INDEX).write_text(json.dumps({"weight_map": wrong}))
        with pytest.raises(CutawayError, match="weight_map is missing or empty"):
            folder.load(path)
    twice = f'"{NAME}": "{FIRST}"'
    (path / INDEX).write_text(f'{{"weight_map": {{{twice}, {twice}}}}}')
    with pytest.raises(CutawayError, match=f"{INDEX}: key '{NAME}' stands there twice"):
        folder.load(path)
    (path / INDEX).write_text(whole)
    (path / FIRST).write_bytes((path / FIRST).read_bytes()[:-4])
    with pytest.raises(CutawayError, match=f"{FIRST}: not a whole safetensors file"):
        folder.load(path)


@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "tokenizer.json", "chat_template.jinja"]
)
def test_a_link_that_leads_out(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "model", "llama")
    outside = tmp_path / "outside"
    outside.write_text((path / "config.json").read_text())
    (path / name).unlink(missing_ok=True)
    (path / name).symlink_to(outside)
    with pytest.raises(CutawayError, match=f"{name}: leads out of the model folder"):
        folder.load(path)


def test_the_links_of_a_download_are_followed(tmp_path: Path) -> None:
    """Hugging Face's cache: `snapshots/<version>` links to `blobs`, and to nowhere else."""
    repository = tmp_path / "models--someone--something"
    path = write(repository / "snapshots" / "0a1b", "llama")
    (repository / "blobs").mkdir()
    for number, file in enumerate(path.iterdir()):
        blob = file.rename(repository / "blobs" / str(number))
        file.symlink_to(Path("../../blobs") / blob.name)
    folder.load(path)
    (path / "config.json").unlink()
    (path / "config.json").symlink_to(repository.with_name("secret"))
    repository.with_name("secret").write_text("{}")
    with pytest.raises(CutawayError, match=r"config\.json: leads out of the model folder"):
        folder.load(path)


PAYLOAD = b"cos\nmkdir\n(S'%s'\ntR."  # a pickle that makes a folder when it is opened


@pytest.mark.parametrize("suffix", [".bin", ".pt", ".pth", ".ckpt", ".npz", ".joblib", ".pkl", ".PT"])
def test_pickles_are_refused_and_never_run(suffix: str, tmp_path: Path) -> None:
    path, made = write(tmp_path / "model", "llama"), tmp_path / "made"
    pickle = path / f"pytorch_model{suffix}"
    pickle.write_bytes(PAYLOAD % bytes(made))
    # beside safetensors it is left alone
    folder.load(path)
    (path / "model.safetensors").unlink()
    for opened in (path, pickle):
        with pytest.raises(
            CutawayError, match=f"{pickle.name} is a pickle.*convert it to safetensors.*save_pretrained"
        ):
            folder.load(opened)
    pickle.rename(path / "model.safetensors")
    with pytest.raises(CutawayError, match="not a whole safetensors file"):
        folder.load(path)
    assert not made.exists()


AUDIT = """
import sys
from pathlib import Path
from cutaway.checkpoint.folder import load
from cutaway.errors import CutawayError

good, bad = map(Path, sys.argv[1:])
load(good)  # whatever is imported late is there now
heard = []

def hear(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        place = Path(arguments[0] if isinstance(arguments[0], str) else arguments[0].decode())
        if not place.resolve().is_relative_to(bad.resolve()):
            heard.append(f"{event} {place}")
    elif event in ("import", "exec", "compile", "os.system", "marshal.loads") or event.startswith(
        ("subprocess.", "socket.", "os.exec", "os.spawn", "os.posix_spawn", "ctypes.dl", "pickle.", "urllib.")
    ):
        heard.append(f"{event} {arguments}")

sys.addaudithook(hear)
load(bad)
print("\\n".join(heard))
"""


def test_nothing_of_a_folder_is_run_and_nothing_else_is_opened(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "good", "llama"), write(tmp_path / "bad", "llama", shard_size=20_000)
    ran = tmp_path / "ran"
    for name in (
        "modeling_evil",
        "configuration_evil",
        "tokenization_evil",
        "__init__",
        "sitecustomize",
        "torch",
    ):
        (bad / f"{name}.py").write_text(f"import os\nos.mkdir({str(ran)!r})\nclass Evil: pass\n")
    (bad / "pytorch_model.bin").write_bytes(PAYLOAD % bytes(ran))
    code = {"AutoConfig": "configuration_evil.Evil", "AutoModelForCausalLM": "modeling_evil.Evil"}
    change_json(
        bad / "config.json", auto_map=code, trust_remote_code=True, _name_or_path="../good", torchscript=True
    )
    tokenizer = Tokenizer.train(["a few words of text, and a few more"], "characters", None, min_count=1)
    for path in (good, bad):
        tokenizer.save(path)
    change_json(
        bad / "tokenizer_config.json",
        auto_map={"AutoTokenizer": ["tokenization_evil.Evil", None]},
        tokenizer_class="Evil",
        trust_remote_code=True,
        chat_template="{{ messages }}",
    )
    run = subprocess.run(
        [sys.executable, "-c", AUDIT, str(good), str(bad)], capture_output=True, text=True, cwd=bad.parent
    )
    assert (run.returncode, run.stdout.strip()) == (0, ""), run.stdout + run.stderr
    assert not ran.exists()
