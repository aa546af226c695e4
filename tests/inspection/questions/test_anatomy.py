"""What is said of a model is what the model is; and its page, drawn as boxes, in any width and both languages."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests import command
from tests.command import Case, page_of, refused, result, shown, shown_in_chinese
from tests.inspection.sizes import MODELS, config
from tests.limits import takes_less_than
from torch import Tensor

from cutaway import CutawayError, Tokenizer, build, bundled, load, save
from cutaway.checkpoint.folder import open_contents, read_config
from cutaway.checkpoint.parameters import aliases
from cutaway.checkpoint.word_vectors import holds_vectors
from cutaway.config import ModelConfig, parse
from cutaway.inspection.answers import plain
from cutaway.inspection.model_diagram import diagram
from cutaway.inspection.model_size import parts
from cutaway.inspection.questions.anatomy import amount, anatomy, anatomy_of, compressed
from cutaway.inspection.wiring import tap_names
from cutaway.models.build import PRESETS
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.encoder_only import EncoderOnly
from cutaway.page.console import Terminal
from cutaway.text.display import width
from cutaway.words import Locale

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("poet", None, {"contexts": [7, 9]}),
]


def ids(n_tokens: int) -> Tensor:
    return torch.randint(0, 61, (1, n_tokens), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", MODELS)
def test_counts_are_those_of_the_model(name: str) -> None:
    model, found = build(config(name)), anatomy_of(config(name))
    total = sum(parameter.numel() for parameter in model.parameters())
    assert found.parameters == total and found.parts == parts(model) and found.taps == tap_names(model)
    assert found.memory == {"fp32": 4 * total, "fp16": 2 * total, "bf16": 2 * total, "int8": total}
    assert plain(found)["family"] == model.config.family


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_the_cache_holds_what_is_said(name: str) -> None:
    model, said = build(config(name)).eval(), anatomy_of(config(name)).cache
    if isinstance(model, EncoderOnly):
        assert said is None
        return
    assert said is not None
    cache = model.begin(ids(9)) if isinstance(model, EncoderDecoder) else model.begin(1)
    model.step(ids(5), cache)
    own = sum(kept.keys.numel() + kept.values.numel() for kept in cache.self_attn)
    fixed = sum(kept.keys.numel() + kept.values.numel() for kept in cache.cross_attn or [])
    assert (said.per_token * 5, said.per_source_token * 9) == (own, fixed)
    assert said.bytes_per_token == {"fp32": 4 * own // 5, "fp16": 2 * own // 5, "bf16": 2 * own // 5}


def test_tied_matrices_are_named() -> None:
    assert anatomy_of(config("pre-norm, sinusoids")).tied == (
        ("source_embed.tokens.weight", "target_embed.tokens.weight", "head.unembed.weight"),
    )
    assert anatomy_of(config("Llama, grouped")).tied == ()


def test_only_the_chosen_experts_are_at_work_on_a_token() -> None:
    sparse = config("mixture of experts")
    found = anatomy_of(sparse)
    one = replace(sparse, n_experts=2)  # a model that has no more experts than a token is given
    router = 24 * 3 * 3  # the rows of the router for the three others, in three layers
    assert found.active_parameters == anatomy_of(one).parameters + router
    dense = anatomy_of(config("Llama, grouped"))
    assert dense.active_parameters == dense.parameters
    mixed = {part.name: part.layers for part in anatomy_of(config("experts but in one layer")).parts}
    assert (mixed["experts"], mixed["feed-forward"], mixed["self-attention"]) == (2, 1, 3)


def test_control_tokens_have_the_roles_of_tokenizer_and_config(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["ab ba"] * 4, "characters", None, min_count=1)
    eos = tokenizer.require("eos")
    sizes = {**MODELS["GPT-2"], "eos_id": eos, "decoder_start_id": eos}
    save(tmp_path, build(parse(ModelConfig, sizes, "test")), tokenizer)
    found = anatomy(open_contents(tmp_path)).tokenizer
    assert found is not None
    assert found.size == tokenizer.vocab_size
    assert {control.id: control.piece for control in found.controls} == tokenizer.controls
    assert {control.id: control.roles for control in found.controls}[eos] == ("eos", "decoder_start")


def test_a_model_of_billions_is_described_in_seconds_and_without_its_weights() -> None:
    """Llama 3 70B; its published size is 70,553,706,496 parameters."""
    large = parse(
        ModelConfig,
        {**PRESETS["llama-tiny"], "vocab_size": 128256, "d_model": 8192, "n_layers": 80, "n_heads": 64,
         "n_kv_heads": 8, "d_ff": 28672, "rope_base": 5e5, "tied": False, "max_len": 8192},
        "test",
    )  # fmt: skip
    with takes_less_than(5):
        found = anatomy_of(large)
    assert found.parameters == 70_553_706_496
    assert found.cache is not None
    assert found.cache.bytes_per_token["fp16"] == 80 * 2 * 8 * 128 * 2


def test_files_are_described_without_their_weights(translator: Path, passes: Callable[[], int]) -> None:
    contents = open_contents(translator)
    settings, architecture = read_config(contents)
    found = anatomy(contents, contexts=(7,))
    assert found == anatomy_of(settings, architecture=architecture, contents=contents, contexts=[7])
    loaded = load(translator)
    (kind,) = found.stored
    assert (kind.dtype, kind.tensors, kind.values) == (
        "float32",
        len(aliases(loaded.model)),
        found.parameters,
    )
    assert [each.context for each in found.operations] == [7] and found.architecture == "marian"
    assert [each.context for each in anatomy(contents).operations] == [32]
    for context in (0, -3, 33):
        with pytest.raises(
            CutawayError, match=f"contexts has {context}, expected 1 to 32, this model's limit"
        ):
            anatomy(contents, contexts=(context,))
    assert passes() == 0


# Its page.


def lines_of(settings: ModelConfig, columns: int = 80, locale: Locale = "en") -> list[str]:
    return Terminal(columns, locale=locale).text(diagram(settings)).splitlines()


def test_encoder_and_decoder_stand_side_by_side_where_there_is_room() -> None:
    base = parse(ModelConfig, {**PRESETS["transformer-base"], "vocab_size": 37000}, "test")
    wide, narrow = lines_of(base, 80), lines_of(base, 60)
    assert len(narrow) > len(wide)
    for lines in (wide, narrow):
        text = "\n".join(lines)
        for words in ("Self-attention 8×64", "Causal self-attention 8×64", "Cross-attention 8×64", "6 ×",
                      "Feed-forward 2,048, ReLU", "Add & LayerNorm", "+ sinusoidal positions", "memory",
                      "Embedding 37,000×512"):  # fmt: skip
            assert words in text
    crossing = next(line for line in wide if "Cross-attention" in line)
    # the memory ends where it is read
    assert "└─►│ Cross-attention" in crossing
    assert max(map(width, wide)) <= 80


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_kv_heads": 2}, "key/value heads: 2"),
        ({"n_kv_heads": 1}, "key/value heads: 1"),
        ({"qk_norm": True}, "RMSNorm of queries and"),
        ({"rope_base": 5e5}, "rotary, base 500,000"),
        ({"rope_scaling": {"kind": "linear", "factor": 8}}, "linear ×8"),
        ({"window": 64, "window_layers": [0, 2, 4]}, "window 64 in layers 0-4 step"),
        ({"window": 64, "window_layers": list(range(6))}, "window 64"),
        ({"norm": "rmsnorm1p", "norm_order": "sandwich"}, "RMSNorm, 1 + weight"),
        ({"attn_softcap": 50}, "soft cap ±50"),
        ({"attn_scale": 1.0}, "scores not scaled"),
        ({"n_experts": 8, "n_experts_per_token": 2, "d_expert": 96}, "Experts, 2 of 8 a token"),
        ({"n_experts": 8, "dense_layers": [0, 1]}, "layers 0-1: Feed-forward"),
        ({"n_experts": 8, "experts_renormalised": False}, "weights as the router has"),
        ({"rope_local_base": 5e4, "window": 64, "window_layers": [1]}, "window 64 in layers 1, base 50,000"),
        ({"position": "alibi"}, "ALiBi position bias"),
        ({"position": "learned"}, "+ learned positions"),
        ({"tied": True}, ", tied"),
        ({"logit_softcap": 30}, "soft cap ±30"),
        ({"embed_scale": 16.0}, "×16"),
    ],
)
def test_every_variant_is_drawn(changes: dict[str, object], words: str) -> None:
    base = {**PRESETS["llama-tiny"], "vocab_size": 100, "d_head": 64, "tied": False}
    with_it, without = (
        " ".join(line.strip(" │") for line in lines_of(parse(ModelConfig, values, "test")))
        for values in ({**base, **changes}, base)
    )
    assert words in with_it
    assert words not in without


def test_the_table_adds_up(cutaway: command.Run, poet: Path) -> None:
    found = result(cutaway, "anatomy", "-m", poet)
    lines = shown(cutaway, "anatomy", "-m", poet).splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("parameters "))
    end = next(n for n, line in enumerate(lines) if line.startswith("total "))
    rows = [line for line in lines[start + 2 : end] if "tied" not in line]
    counts = [int(re.split(r"\s{2,}", row)[-2].replace(",", "")) for row in rows]
    assert sorted(counts) == sorted(part["parameters"] for part in found["parts"])
    assert lines[end].split() == ["total", f"{found['parameters']:,}"]


def test_the_page_says_what_the_model_is(
    cutaway: command.Run, translator: Path, poet: Path, masked: Path
) -> None:
    for folder in (translator, poet, masked):
        loaded = load(folder)
        text = " ".join(shown(cutaway, "anatomy", "-m", folder).split())
        total = sum(parameter.numel() for parameter in loaded.model.parameters())
        facts = (f"{loaded.config.family}, ", f"{total:,} parameters", f"{loaded.config.max_len} tokens",
                 "stored as float32", f"{len(tap_names(loaded.model))} taps")  # fmt: skip
        for fact in (*facts, *loaded.require_tokenizer().controls.values()):
            assert fact in text
        shown_in_chinese(cutaway, "anatomy", "-m", folder)


@pytest.mark.parametrize("columns", ["56", "80", "132"])
def test_bundled_models_fit_the_width_of_the_terminal(
    cutaway: command.Run, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for folder in (each for each in bundled() if not holds_vectors(each)):
        for lang in ("en", "zh"):
            found = cutaway("inspect", "anatomy", "-m", folder.name, "--lang", lang)
            assert (found.code, found.err) == (0, "")
            lines = found.out.splitlines()
            assert max(map(width, lines)) <= int(columns) and len(lines) < 110


def test_the_diagram_is_a_figure(cutaway: command.Run) -> None:
    assert cutaway("inspect", "anatomy", "--svg", "model.svg").code == 0
    (picture,) = Path().glob("model*.svg")
    texts = re.findall("<text[^>]*>([^<]+)", picture.read_text(encoding="utf-8"))
    assert {"Embedding 8,000×256, ×16", "Cross-attention 4×64", "memory"} <= set(texts)
    html = page_of(cutaway, "anatomy", lang="zh")
    assert "交叉注意力 4×64" in html and html.count("<figure") == 1


def test_the_contexts_are_options(cutaway: command.Run, poet: Path) -> None:
    both = result(cutaway, "anatomy", "-m", poet, "--contexts", "8,16")["operations"]
    assert [each["context"] for each in both] == [8, 16]
    assert both[0]["per_token"]["attention"] * 2 == both[1]["per_token"]["attention"]
    assert "contexts has 33, expected 1 to 32" in refused(cutaway, "anatomy", "-m", poet, "--contexts", "33")
    assert "contexts is '8;16', expected whole numbers" in refused(
        cutaway, "anatomy", "-m", poet, "--contexts", "8;16"
    )


def test_a_config_that_belies_the_file_is_refused(cutaway: command.Run, poet: Path, tmp_path: Path) -> None:
    folder = tmp_path / "liar"
    shutil.copytree(poet, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 48}))
    found = cutaway("inspect", "anatomy", "-m", folder)
    assert (found.code, found.out) == (2, "")
    assert "the shape [32, 16], the config asks for [48, 16]" in found.err


def test_a_file_with_what_no_part_of_the_model_reads_is_refused(
    cutaway: command.Run, masked: Path, tmp_path: Path
) -> None:
    """A classifier, for one, has a body that is known, and another head."""
    folder = tmp_path / "classifier"
    shutil.copytree(masked, folder)
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if not name.startswith("cls.")}
    kept["classifier.weight"] = kept["bert.embeddings.LayerNorm.weight"].clone()
    save_file(kept, folder / "model.safetensors")
    found = cutaway("inspect", "anatomy", "-m", folder)
    assert (found.code, found.out) == (2, "")
    assert "are no part of a bert model: classifier.weight" in found.err


def test_an_unknown_model_is_named(cutaway: command.Run) -> None:
    found = cutaway("inspect", "anatomy", "-m", "bert-tinny")
    assert (found.code, found.out) == (2, "")
    assert "did you mean 'bert-tiny'?" in found.err


def test_wide_control_tokens_stay_in_line_and_odd_ones_are_spelled(
    cutaway: command.Run, tmp_path: Path
) -> None:
    marks = ["<翻译>", "<\x1b[31mred>"]
    tokenizer = Tokenizer.train(["ab ba"] * 4, "characters", None, min_count=1, controls=marks)
    sizes = {
        **PRESETS["llama-tiny"],
        "vocab_size": tokenizer.vocab_size,
        "d_model": 16,
        "n_layers": 1,
        "d_ff": 8,
    }
    save(tmp_path / "model", build(parse(ModelConfig, sizes, "test")), tokenizer)
    found = cutaway("inspect", "anatomy", "-m", tmp_path / "model")
    assert found.code == 0
    assert "<翻译>" in found.out
    assert "\x1b" not in found.out
    assert "⟨U+001B⟩[31mred" in found.out
    assert max(map(width, found.out.splitlines())) <= 80


def test_a_terminal_without_box_characters_gets_ascii(
    cutaway: command.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    found = cutaway("inspect", "anatomy", "-m", "poet-zh")
    assert (found.code, found.err) == (0, "")
    assert found.out.isascii()
    assert "+---" in found.out


@pytest.mark.parametrize("preset", ["m2m100-tiny", "llama-tiny", "bert-tiny"])
@pytest.mark.parametrize("experts", [{}, {"n_experts": 3}, {"n_experts": 2, "dense_layers": [0, 2]}])
def test_compressed_names_say_every_name_once(preset: str, experts: dict[str, object]) -> None:
    """Braces and ranges are opened again here, and must give the names."""
    sizes = {"vocab_size": 9, "d_model": 8, "d_ff": 8, "n_layers": 5, "n_encoder_layers": None, **experts}
    names = tap_names(build(parse(ModelConfig, {**PRESETS[preset], **sizes}, preset)))
    lines = compressed(names)
    assert sorted(name for line in lines for name in opened_braces(line)) == sorted(names)
    assert len(lines) < 16


def opened_braces(text: str) -> list[str]:
    if "{" in text:
        before, _, rest = text.partition("{")
        inside, _, after = rest.partition("}")
        return [name for each in inside.split(", ") for name in opened_braces(before + each + after)]
    before, _, rest = text.partition(".")
    if not rest:
        return [text]
    numbers = [before]
    if before[0].isdigit():
        bounds = [list(map(int, each.split("-"))) for each in before.split(",")]
        numbers = [str(n) for each in bounds for n in range(each[0], each[-1] + 1)]
    return [f"{number}.{name}" for number in numbers for name in opened_braces(rest)]


def test_amounts_have_three_digits() -> None:
    assert [amount(n, "B") for n in (0, 999, 1000, 18_843_648, 1.21e9, 3.2e15)] == [
        "0 B", "999 B", "1 kB", "18.8 MB", "1.21 GB", "3.2e+03 TB",
    ]  # fmt: skip
