"""`explain` as it is asked: what a reader starts from, what a page shows, what JSON carries."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.command import Case, Run, page_of, refused, result, shown, shown_in_chinese

from cutaway import load
from cutaway.inspection import explain
from cutaway.inspection import run as prepare

# What it is asked again with in every way: the model, the text, the options (tests/inspection/test_answers.py).
ASKED: list[Case] = [
    ("poet", "今天天气", {"name": "decoder.layers.1.self_attn.pattern", "index": [0, 1, -1, 0]}),
    ("masked", "今天[MASK]好。", {"chain": True}),
]

TEXT = "好久不见。"
PATTERN = "decoder.layers.0.self_attn.pattern"


def test_it_starts_from_the_probability_of_the_word_that_was_written(
    cutaway: Run, poet: Path, masked: Path, headless: Path, passes: Callable[[], int]
) -> None:
    out = shown(cutaway, "explain", TEXT, "-m", poet)
    assert passes() == 1
    run = prepare(load(poet), TEXT, max_new_tokens=1)
    found = explain(run)
    written = run.outcome.ids[-1]
    assert (found.name, found.index) == ("probabilities", (0, len(run.outcome) - 1, written))
    assert out.startswith(f"Why probabilities[0,{len(run.outcome) - 1},{written}] = {found.recorded:.4g}\n")
    assert f"\nworked out   {found.result:.9g} in float64" in out
    gap = result(cutaway, "explain", "Long [MASK] no see.", "-m", masked)
    ids = load(masked).require_tokenizer()
    assert gap["name"] == "probabilities" and gap["index"][1] == 2
    assert gap["where"]["en"] == f"at [MASK], word {ids.readable(gap['index'][2])}"
    vector = result(cutaway, "explain", TEXT, "-m", headless)
    assert (vector["name"], vector["index"]) == ("sentence_vector", [0, 0])


def test_a_place_is_named_by_its_head_and_tokens(cutaway: Run, translator: Path) -> None:
    place = ("--name", PATTERN, "--index", "0,1,2,1")
    found = result(cutaway, "explain", TEXT, "-m", translator, *place)
    tokens = prepare(load(translator), TEXT).target
    assert tokens is not None
    query, key = tokens.pieces[2], tokens.pieces[1]
    assert found["where"]["en"] == f"decoder layer 0, head 1, query {query}, key {key}"
    cross = ("--name", "decoder.layers.1.cross_attn.k", "--index", "0,0,1,3")
    source = prepare(load(translator), TEXT).source
    assert source is not None
    found = result(cutaway, "explain", TEXT, "-m", translator, *cross)
    where = f"decoder layer 1, key/value head 0, key {source.pieces[1]}, coordinate 3"
    assert found["where"]["en"] == where
    row = ("--name", "target_embed.tokens.weight", "--index", f"{tokens.ids[1]},0")
    assert (
        result(cutaway, "explain", TEXT, "-m", translator, *row)["where"]["en"] == f"word {tokens.pieces[1]}"
    )


def test_places_of_a_line_are_named(translator: Path) -> None:
    """Keys by what they stand for, of the vocabulary the greatest words and the one that is asked about."""
    run = prepare(load(translator), TEXT)
    assert run.source is not None and run.target is not None
    [softmax] = explain(run, "decoder.layers.1.cross_attn.pattern", (0, 0, 2, 1)).operands
    assert softmax.labels == dict(enumerate(run.source.pieces))
    weights, values = explain(run, "decoder.layers.1.self_attn.z", (0, 0, 2, 1)).operands
    assert weights.labels == values.labels == dict(enumerate(run.target.pieces))
    [logits] = explain(run, "probabilities", (0, 0, 7)).operands
    best = logits.values.topk(12).indices.tolist()
    assert list(logits.labels) == list(dict.fromkeys([7, *best]))
    assert logits.labels[7] == load(translator).require_tokenizer().readable(7)
    # a key is a line of coordinates
    assert all(
        not each.labels for each in explain(run, "decoder.layers.1.self_attn.q", (0, 0, 2, 1)).operands
    )


def test_all_of_a_short_line_is_shown_and_of_a_long_one_how_long_it_is(cutaway: Run, poet: Path) -> None:
    number = ("--name", "decoder.layers.0.mlp.out", "--index", "0,1,3")
    operands = result(cutaway, "explain", TEXT, "-m", poet, *number)["operands"]
    lines = shown(cutaway, "explain", TEXT, "-m", poet, *number).splitlines()
    assert [len(each["values"]) for each in operands] == [32, 32]
    assert "".join(lines).count("… (32)") == 2
    read = ("--name", "decoder.layers.0.mlp.pre", "--index", "0,1,3")
    out = " ".join(shown(cutaway, "explain", TEXT, "-m", poet, *read).split())
    for operand in result(cutaway, "explain", TEXT, "-m", poet, *read)["operands"]:
        numbers = " ".join(f"{value:.4g}" for value in operand["values"])
        assert f"{operand['symbol']} {numbers} {operand['name']}[" in out


def test_a_chain_is_followed_in_one_go(cutaway: Run, translator: Path, passes: Callable[[], int]) -> None:
    out = shown(cutaway, "explain", TEXT, "-m", translator, "--chain")
    assert passes() == 1
    found = result(cutaway, "explain", TEXT, "-m", translator, "--chain")
    numbers = [link["number"] for link in found["chain"]]
    assert numbers[0]["name"] == "head.logits" and numbers[0]["index"] == found["index"]
    last = numbers[-1]
    assert last["name"] in ("source", "target") or not [each for each in last["operands"] if each["name"]]
    for link in found["chain"]:
        number = link["number"]
        place = ",".join(map(str, number["index"]))
        assert f"{link['symbol']} is {number['name']}[{place}]\n" in out
        assert number["formula"].partition(",  ")[0] in out


def test_the_lines_of_python_give_the_number(cutaway: Run, poet: Path) -> None:
    out = shown(cutaway, "explain", TEXT, "-m", poet, "--name", PATTERN, "--index", "0,1,2,1")
    code = out.partition("# The same number\n")[2].partition("\n\n\n")[0]
    scope: dict[str, object] = {}
    exec(code, scope)
    found = explain(prepare(load(poet), TEXT), PATTERN, (0, 1, 2, 1))
    assert scope["value"] == found.recorded
    assert found.as_python().strip() == code.partition("What to look at next")[0].strip()


def test_what_to_ask_next_are_the_operands(cutaway: Run, poet: Path) -> None:
    found = explain(prepare(load(poet), TEXT), PATTERN, (0, 1, 2, 1))
    whole, operand = found.suggestions()
    assert whole.options == {"name": PATTERN, "index": (0, 1, 2, 1), "chain": True}
    # Of a softmax's line the element that the weight is of.
    masked = PATTERN.replace("pattern", "masked")
    assert operand.options == {"name": masked, "index": (0, 1, 2, 1)}
    assert operand.options["index"] in [index for _, index in found.parents]


@pytest.mark.parametrize("chain", [(), ("--chain",)])
def test_the_page_in_chinese(cutaway: Run, translator: Path, chain: tuple[str, ...]) -> None:
    out = shown_in_chinese(cutaway, "explain", TEXT, "-m", translator, "--name", "score", *chain)
    assert "操作数" in out
    masked = ("--name", PATTERN.replace("pattern", "masked"), "--index", "0,0,0,1")
    assert "键在查询之后" in shown_in_chinese(cutaway, "explain", TEXT, "-m", translator, *masked)
    html = page_of(cutaway, "explain", TEXT, "-m", translator, *chain, lang="zh")
    assert "from cutaway.inspection import explain" in html


def test_a_long_name_is_broken_at_a_dot_and_never_in_its_index(poet: Path) -> None:
    run = prepare(load(poet), TEXT)
    found = explain(run, "decoder.layers.0.mlp.pre", (0, 1, 2))
    long = ".".join(["decoder", *["a_rather_long_part"] * 4, "pre"])
    (operand, *_) = found.operands
    changed = type(operand)(operand.symbol, long, operand.index, operand.values)
    page = type(found)(**{**vars(found), "operands": (changed,)}).to_text()
    lines = [line.strip() for line in page.splitlines()]
    last = next(line for line in lines if line.endswith("pre[0,1,:]"))
    assert lines[lines.index(last) - 1].endswith(".")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--index", "3"), "index without name"),
        (("--name", "head.logits"), "head.logits has the shape"),
        (("--name", "head.logit", "--index", "0"), "'head.logits'"),
        (("--name", "head.logits", "--index", "0,99,0"), "99 in index (0, 99, 0) is outside"),
        (("--name", "head.logits", "--index", "0,x"), "expected whole numbers"),
    ],
)
def test_what_is_refused(cutaway: Run, poet: Path, options: tuple[str, ...], message: str) -> None:
    assert message in refused(cutaway, "explain", TEXT, "-m", poet, *options)
