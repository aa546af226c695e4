"""A model folder: written and read back the same, refused with a clear word when anything in it is wrong."""

import json
from pathlib import Path

import pytest
import torch
from tests.checkpoint.models import CONFIGS, rewrite, write

from cutaway.checkpoint import folder
from cutaway.errors import CutawayError


@pytest.mark.parametrize("kind", CONFIGS)
def test_saved_and_loaded_is_the_same_model(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a", kind)
    assert json.loads((path / "config.json").read_text())["model_type"] == kind.partition(",")[0]
    loaded = folder.load(path)
    folder.save(tmp_path / "b", loaded.model)
    for name in ("config.json", "model.safetensors", "generation_config.json"):
        assert (path / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert loaded.config.vocab_size == 61


def test_half_precision_takes_half_the_room_and_is_read_back(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "marian")
    loaded = folder.load(path)
    folder.save(tmp_path / "b", loaded.model, dtype=torch.bfloat16)
    whole, half = (p / "model.safetensors" for p in (path, tmp_path / "b"))
    assert half.stat().st_size < 0.6 * whole.stat().st_size
    again = folder.load(tmp_path / "b")
    for name, parameter in again.model.named_parameters():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, loaded.model.get_parameter(name).bfloat16().float()), name


def test_a_tied_matrix_may_lie_under_either_name(tmp_path: Path) -> None:
    path = write(tmp_path, "llama")
    expected = folder.load(path).model.state_dict()
    rewrite(path, lambda t: t.update({"lm_head.weight": t.pop("model.embed_tokens.weight")}))
    for name, value in folder.load(path).model.state_dict().items():
        assert torch.equal(value, expected[name]), name
    rewrite(path, lambda t: t.update({"model.embed_tokens.weight": t["lm_head.weight"]}))
    folder.load(path)
    rewrite(path, lambda t: t.update({"model.embed_tokens.weight": t["lm_head.weight"] + 1}))
    # two that differ are two, as transformers has it, whatever the config says
    loaded = folder.load(path)
    assert not loaded.config.tied
    state = loaded.model.state_dict()
    assert torch.equal(state["embed.tokens.weight"], state["head.unembed.weight"] + 1)
    rewrite(path, lambda t: (t.pop("lm_head.weight"), t.pop("model.embed_tokens.weight")))
    with pytest.raises(CutawayError, match=r"model\.embed_tokens\.weight or lm_head\.weight is missing"):
        folder.load(path)


def test_wrong_tensors_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "bert")
    rewrite(path, lambda t: t.pop("cls.predictions.transform.dense.bias"))
    with pytest.raises(CutawayError, match=r"cls\.predictions\.transform\.dense\.bias is missing"):
        folder.load(path)
    write(tmp_path, "bert")
    rewrite(
        path, lambda t: t.update({"bert.extra": torch.zeros(1), "bert.pooler.dense.bias": torch.zeros(24)})
    )
    with pytest.raises(CutawayError, match=r"tensors \(1\) that are no part of a bert model: bert\.extra"):
        folder.load(path)
    write(tmp_path, "bert")
    rewrite(path, lambda t: t.update({"bert.embeddings.LayerNorm.bias": torch.zeros(25)}))
    with pytest.raises(CutawayError, match=r"shape \[25\], the config asks for \[24\]"):
        folder.load(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "lama"}, r"model_type is 'lama' \(did you mean 'llama'\?\)"),
        ({"hidden_size": None}, "hidden_size is None"),
        ({"hidden_size": "24"}, "hidden_size is '24', expected a whole number"),
        ({"hidden_size": -24}, "hidden_size is -24, expected 1 to"),
        ({"num_attention_heads": 5}, "multiple of n_heads"),
        ({"rope_parameters": {"rope_type": "lama3"}}, "'lama3'"),
        ({"rope_parameters": 3}, "rope_parameters is 3"),
        ({"hidden_act": "quick_gelu"}, "hidden_act: 'quick_gelu' is not supported, only relu, gelu"),
    ],
)
def test_a_wrong_config_names_the_key(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    path = write(tmp_path, "llama")
    values = json.loads((path / "config.json").read_text())
    for key in ("head_dim",) if "num_attention_heads" in changes else ():
        values[key] = None
    (path / "config.json").write_text(json.dumps(values | changes))
    with pytest.raises(CutawayError, match=message) as error:
        folder.load(path)
    assert "config.json" in str(error.value)


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "gpt2")
    values = json.loads((path / "config.json").read_text())
    del values["n_embd"]
    (path / "config.json").write_text(json.dumps(values))
    with pytest.raises(CutawayError, match=r"config\.json: key 'n_embd' is missing"):
        folder.load(path)


def test_what_is_no_model_folder(tmp_path: Path) -> None:
    with pytest.raises(CutawayError, match="no such model folder"):
        folder.load(tmp_path / "nothing")
    with pytest.raises(CutawayError, match=r"config\.json is missing"):
        folder.load(tmp_path)
    path = write(tmp_path / "model", "llama")
    whole = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(whole[:-8])
    with pytest.raises(CutawayError, match=r"model\.safetensors: not a whole safetensors file"):
        folder.load(path)
    (path / "model.safetensors").unlink()
    (path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(CutawayError, match=r"pytorch_model\.bin is a pickle.*convert it to safetensors"):
        folder.load(path)
    outside = tmp_path / "outside.safetensors"
    outside.write_bytes(whole)
    (path / "model.safetensors").symlink_to(outside)
    with pytest.raises(CutawayError, match="leads out of the model folder"):
        folder.load(path)
    (path / "config.json").write_text('{"model_type": "llama", "model_type": "gpt2"}')
    with pytest.raises(CutawayError, match="'model_type' stands there twice"):
        folder.load(path)


def test_chat_templates_are_read_and_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "llama")
    settings = path / "tokenizer_config.json"
    assert folder.load(path).chat_template is None
    for given, expected in (
        ("{{ one }}", "{{ one }}"),
        ([{"name": "tools", "template": "x"}, {"name": "default", "template": "{{ two }}"}], "{{ two }}"),
        ([{"name": "tools", "template": "x"}], None),
        (None, None),
    ):
        settings.write_text(json.dumps({"chat_template": given}))
        assert folder.load(path).chat_template == expected
    for wrong in (3, {"default": "x"}, [{"name": "default", "template": 3}]):
        settings.write_text(json.dumps({"chat_template": wrong}))
        with pytest.raises(
            CutawayError, match=r"tokenizer_config\.json: chat_template is .*, expected a text"
        ):
            folder.load(path)
    # the newer place, which wins
    (path / "chat_template.jinja").write_text("{{ 三 }}\n", encoding="utf-8")
    loaded = folder.load(path)
    folder.save(tmp_path / "b", loaded.model, chat_template=loaded.chat_template)
    assert folder.load(tmp_path / "b").chat_template == "{{ 三 }}\n"
    (path / "chat_template.jinja").write_text("x" * 1_000_001)
    with pytest.raises(CutawayError, match=r"chat_template\.jinja: too large"):
        folder.load(path)


def test_what_else_may_be_given(tmp_path: Path) -> None:
    path = write(tmp_path / "model", "llama")
    with pytest.raises(
        CutawayError, match="a file, expected a model's folder or a GGUF file; give the folder"
    ):
        folder.load(path / "model.safetensors")
    several = tmp_path / "several"
    several.mkdir()
    for name in ("a.gguf", "b.gguf"):
        (several / name).write_bytes(b"GGUF")
    with pytest.raises(CutawayError, match=r"holds 2 GGUF files; give one of them: a\.gguf, b\.gguf"):
        folder.load(several)
    (several / "b.gguf").unlink()
    with pytest.raises(CutawayError, match=r"several/a\.gguf: "):
        folder.load(several)
    (path / "extra.gguf").write_bytes(b"GGUF")
    # safetensors come first
    folder.load(path)


def test_weights_may_keep_the_type_of_the_files(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "llama")
    model = folder.load(path).model
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        folder.save(tmp_path / "b", model, dtype=dtype)
        assert {p.dtype for p in folder.load(tmp_path / "b", dtype=None).model.parameters()} == {dtype}
    rewrite(tmp_path / "b", lambda t: t.update({"model.norm.weight": t["model.norm.weight"].float()}))
    assert {p.dtype for p in folder.load(tmp_path / "b", dtype=None).model.parameters()} == {torch.float32}
    with pytest.raises(CutawayError, match=r"written as float32, float16, bfloat16, not as torch\.float64"):
        folder.save(tmp_path / "c", model, dtype=torch.float64)


def test_all_of_several_end_tokens_end_a_text(tmp_path: Path) -> None:
    path = write(tmp_path, "llama")
    values = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**values, "eos_token_id": [7, 9]}))
    (path / "generation_config.json").write_text("{}")
    loaded = folder.load(path)
    assert loaded.config.eos_id == 7
    assert loaded.generation["eos_token_id"] == [7, 9]
    (path / "generation_config.json").write_text('{"eos_token_id": 9}')
    assert folder.load(path).generation["eos_token_id"] == 9


def test_the_first_files_of_bert_have_other_names_for_norms(tmp_path: Path) -> None:
    path = write(tmp_path, "bert")
    expected = folder.load(path).model.state_dict()
    older = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    rewrite(
        path,
        lambda t: [
            t.update({name.replace(new, old): t.pop(name)})
            for name in list(t)
            for new, old in older.items()
            if name.endswith(new)
        ],
    )
    for name, value in folder.load(path).model.state_dict().items():
        assert torch.equal(value, expected[name]), name


@pytest.mark.parametrize("kind", ["marian", "m2m_100"])
def test_files_of_the_base_class_of_a_translator(kind: str, tmp_path: Path) -> None:
    """BART's first files are such: no prefix, and no bias of the output, which is zero then."""
    path = write(tmp_path / "a", kind)
    expected = folder.load(path).model.state_dict()
    rewrite(path, lambda t: [t.update({name.removeprefix("model."): t.pop(name)}) for name in list(t)])
    rewrite(path, lambda t: t.pop("final_logits_bias", None))
    found = folder.load(path)
    for name, value in found.model.state_dict().items():
        assert torch.equal(value, torch.zeros(61) if name == "head.unembed.bias" else expected[name]), name
    folder.save(tmp_path / "b", found.model)
    assert json.loads((tmp_path / "b" / "config.json").read_text())["model_type"] == kind


def test_a_head_of_another_task_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "bert")
    values = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(
        json.dumps({**values, "architectures": ["BertForSequenceClassification"]})
    )

    def classify(tensors: dict[str, torch.Tensor]) -> None:
        for name in [name for name in tensors if name.startswith("cls.")]:
            tensors.pop(name)
        tensors["classifier.weight"] = torch.zeros(2, 24)

    rewrite(path, classify)
    with pytest.raises(
        CutawayError,
        match=r"classifier\.weight \(config\.json's architectures says BertForSequenceClassification; "
        r"of a bert cutaway reads BertForMaskedLM and BertModel\)",
    ):
        folder.load(path)


def test_a_masked_model_without_its_head_gives_vectors_whatever_its_config_says(tmp_path: Path) -> None:
    path = write(tmp_path, "bert")
    expected = folder.load(path).model.state_dict()
    rewrite(path, lambda tensors: [tensors.pop(name) for name in list(tensors) if name.startswith("cls.")])
    loaded = folder.load(path)
    assert loaded.config.head == "none"
    for name, value in loaded.model.state_dict().items():
        assert torch.equal(value, expected[name]), name


def test_a_default_outside_the_vocabulary_is_none_and_the_tokenizers_roles_count(tmp_path: Path) -> None:
    """GPT-2's weights with a BERT's vocabulary and no bos and eos in config.json; or with those of GPT-2."""
    path = write(tmp_path, "gpt2")
    config = json.loads((path / "config.json").read_text())
    for ids in ({}, {"bos_token_id": 50_256, "eos_token_id": 50_256}):
        kept = {key: value for key, value in config.items() if key not in ("bos_token_id", "eos_token_id")}
        (path / "config.json").write_text(json.dumps({**kept, **ids}))
        loaded = folder.load(path)
        assert (loaded.config.bos_id, loaded.config.eos_id) == (None, None)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
    (path / "vocab.txt").write_text("\n".join(words) + "\n")
    loaded = folder.load(path)
    assert (loaded.config.bos_id, loaded.config.eos_id) == (2, 3)
    (path / "config.json").write_text(json.dumps({**config, "eos_token_id": 77}))
    with pytest.raises(CutawayError, match=r"eos_id is 77, expected an id below vocab_size \(61\)"):
        folder.load(path)
