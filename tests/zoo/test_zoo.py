from pathlib import Path

import pytest

from cutaway import CutawayError, bundled, find


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def test_a_folder_is_found_by_its_path(model: Path, monkeypatch: pytest.MonkeyPatch):
    assert find(model) == model
    assert find(str(model)) == model
    monkeypatch.chdir(model.parent)
    assert find("my-model") == Path("my-model")
    monkeypatch.setenv("HOME", str(model.parent))
    assert find("~/my-model") == model


def test_a_gguf_file_is_a_model_and_so_is_its_folder(tmp_path: Path):
    (tmp_path / "some.Q8_0.gguf").write_bytes(b"GGUF")
    assert find(tmp_path / "some.Q8_0.gguf") == tmp_path / "some.Q8_0.gguf"
    assert find(tmp_path) == tmp_path


def test_every_bundled_model_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    for folder in bundled():
        (tmp_path / folder.name).mkdir()
        assert find(folder.name) == folder
        assert (folder / "config.json").is_file()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing-like-it", "no model 'nothing-like-it': neither a folder nor a bundled model"),
        (".", "a folder without config.json"),
        ("my-model/config.json", "a file, expected a model's folder"),
    ],
)
def test_what_is_no_model_is_refused(model: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str):
    monkeypatch.chdir(model.parent)
    with pytest.raises(CutawayError, match=message):
        find(name)


def test_the_nearest_name_is_offered():
    for folder in bundled():
        with pytest.raises(CutawayError, match=f"did you mean '{folder.name}'"):
            find(f"{folder.name}x")
