import json
from pathlib import Path

from cutaway import Limits, Sampling, Search, load, save
from cutaway.decode.complete import continue_text


def test_goes_on_as_the_library_does(cutaway, poet: Path):
    result = cutaway("generate", "今天", "-m", poet, "--max-new-tokens", "12", "--seed", "3")
    assert (result.code, result.err) == (0, "")
    sampling = Sampling(temperature=0.8, top_p=0.95, seed=3)
    [expected] = continue_text(load(poet), ["今天"], search=Search(sampling=sampling), limits=Limits(12))
    assert result.out == f"今天{expected.best.text}\n"


def test_every_sampling_option_changes_the_text(cutaway, poet: Path):
    def text(*options: str) -> str:
        return cutaway("generate", "今天", "-m", poet, "--max-new-tokens", "20", *options).out

    plain = text()
    assert text() == plain
    assert text("--seed", "1") != plain
    assert text("--temperature", "3") != plain
    assert (
        text("--top-k", "1") == text("--temperature", "0") == text("--top-p", "0.001") == text("--min-p", "1")
    )
    assert text("--temperature", "0") != plain
    assert text("--temperature", "0", "--repetition-penalty", "9") != text("--temperature", "0")
    assert len(text("--max-new-tokens", "2")) < len(plain)


def test_json_and_standard_input(cutaway, poet: Path):
    options = ("generate", "-m", poet, "--max-new-tokens", "6", "--min-new-tokens", "6")
    result = cutaway(*options, "--json", given="今天\n我")
    tokens = [json.loads(line) for line in result.out.splitlines()]
    assert len(tokens) == 6
    assert all(token["log_prob"] <= 0 for token in tokens)
    assert (
        "今天\n我" + "".join(token["text"] for token in tokens) + "\n"
        == cutaway(*options, given="今天\n我").out
    )


def test_a_beginning_that_is_too_long_is_cut_on_request(cutaway, poet: Path):
    refused = cutaway("generate", "今天" * 40, "-m", poet)
    assert (refused.code, refused.out) == (2, "")
    assert "80 tokens" in refused.err
    cut = cutaway("generate", "今天" * 40, "-m", poet, "--truncate", "--max-new-tokens", "3")
    assert cut.code == 0
    assert "only the last" in cut.err


def test_a_models_own_settings_stand_unless_told_otherwise(cutaway, poet: Path, tmp_path: Path):
    loaded = load(poet)
    own: dict[str, object] = {
        "do_sample": False, "max_new_tokens": 7, "min_new_tokens": 7, "repetition_penalty": 2.0, "stop_strings": ["。"]
    }  # fmt: skip
    save(tmp_path / "own", loaded.model, loaded.tokenizer, own)
    result = cutaway("generate", "今天", "-m", "own")
    assert result.code == 0
    assert (
        result.err
        == "note: this model's files ask for stop_strings ['。'], which is not supported and left out\n"
    )
    search = Search(sampling=Sampling(repetition_penalty=2.0))
    [expected] = continue_text(loaded, ["今天"], search=search, limits=Limits(7, 7))
    assert result.out == f"今天{expected.best.text}\n"
    told = cutaway(
        "generate",
        "今天",
        "-m",
        "own",
        "--max-new-tokens",
        "3",
        "--repetition-penalty",
        "1",
        "--temperature",
        "0.5",
    )
    [expected] = continue_text(
        loaded, ["今天"], search=Search(sampling=Sampling(temperature=0.5, top_p=0.95)), limits=Limits(3, 3)
    )
    assert told.out == f"今天{expected.best.text}\n"
    # `inspect` shows them
    shown = cutaway("inspect", "anatomy", "-m", "own").out
    assert "decoding do_sample=False · repetition_penalty=2.0" in " ".join(shown.split())
    assert "stop_strings=['。']" in shown


def test_less_room_than_asked_for_is_said(cutaway, poet: Path):
    most = load(poet).config.max_len
    result = cutaway("generate", "今天", "-m", poet, "--max-new-tokens", most, "--temperature", "0")
    assert result.err.startswith(f"note: max_new_tokens is {most}, but only ")
    refused = cutaway("generate", "今天", "-m", poet, "--min-new-tokens", most)
    assert refused.code == 2
    assert f"at least {most} new tokens were asked for" in refused.err
    assert cutaway("generate", "今天", "-m", poet, "--max-new-tokens", "0").out == "今天\n"
