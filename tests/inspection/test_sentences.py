"""A run's sentence vector is the one that `embed` makes, whatever the model's folder asks for."""

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cutaway import CutawayError
from cutaway.checkpoint.folder import Loaded
from cutaway.decode.sentence_vectors import embed
from cutaway.inspection.arithmetic.explanation import Arithmetic
from cutaway.inspection.runs import Run, run
from cutaway.inspection.sentences import cosine_distance, sentence_settings, sentence_vectors

RunOf = Callable[..., Run]
TEXT = "The WEATHER is fine"


def asking(loaded: Loaded, folder: Path, pooling: str, normalise: bool, **files: object) -> Loaded:
    """The model in a folder with the files of sentence-transformers."""
    (folder / "1_Pooling").mkdir()
    kinds = {"Transformer": "", "Pooling": "1_Pooling", **({"Normalize": "2"} if normalise else {})}
    steps = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds.items()]
    for name, values in {"modules": steps, "1_Pooling/config": {"pooling_mode": pooling}, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(values))
    return dataclasses.replace(loaded, path=folder)


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "lasttoken"])
def test_each_way_to_pool(pooling: str, normalise: bool, run_of: RunOf, tmp_path: Path) -> None:
    loaded = asking(run_of("no head").loaded, tmp_path, pooling, normalise)
    read = run(loaded, TEXT)
    expected = embed(loaded, [TEXT]).vectors
    torch.testing.assert_close(
        sentence_vectors(loaded, read.hidden()[0][None]), expected, rtol=0.0, atol=1e-6
    )
    numbers = Arithmetic(read)
    name = "sentence_vector" if normalise else "pooled"
    assert ("sentence_vector" in numbers.names) == normalise
    for d in range(0, 24, 5):
        one = numbers.explain(name, (0, d))
        assert one.agrees and one.recorded == pytest.approx(float(expected[0, d]), abs=1e-5)
        inner = numbers.explain("pooled", (0, d))
        assert inner.agrees and {name for name, _ in inner.parents} == {"encoder.normed"}


def test_prompt_and_lower_case_are_read_too(run_of: RunOf, tmp_path: Path) -> None:
    files = {
        "sentence_bert_config": {"max_seq_length": 30, "do_lower_case": True},
        "config_sentence_transformers": {"prompts": {"q": "No "}, "default_prompt_name": "q"},
    }
    plain = run_of("no head").loaded
    loaded = asking(plain, tmp_path, "mean", True, **files)
    read = run(loaded, TEXT)
    assert read.outcome.ids == plain.require_tokenizer().encode("no the weather is fine").ids
    torch.testing.assert_close(
        sentence_vectors(loaded, read.hidden()[0][None]), embed(loaded, [TEXT]).vectors, rtol=0.0, atol=1e-6
    )
    with pytest.raises(CutawayError, match="this model reads at most 30"):
        run(loaded, TEXT * 15)


def test_a_first_token_that_sees_no_other_is_no_sentence(run_of: RunOf, tmp_path: Path) -> None:
    loaded = asking(run_of("GPT-2", head="none", head_bias=False).loaded, tmp_path, "cls", True)
    with pytest.raises(CutawayError, match="a decoder-only model's first token sees no other"):
        sentence_settings(loaded)
    numbers = Arithmetic(run(loaded, TEXT))
    assert numbers.explain("decoder.normed", (0, 0, 0)).agrees
    with pytest.raises(CutawayError, match="first token sees no other"):
        numbers.explain("pooled", (0, 0))


def test_cosine_distance() -> None:
    base = torch.tensor([2.0, 0.0])
    changed = torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1e-6]])
    expected = [0.0, 1.0, 2.0, 1 - math.sqrt(0.5), 1.0, 5e-13]
    assert cosine_distance(base, changed).tolist() == pytest.approx(expected, rel=1e-6)
    assert cosine_distance(torch.zeros(2), torch.zeros(1, 2)).tolist() == [0.0]
