import json
import shutil
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from cutaway import Tokenizer, build, bundled, load, save
from cutaway.checkpoint.folder import open_contents, read_config
from cutaway.checkpoint.parameters import aliases
from cutaway.cli.boxes import FRAME, draw, layers, ranges
from cutaway.cli.screen import amount
from cutaway.cli.tap_lines import compressed, packed
from cutaway.config import ModelConfig, parse, to_dict
from cutaway.inspection.questions.anatomy import anatomy
from cutaway.inspection.wiring import tap_names
from cutaway.models.build import PRESETS
from cutaway.page.locale import Locale, told
from cutaway.text.display import width

BOX = set("┌┐└┘├┤─│╞╡═▲►")


def test_the_screen_says_what_the_model_is(cutaway, translator: Path, poet: Path, masked: Path):
    for folder in (translator, poet, masked):
        loaded = load(folder)
        result = cutaway("inspect", folder)
        assert (result.code, result.err) == (0, "")
        total = sum(parameter.numel() for parameter in loaded.model.parameters())
        for fact in (
            f"{total:,}",
            loaded.config.family,
            f"{loaded.config.max_len} tokens",
            "stored as float32",
        ):
            assert fact in result.out
        for control in loaded.require_tokenizer().controls.values():
            assert control in result.out
        assert f"{len(tap_names(loaded.model))} taps" in result.out


def test_bundled_models_fit_the_width_of_the_terminal(cutaway, monkeypatch: pytest.MonkeyPatch):
    for columns in (56, 80, 132):
        monkeypatch.setenv("COLUMNS", str(columns))
        for folder in bundled():
            result = cutaway("inspect", folder.name)
            assert (result.code, result.err) == (0, "")
            lines = result.out.splitlines()
            assert max(map(width, lines)) <= columns
            assert len(lines) < 90


def test_encoder_and_decoder_stand_side_by_side_where_there_is_room():
    config = parse(ModelConfig, {**PRESETS["transformer-base"], "vocab_size": 37000}, "test")
    wide, narrow = draw(config, 80), draw(config, 60)
    assert len(narrow) > len(wide)
    for lines in (wide, narrow):
        text = "\n".join(lines)
        for words in ("Self-attention 8×64", "Causal self-attention 8×64", "Cross-attention 8×64", "6 ×",
                      "Feed-forward 2,048, ReLU", "Add & LayerNorm", "+ sinusoidal positions", "memory",
                      "Embedding 37,000×512"):  # fmt: skip
            assert words in text
    crossing = next(line for line in wide if "Cross-attention" in line)
    assert "└─►│ Cross-attention" in crossing  # the memory ends where it is read
    assert max(map(width, wide)) <= 80


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_kv_heads": 2}, "2 key/value heads"),
        ({"n_kv_heads": 1}, "1 key/value head"),
        ({"qk_norm": True}, "RMSNorm of queries and"),
        ({"rope_base": 5e5}, "rotary, base 500,000"),
        ({"rope_scaling": {"kind": "linear", "factor": 8}}, "linear ×8"),
        ({"window": 64, "window_layers": [0, 2, 4]}, "window 64 in layers 0–4 step"),
        ({"window": 64, "window_layers": list(range(6))}, "window 64"),
        ({"norm": "rmsnorm1p", "norm_order": "sandwich"}, "RMSNorm, 1 + weight"),
        ({"attn_softcap": 50}, "soft cap ±50"),
        ({"attn_scale": 1.0}, "scores not scaled"),
        ({"n_experts": 8, "n_experts_per_token": 2, "d_expert": 96}, "Experts, 2 of 8 a token"),
        ({"n_experts": 8, "dense_layers": [0, 1]}, "layers 0–1: Feed-forward"),
        ({"n_experts": 8, "experts_renormalised": False}, "weights as the router has"),
        ({"rope_local_base": 5e4, "window": 64, "window_layers": [1]}, "window 64 in layers 1, base 50,000"),
        ({"position": "alibi"}, "ALiBi position bias"),
        ({"position": "learned"}, "+ learned positions"),
        ({"tied": True}, ", tied"),
        ({"logit_softcap": 30}, "soft cap ±30"),
        ({"embed_scale": 16.0}, "×16"),
    ],
)
def test_every_variant_is_drawn(changes: dict[str, object], words: str):
    base = {**PRESETS["llama-tiny"], "vocab_size": 100, "d_head": 64, "tied": False}
    with_it, without = (
        " ".join(line.strip(" │") for line in draw(parse(ModelConfig, values, "test"), 80))
        for values in ({**base, **changes}, base)
    )
    assert words in with_it
    assert words not in without


@pytest.mark.parametrize("locale", ["en", "zh"])
def test_a_frame_has_straight_walls(locale: Locale):
    for preset in PRESETS:
        config = parse(ModelConfig, {**PRESETS[preset], "vocab_size": 1_000_000}, preset)
        lines = [by_column(line) for line in draw(config, 80, locale)]
        for above, below in pairwise(lines):
            for left, right in zip(range(len(above)), range(FRAME - 1, len(above)), strict=False):
                if above[left] in "┌├╞│" and above[right] in "┐┤╡│":  # the two walls of one box
                    assert below[left] in BOX, (preset, above, below)
                    assert below[right] in BOX, (preset, above, below)


def by_column(line: str) -> str:
    """A character for every terminal column."""
    return "".join(character + " " * (width(character) - 1) for character in line)


@pytest.mark.parametrize("locale", ["en", "zh"])
def test_a_box_holds_its_words_however_long(locale: Locale):
    some = [*range(0, 39, 3), 38]
    values: dict[str, object] = {"vocab_size": 10**7, "n_layers": 40, "window": 64, "window_layers": some}
    for line in draw(parse(ModelConfig, {**PRESETS["llama-tiny"], **values}, "test"), 80, locale):
        assert width(line) <= FRAME + len(" 40 ×")


def test_json_is_the_anatomy(cutaway, translator: Path):
    loaded = load(translator)
    result = cutaway("inspect", translator, "--context", "7", "--json")
    assert (result.code, result.err) == (0, "")
    said = json.loads(result.out)
    contents = open_contents(translator)
    config, architecture = read_config(contents)
    expected = to_dict(anatomy(config, architecture=architecture, contents=contents, contexts=[7]))
    assert (said.pop("model"), said["architecture"]) == (str(translator), "marian")
    assert said == expected
    tensors = len(aliases(loaded.model))
    assert said["stored"] == [{"dtype": "float32", "tensors": tensors, "values": said["parameters"]}]


def test_a_config_that_belies_the_file_is_refused(cutaway, poet: Path, tmp_path: Path):
    folder = tmp_path / "liar"
    shutil.copytree(poet, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 48}))
    result = cutaway("inspect", folder)
    assert (result.code, result.out) == (2, "")
    assert "the shape [32, 16], the config asks for [48, 16]" in result.err


def test_a_file_with_what_no_part_of_the_model_reads_is_refused(cutaway, masked: Path, tmp_path: Path):
    """A classifier, for one, has a body that is known, and another head."""
    folder = tmp_path / "classifier"
    shutil.copytree(masked, folder)
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if not name.startswith("cls.")}
    kept["classifier.weight"] = kept["bert.embeddings.LayerNorm.weight"].clone()
    save_file(kept, folder / "model.safetensors")
    result = cutaway("inspect", folder)
    assert (result.code, result.out) == (2, "")
    assert "are no part of a bert model: classifier.weight" in result.err


def test_context_changes_what_is_counted(cutaway, poet: Path):
    shorter, longer = (cutaway("inspect", poet, "--context", n).out for n in (8, 16))
    assert "at 8 tokens" in shorter
    assert "at 16 tokens" in longer
    assert shorter != longer


@pytest.mark.parametrize("context", ["0", "-3", "33"])
def test_a_context_beyond_the_limit_is_refused(cutaway, poet: Path, context: str):
    result = cutaway("inspect", poet, "--context", context)
    assert (result.code, result.out) == (2, "")
    assert f"--context is {context}, expected 1 to 32" in result.err


def test_an_unknown_model_is_named(cutaway):
    result = cutaway("inspect", "bert-tinny")
    assert (result.code, result.out) == (2, "")
    assert "did you mean 'bert-tiny'?" in result.err


def test_wide_control_tokens_stay_in_line_and_odd_ones_are_spelled(cutaway, tmp_path: Path):
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
    result = cutaway("inspect", tmp_path / "model")
    assert result.code == 0
    assert "<翻译>" in result.out
    assert "\x1b" not in result.out
    assert "⟨U+001B⟩[31mred" in result.out
    assert max(map(width, result.out.splitlines())) <= 80


def test_a_terminal_without_box_characters_gets_ascii(cutaway, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "dumb")
    result = cutaway("inspect", "poet-zh")
    assert (result.code, result.err) == (0, "")
    assert result.out.isascii()
    assert "+---" in result.out


@pytest.mark.parametrize("preset", ["m2m100-tiny", "llama-tiny", "bert-tiny"])
@pytest.mark.parametrize("experts", [{}, {"n_experts": 3}, {"n_experts": 2, "dense_layers": [0, 2]}])
def test_compressed_names_say_every_name_once(preset: str, experts: dict[str, object]):
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
        return [name for each in inside.split(",") for name in opened_braces(before + each + after)]
    before, _, rest = text.partition(".")
    if not rest:
        return [text]
    numbers = [before]
    if before[0].isdigit():
        bounds = [list(map(int, each.split("–"))) for each in before.split(",")]
        numbers = [str(n) for each in bounds for n in range(each[0], each[-1] + 1)]
    return [f"{number}.{name}" for number in numbers for name in opened_braces(rest)]


def test_numbers_and_ranges():
    assert [amount(n, "B") for n in (0, 999, 1000, 18_843_648, 1.21e9, 3.2e15)] == [
        "0 B", "999 B", "1 kB", "18.8 MB", "1.21 GB", "3.2e+03 TB",
    ]  # fmt: skip
    assert ranges([3, 0, 1, 7]) == "0–1,3,7"
    say = partial(told, locale="en")
    assert (ranges([0, 2, 4]), layers([0, 2, 4], say), layers([0, 2, 3], say)) == (
        "0,2,4",
        "0–4 step 2",
        "0,2–3",
    )
    assert ranges([5]) == "5"
    assert packed(["aa", "bb", "cccc"], 6) == ["aa  bb", "cccc"]
