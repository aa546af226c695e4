"""The files of sentence-transformers: what they say is done, and what is not known is refused by name."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cutaway.decode.sentence_settings import SentenceSettings, read_settings
from cutaway.errors import CutawayError

STEPS = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]
MEAN = {"word_embedding_dimension": 16, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
Write = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """A folder with modules.json and the pooling's config; further files by their names."""

    def write(steps: object = STEPS, pooling: object = MEAN, **files: object) -> Path:
        (tmp_path / "1_Pooling").mkdir()
        names = {"modules": steps, "1_Pooling/config": pooling, **files}
        for name, values in names.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(values), encoding="utf-8")
        return tmp_path

    return write


def test_a_folder_without_these_files_has_the_defaults(tmp_path: Path):
    assert read_settings(tmp_path) == SentenceSettings()
    assert read_settings(tmp_path / "a.gguf") == SentenceSettings()


def test_everything_is_read(written: Write):
    folder = written(
        sentence_bert_config={"max_seq_length": 256, "do_lower_case": True},
        config_sentence_transformers={"prompts": {"query": "query: "}, "default_prompt_name": "query"},
    )
    assert read_settings(folder) == SentenceSettings("mean", True, 256, True, "query: ", "modules.json")


def test_without_the_third_step_vectors_keep_their_length(written: Write):
    assert not read_settings(written(STEPS[:2])).normalise


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({}, "mean"),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "cls", "pooling_mode_mean_tokens": True}, "cls"),
        ({"pooling_mode": ["lasttoken"]}, "last"),
    ],
)
def test_both_spellings_of_the_pooling(written: Write, pooling: dict, expected: str):
    assert read_settings(written(pooling=pooling)).pooling == expected


def test_newer_names_of_the_steps(written: Write):
    kinds = ("base.modules.transformer.Transformer", "sentence_transformer.modules.pooling.Pooling")
    paths = ("", "1_Pooling")
    steps = [
        {"path": path, "type": f"sentence_transformers.{kind}"}
        for path, kind in zip(paths, kinds, strict=True)
    ]
    assert read_settings(written(steps)).source == "modules.json"


def test_the_tokenizers_limit_counts_where_no_other_is_given(written: Write):
    folder = written(sentence_bert_config={}, tokenizer_config={"model_max_length": 77})
    assert read_settings(folder).max_tokens == 77


def step(kind: str, path: str = "") -> list[dict]:
    return [*STEPS[:2], {"path": path, "type": kind}]


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "a dense layer": (
        {"steps": step("sentence_transformers.models.Dense", "2_Dense")},
        "the step 'sentence_transformers.models.Dense' is not supported; supported: Transformer, Pooling, Normalize",
    ),
    "code of its own": ({"steps": step("custom_st.Pooling")}, "the step 'custom_st.Pooling' is not supported"),
    "no pooling": ({"steps": [STEPS[0], STEPS[2]]}, "the steps are Transformer, Normalize, expected Transformer"),
    "no step": ({"steps": []}, "the steps are none"),
    "an object": ({"steps": {}}, "modules.json: expected a list of steps, got dict"),
    "a step that is text": ({"steps": ["Pooling"]}, "modules.json[0]: expected an object, got str"),
    "a step without type": ({"steps": [{"path": ""}]}, "modules.json[0]: key 'type' is missing"),
    "a path outside": (
        {"steps": [STEPS[0], {**STEPS[1], "path": "../elsewhere"}]}, "leads out of the model folder",
    ),
    "a path of the machine": (
        {"steps": [{**STEPS[0], "path": "/"}, STEPS[1]]}, "'/' leads out of the model folder",
    ),
    "a path with a NUL": ({"steps": [{**STEPS[0], "path": "a\0b"}, STEPS[1]]}, "is no path"),
    "a path without end": ({"steps": [STEPS[0], {**STEPS[1], "path": "a" * 100_000}]}, "is too long for a path"),
    "no such path": ({"steps": [STEPS[0], {**STEPS[1], "path": "9_Pooling"}]}, "9_Pooling/config.json"),
    "two poolings": (
        {"pooling": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}},
        "the pooling 'cls' with 'mean' is not supported; supported: one of mean, cls, max, lasttoken",
    ),
    "another pooling": ({"pooling": {"pooling_mode_weightedmean_tokens": True}}, "'weightedmean' is not supported"),
    "an unknown pooling": ({"pooling": {"pooling_mode": "median"}}, "'median' is not supported"),
    "a pooling of the wrong type": ({"pooling": {"pooling_mode_cls_token": "yes"}}, "expected true or false"),
    "a limit of nothing": ({"sentence_bert_config": {"max_seq_length": 0}}, "max_seq_length is 0"),
    "a limit that is text": ({"sentence_bert_config": {"max_seq_length": "256"}}, "max_seq_length is '256'"),
    "a prompt that is not there": (
        {"config_sentence_transformers": {"prompts": {"query": "q: "}, "default_prompt_name": "quary"}},
        "default_prompt_name is 'quary' (did you mean 'query'?)",
    ),
    "a prompt left out of the mean": (
        {
            "config_sentence_transformers": {"prompts": {"query": "q: "}, "default_prompt_name": "query"},
            "pooling": {**MEAN, "include_prompt": False},
        },
        "include_prompt is false, which is not supported",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_known_is_refused(written: Write, case: str):
    files, message = REFUSED[case]
    folder = written(**files)
    with pytest.raises(CutawayError) as caught:
        read_settings(folder)
    assert message in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("data", [b"[{", b"\xff", b"[" * 100_000])
def test_a_broken_list_of_steps(written: Write, data: bytes):
    folder = written()
    (folder / "modules.json").write_bytes(data)
    with pytest.raises(CutawayError, match=r"modules\.json"):
        read_settings(folder)


def test_a_link_out_of_the_folder_is_not_followed(written: Write, tmp_path_factory: pytest.TempPathFactory):
    folder = written()
    outside = tmp_path_factory.mktemp("outside") / "config.json"
    outside.write_text("{}")
    (folder / "1_Pooling" / "config.json").unlink()
    (folder / "1_Pooling" / "config.json").symlink_to(outside)
    with pytest.raises(CutawayError, match="leads out of the model folder"):
        read_settings(folder)


def test_the_links_of_a_download_are_followed(written: Write, tmp_path_factory: pytest.TempPathFactory):
    """Hugging Face's cache: `snapshots/<version>` links to `blobs`."""
    repository = tmp_path_factory.mktemp("cache") / "models--someone--something"
    (repository / "blobs").mkdir(parents=True)
    (repository / "snapshots").mkdir()
    folder = written(sentence_bert_config={"max_seq_length": 99}).rename(repository / "snapshots" / "0a1b")
    for number, file in enumerate([path for path in folder.rglob("*") if path.is_file()]):
        blob = file.rename(repository / "blobs" / str(number))
        file.symlink_to(blob)
    assert read_settings(folder).max_tokens == 99
