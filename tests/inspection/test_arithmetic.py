"""Every number follows from its operands, down to token ids and parameters, and a changed one is noticed."""

import dataclasses
import gc
import itertools
import math
import random
import weakref
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.checkpoint.folder import Loaded, load, save
from cutaway.config import ModelConfig, parse
from cutaway.decode.score import score_continuations, score_targets
from cutaway.decode.search import LengthPenalty
from cutaway.decode.translator import Translator
from cutaway.errors import CutawayError
from cutaway.inspection.arithmetic.explanation import Arithmetic, Explanation
from cutaway.inspection.questions.explain import explain
from cutaway.inspection.runs import Run, Tokens, run
from cutaway.inspection.wiring import tap_names
from cutaway.models.build import PRESETS, build
from cutaway.models.decoder_only import DecoderOnly
from cutaway.tap import Trace
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.train.objective import vocabulary_loss
from cutaway.words import said
from cutaway.zoo import find

SMALL = {"vocab_size": 31, "d_model": 24, "n_layers": 2, "n_heads": 4, "d_ff": 40, "dropout": 0.0}
LLAMA, GPT2 = {**PRESETS["llama-tiny"], **SMALL}, {**PRESETS["gpt2-small"], **SMALL}
MARIAN, M2M100 = {**PRESETS["marian-tiny"], **SMALL}, {**PRESETS["m2m100-tiny"], **SMALL}
LLAMA3 = {"kind": "llama3", "factor": 8.0, "original_max_len": 16}
YARN = {"kind": "yarn", "factor": 4.0, "original_max_len": 64}
FAMILIES: dict[str, dict[str, object]] = {
    "post-norm, sinusoids": MARIAN,
    "pre-norm, sinusoids": {**M2M100, "embed_scale": 24**0.5},
    "T5": {**M2M100, "position": "relative", "position_offset": 0, "attn_scale": 1.0, "norm": "rmsnorm", "gated": True,
           "attn_bias": False, "mlp_bias": False, "relative_buckets": 8, "relative_max_distance": 20},
    "encoder-decoder, rotary, uneven": {**M2M100, "position": "rotary", "n_encoder_layers": 1, "n_kv_heads": 2,
                                        "tied": False, "logit_scale": 0.5},
    "Llama, grouped": {**LLAMA, "n_kv_heads": 2, "tied": False},
    "Llama 3": {**LLAMA, "rope_scaling": LLAMA3},
    "YaRN": {**LLAMA, "rope_scaling": YARN, "d_head": 12},
    "linear rotary": {**LLAMA, "rope_scaling": {"kind": "linear", "factor": 3.0}},
    "Qwen3, grouped": {**LLAMA, "n_kv_heads": 2, "d_head": 8, "qk_norm": True},
    "Qwen2": {**LLAMA, "attn_bias": True, "attn_out_bias": False},
    "GPT-2": {**GPT2, "activation": "gelu_tanh"},
    "ALiBi": {**GPT2, "position": "alibi", "n_heads": 6, "n_kv_heads": 3, "activation": "relu"},
    "no positions": {**GPT2, "position": "none"},
    "Gemma 2": {**LLAMA, "norm": "rmsnorm1p", "norm_order": "sandwich", "window": 3, "window_layers": [0],
                "attn_softcap": 2.0, "logit_softcap": 3.0, "activation": "gelu_tanh", "embed_scale": 24**0.5},
    "Gemma 3": {**LLAMA, "norm": "rmsnorm1p", "norm_order": "sandwich", "window": 3, "window_layers": [0],
                "qk_norm": True, "rope_local_base": 100.0, "rope_scaling": {"kind": "linear", "factor": 8.0}},
    "Mixtral": {**LLAMA, "n_experts": 5, "n_experts_per_token": 3, "dense_layers": [1]},
    "experts, not renormalised": {**GPT2, "n_experts": 4, "n_experts_per_token": 2, "experts_renormalised": False,
                                  "d_expert": 16},
    "BERT": {**PRESETS["bert-tiny"], **SMALL},
}  # fmt: skip
STEPS = 220


def tokens(ids: list[int]) -> Tokens:
    return Tokens(ids, [str(id) for id in ids])


def tiny(family: str, dtype: torch.dtype = torch.float32, **changes: object) -> Run:
    """A run of 9 (source) or 7 tokens through a random model whose weights are no trifle."""
    config = parse(ModelConfig, {**FAMILIES[family], **changes}, family)
    torch.manual_seed(0)
    model = build(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    loaded = Loaded(model.to(dtype), config, None, {}, Path("tiny"))
    draw = random.Random(1)
    long, short = ([draw.randrange(31) for _ in range(n)] for n in (9, 8))
    if config.family == "encoder-decoder":
        return Run(loaded, tokens(long), tokens(short[:-1]), tokens(short[1:]))
    if config.family == "decoder-only":
        return Run(loaded, None, tokens(long[:-1]), tokens(long[1:]))
    return Run(loaded, tokens(long), None, tokens(long))


def walk(
    numbers: Arithmetic, steps: int, start: str = "head.logits", seed: int = 0, on: float = 0.9
) -> set[str]:
    """Random paths from a number to where it ends, until `steps` were made; the names met. `on` is the chance to go on
    by a value of the run where a parameter would end the path."""
    draw = random.Random(seed)
    met: set[str] = set()

    def somewhere(name: str) -> Explanation:
        return numbers.explain(name, tuple(draw.randrange(size) for size in numbers.tensor(name).shape))

    ends, at = 0, somewhere(start)
    for _ in range(steps):
        assert at.agrees, f"{at.name}{list(at.index)}: {at.result} is not {at.recorded} ± {at.tolerance}"
        assert at.tolerance < 1e-3 * max(1.0, abs(at.recorded)), f"{at.name}: {at.tolerance} bounds nothing"
        met.add(at.name)
        named = [operand for operand in at.operands if operand.name is not None]
        if not named:
            ends, at = ends + 1, somewhere(start)
            continue
        inner = [operand for operand in named if operand.name in numbers.names]
        operand = draw.choice(inner if inner and draw.random() < on else named)
        which = draw.randrange(operand.values.numel())
        name, index = list(operand.parents)[which]
        before, at = operand.values.flatten()[which].item(), numbers.explain(name, index)
        assert at.recorded == before, f"{name}{index} is not what was taken as {operand.symbol}"
    assert ends > 0, "no path came to its end"
    return met


@pytest.mark.parametrize("family", FAMILIES)
def test_random_paths_from_a_logit_to_ids_and_parameters(family: str) -> None:
    numbers = Arithmetic(tiny(family))
    met = walk(numbers, STEPS)
    assert met & {"ids", "source", "target"} and any(name.endswith("weight") for name in met)
    walk(numbers, 60, "token_loss", seed=1)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_value_that_the_run_has_is_explained(family: str) -> None:
    looked = tiny(family)
    numbers = Arithmetic(looked)
    model, draw = looked.model, random.Random(2)
    unused = {name for name in tap_names(model) if ".experts." in name} - set(numbers.names)
    assert set(tap_names(model)) - unused <= set(numbers.names)
    for name in (*numbers.names, *dict(model.named_buffers())):
        shape = numbers.tensor(name).shape
        for _ in range(4):
            one = numbers.explain(name, tuple(draw.randrange(size) for size in shape))
            assert one.agrees, (
                f"{name}{list(one.index)}: {one.result} is not {one.recorded} ± {one.tolerance}"
            )
            made = name in ("ids", "source", "target") or name.endswith("positions.table")
            assert bool(one.operands) != made, name


@pytest.mark.parametrize("family", FAMILIES)
def test_a_changed_value_is_noticed_where_it_was_changed_and_nowhere_else(family: str) -> None:
    """One tap of each kind in turn is moved by a little more than its tolerance; all else still agrees."""
    looked, draw = tiny(family), random.Random(4)
    plain = Arithmetic(looked)
    kinds: dict[str, list[str]] = {}
    for name in sorted(set(tap_names(looked.model)) & set(plain.names)):
        kinds.setdefault(".".join(name.split(".")[-2:]), []).append(name)
    for name in map(draw.choice, kinds.values()):
        tensor = plain.tensor(name)
        if not tensor.is_floating_point():
            continue
        found = tensor.isfinite().nonzero()[-1].tolist()
        index = tuple(int(place) for place in found)
        step = 3 * plain.explain(name, index).tolerance + 1e-6 * (1 + tensor[index].abs().item())

        def move(x: Tensor, index: tuple[int, ...] = index, step: float = step) -> Tensor:
            x = x.clone()
            x[index] += step
            return x

        changed = Arithmetic(looked, edit={name: move})
        assert not changed.explain(name, index).agrees, name
        for other in draw.sample([other for other in changed.names if other != name], 5):
            elsewhere = tuple(draw.randrange(size) for size in changed.tensor(other).shape)
            assert changed.explain(other, elsewhere).agrees, (name, other)


def test_a_changed_operand_is_noticed_by_what_reads_it() -> None:
    """Each operand of a sum, moved by its own share of the sum's tolerance, moves the result beyond it."""
    looked = tiny("GPT-2")
    numbers = Arithmetic(looked)
    for name, index in (
        ("decoder.layers.1.self_attn.z", (0, 1, 5, 2)),
        ("decoder.layers.0.mlp.out", (0, 3, 7)),
        ("decoder.layers.0.self_attn.q", (0, 2, 4, 1)),
        ("head.logits", (0, 2, 9)),
    ):
        right = numbers.explain(name, index)
        source, at = right.operands[0].name, list(right.operands[0].parents)[1][1]
        assert source is not None
        factor = right.operands[1].values.flatten()[1].item()
        kept = numbers.tensor(source)[at].item()
        numbers.tensor(source)[at] += 3 * right.tolerance / factor
        assert not numbers.explain(name, index).agrees
        numbers.tensor(source)[at] = kept
        assert numbers.explain(name, index).agrees


def test_numbers_of_16_bits_have_the_tolerance_of_16_bits() -> None:
    numbers = Arithmetic(tiny("Llama, grouped", torch.bfloat16))
    draw = random.Random(3)
    for name in numbers.names:
        for _ in range(10):
            index = tuple(draw.randrange(size) for size in numbers.tensor(name).shape)
            assert numbers.explain(name, index).agrees, name
    logit = numbers.explain("head.logits", (0, 0, 0))
    assert 1e-3 < logit.tolerance < 1


def test_probabilities_loss_and_score_are_those_of_training_and_decoding() -> None:
    for family in ("post-norm, sinusoids", "Gemma 2"):
        looked = tiny(family)
        numbers = Arithmetic(looked, smoothing=0.2, length_penalty=LengthPenalty(1.0, "power"))
        with torch.no_grad():
            logits = looked.model(**looked.inputs)[0].double()
            states = looked.model.hidden(**looked.inputs)
            labels = torch.tensor([looked.outcome.ids])
            total, count = vocabulary_loss(looked.model, states, labels, 0.2)
        expected = logits.softmax(dim=-1)
        assert numbers.explain("probabilities", (0, 3, 4)).result == pytest.approx(
            expected[3, 4].item(), abs=1e-6
        )
        assert numbers.explain("loss").result == pytest.approx(float(total) / count, rel=1e-5)
        each = [numbers.explain("token_loss", (0, t)).result for t in range(count)]
        assert sum(each) == pytest.approx(float(total), rel=1e-5)
        log_probs = logits.log_softmax(dim=-1)[range(count), looked.outcome.ids]
        assert numbers.explain("score").result == pytest.approx(log_probs.mean().item(), rel=1e-5)
    assert looked.target is not None
    assert isinstance(looked.model, DecoderOnly)
    forced = score_continuations(looked.model, [looked.target.ids[:1]], [looked.outcome.ids])
    assert explain(looked, "score").result == pytest.approx(
        sum(forced[0]) / LengthPenalty().divisor(len(forced[0])), rel=1e-5
    )


def test_a_masked_word_is_not_counted_in_the_loss_and_a_masked_model_has_no_score() -> None:
    looked = tiny("BERT", mask_id=4)
    ids = [5, 4, 6]
    numbers = Arithmetic(Run(looked.loaded, tokens(ids), None, tokens(ids)))
    with torch.no_grad():
        logits = looked.model(torch.tensor([ids]))[0, [0, 2]].double()
    expected = F.cross_entropy(logits, torch.tensor([5, 6]), label_smoothing=0.1).item()
    loss = numbers.explain("loss")
    assert (
        loss.result == pytest.approx(expected, rel=1e-5)
        and loss.note is not None
        and "training" in loss.note.said("en")
    )
    # What is shown is what is counted: two losses, and not that of the hidden word between them.
    assert loss.parents == [("token_loss", (0, 0)), ("token_loss", (0, 2))]
    assert sum(float(each.values.sum()) for each in loss.operands) / 2 == pytest.approx(loss.result)
    with pytest.raises(CutawayError, match="no value 'score'"):
        numbers.explain("score")


def test_the_masked_word_may_be_the_tokenizers_alone() -> None:
    """A published BERT's config.json does not name it."""
    tokenizer = Tokenizer.train(["who are you"] * 4, "wordpiece", 200)
    mask = tokenizer.require("mask")
    looked = tiny("BERT", vocab_size=tokenizer.vocab_size)
    ids = [5, mask, 6]
    loaded = dataclasses.replace(looked.loaded, tokenizer=tokenizer)
    loss = Arithmetic(Run(loaded, tokens(ids), None, tokens(ids))).explain("loss")
    assert loss.formula.startswith("loss = Σ_t loss[t] / 2,") and loss.agrees


def test_the_formula_of_a_norm_is_that_of_the_paper() -> None:
    looked = tiny("post-norm, sinusoids")
    with (
        torch.no_grad(),
        Trace(looked.model, watch=["*.layers.0.resid_*", "*.layers.0.self_attn.out"]) as trace,
    ):
        looked.model(**looked.inputs)
    x = (trace["encoder.layers.0.resid_pre"] + trace["encoder.layers.0.self_attn.out"]).double()[0, 4]
    norm = looked.model.get_submodule("encoder.layers.0.self_residual.norm")
    assert isinstance(norm, nn.LayerNorm)
    by_hand = (x[7] - x.sum() / 24) / math.sqrt(float(((x - x.sum() / 24) ** 2).sum() / 24) + norm.eps)
    by_hand = by_hand * norm.weight[7].double() + norm.bias[7].double()
    found = explain(looked, "encoder.layers.0.resid_mid", (0, 4, 7))
    assert found.result == pytest.approx(by_hand.item(), abs=1e-7)
    assert found.parents[0] == ("encoder.layers.0.self_residual.sum", (0, 4, 0))
    assert "√(σ² + ε)" in found.formula


def test_what_no_query_may_see_is_minus_infinity_and_says_why() -> None:
    looked = tiny("Gemma 2")
    later = explain(looked, "decoder.layers.0.self_attn.masked", (0, 1, 2, 5))
    assert later.result == later.recorded == -math.inf and later.difference == 0 and later.agrees
    assert said(later.operands[-1].meaning, "en") == "the key stands after the query"
    far = explain(looked, "decoder.layers.0.self_attn.masked", (0, 1, 6, 3))
    assert far.result == -math.inf and said(far.operands[-1].meaning, "en").startswith("3 or more tokens")
    assert explain(looked, "decoder.layers.1.self_attn.masked", (0, 1, 6, 3)).result > -math.inf
    for t, s in itertools.product(range(8), range(8)):
        seen = explain(looked, "decoder.layers.0.self_attn.masked", (0, 1, t, s))
        assert seen.agrees and math.isfinite(seen.result) == (t - 3 < s <= t)
    weight = explain(looked, "decoder.layers.0.self_attn.pattern", (0, 1, 2, 5))
    assert weight.result == weight.recorded == 0


def test_names_and_indices_that_do_not_exist_are_refused_with_what_there_is() -> None:
    looked = tiny("Mixtral")
    with pytest.raises(CutawayError, match=r"patern'.*did you mean 'decoder\.layers\.1\.self_attn\.pattern'"):
        explain(looked, "decoder.layers.1.self_attn.patern", (0, 0, 0, 0))
    with pytest.raises(CutawayError, match=r"\(0, 8, 0\) is outside: its shape is \(1, 8, 31\)"):
        explain(looked, "head.logits", (0, 8, 0))
    with pytest.raises(CutawayError, match="has 2 places, expected 3"):
        explain(looked, "head.logits", (0, 8))
    with pytest.raises(CutawayError, match="smoothing is 1"):
        Arithmetic(looked, smoothing=1.0)
    assert explain(looked, "head.logits", (0, -1, -1)).index == (0, 7, 30)
    looked.loaded.model.train()
    # without dropout, training mode changes nothing
    Arithmetic(looked)
    noisy = tiny("GPT-2", dropout=0.1)
    noisy.model.train()
    with pytest.raises(CutawayError, match="training mode"):
        Arithmetic(noisy)


def test_an_expert_without_a_token_is_named() -> None:
    looked = tiny("experts, not renormalised", n_experts_per_token=1, n_experts=12)
    idle = [name for name in tap_names(looked.model) if name not in Arithmetic(looked).names]
    assert idle
    with pytest.raises(CutawayError, match="given no token"):
        explain(looked, idle[0], (0, 0, 0))


def test_a_model_without_a_head_is_explained_up_to_its_vectors() -> None:
    looked = tiny("BERT", head="none", head_bias=False)
    walk(Arithmetic(looked), 100, "encoder.normed")
    with pytest.raises(CutawayError, match=r"no value 'head\.logits'"):
        explain(looked, "head.logits", (0, 0, 0))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_chain_leads_from_a_probability_to_where_it_ends(family: str) -> None:
    """Each step is a number that the step before read, and one of those that count most."""
    numbers = Arithmetic(tiny(family))
    first, *links = numbers.chain("probabilities", (0, 3, 5))
    before = first.number
    assert (before.name, before.index, first.symbol) == ("probabilities", (0, 3, 5), "")
    assert (links[0].number.name, links[0].number.index) == ("head.logits", (0, 3, 5))
    for link in links:
        at = before.parents.index((link.number.name, link.number.index))
        read = torch.cat([each.values.flatten() for each in before.operands if each.name is not None])
        assert link.number.recorded == read[at].item()
        before = link.number
    assert len(links) > 8
    # Where it ends, nothing of this run was read.
    assert not [each for each in before.operands if each.name in numbers.names]


def test_a_chain_goes_on_with_the_greatest_product() -> None:
    numbers = Arithmetic(tiny("GPT-2"))
    number, step, *_ = (link.number for link in numbers.chain("decoder.layers.1.mlp.out", (0, 4, 2)))
    products = number.operands[0].values * number.operands[1].values
    assert step.index == (0, 4, int(products.abs().argmax()))
    number, step, *_ = (link.number for link in numbers.chain("decoder.layers.1.resid_post", (0, 4, 2)))
    terms = {operand.name: abs(operand.values.item()) for operand in number.operands}
    assert step.name == max(terms, key=lambda name: terms[name])


def test_every_symbol_of_a_formula_is_an_operand() -> None:
    """Stretched frequencies have those that decide what is kept; what an expert counts is not what the text counts."""
    llama = explain(tiny("Llama 3"), "decoder.rotary.frequency", (1,))
    assert [each.symbol for each in llama.operands] == ["base", "2i/E", "factor", "n", "low", "high"]
    yarn = explain(tiny("YaRN"), "decoder.rotary.frequency", (2,))
    assert [each.symbol for each in yarn.operands] == ["base", "2i/E", "factor", "i", "first", "last"]
    looked = tiny("Mixtral")
    chosen = Arithmetic(looked).tensor("decoder.layers.0.mlp.expert_index")[0].tolist()
    t = next(t for t in range(1, 8) if chosen[t][0] not in chosen[t - 1])
    expert = chosen[t][0]
    n = sum(expert in each for each in chosen[:t])
    pre = explain(looked, f"decoder.layers.0.mlp.experts.{expert}.pre", (0, n, 3))
    assert pre.formula.startswith("pre[n,f] = Σ_d x[t,d] · W_gate[f, d]")
    assert pre.operands[0].index == (0, t, slice(None))
    assert "W_u[" in explain(looked, "head.logits", (0, 0, 0)).formula


def test_a_run_is_recorded_once_and_forgotten_with_the_run() -> None:
    looked = tiny("GPT-2")
    seen: list[weakref.ref[Tensor]] = []

    def note(logits: Tensor) -> Tensor:
        seen.append(weakref.ref(logits))
        return logits.new_zeros(())

    with Trace(looked.model, watch={"head.logits": note}):
        explain(looked, "head.logits", (0, 0, 0))
        explain(looked, "probabilities", (0, 1, 0))
    assert len(seen) == 1 and seen[0]() is not None
    del looked
    gc.collect()
    assert seen[0]() is None


def made(code: str) -> object:
    """What a snippet calls `value`."""
    scope: dict[str, object] = {}
    exec(code, scope)
    return scope["value"]


@pytest.mark.parametrize("family", ["post-norm, sinusoids", "Qwen3, grouped", "BERT"])
def test_a_snippet_makes_the_number(family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = tiny(family)
    save(tmp_path, first.model)
    looked = Run(load(tmp_path), first.source, first.target, first.outcome)
    numbers = Arithmetic(looked, smoothing=0.3)
    stack = "encoder" if looked.target is None else "decoder"
    names = [
        f"{stack}.layers.1.self_attn.pattern",
        f"{stack}.layers.0.mlp.out",
        "head.logits",
        "probabilities",
    ]
    names += [name for name in numbers.names if name in ("loss", "score", "head.norm", "ids", "source")]
    names += [f"{stack}.layers.0.self_attn.q_proj.weight", *dict(looked.model.named_buffers())]
    for name in names:
        one = numbers.explain(name, tuple(size // 2 for size in numbers.tensor(name).shape))
        assert made(one.as_python()) == one.recorded, name
        assert float(capsys.readouterr().out) == one.recorded
    changed = Arithmetic(looked, edit={"head.logits": torch.neg})
    with pytest.raises(CutawayError, match="no snippet"):
        changed.explain("head.logits", (0, 0, 0)).as_python()


def test_the_bundled_translator(capsys: pytest.CaptureFixture[str]) -> None:
    loaded = load(find("translate-zh-en"))
    translator = Translator(loaded)
    penalty = LengthPenalty()
    result = translator.translate(["我们明天去北京。"])[0]
    looked = run(loaded, "我们明天去北京。")
    numbers = Arithmetic(looked, hypothesis=result.best, length_penalty=penalty)
    met = walk(numbers, 3 * STEPS, on=0.99)
    assert {"source", "target"} & met and any(".cross_attn." in name for name in met)
    score = numbers.explain("score")
    assert score.agrees and score.recorded == result.best.score
    assert score.result == pytest.approx(sum(result.best.log_probs) / penalty.divisor(len(result.best.ids)))
    for operand, (name, index) in zip(score.operands, score.parents, strict=False):
        assert numbers.explain(name, index).recorded == pytest.approx(operand.values.item(), abs=1e-4)
    assert isinstance(looked.source, Tokens)
    forced = score_targets(translator.model, [looked.source.ids], [result.best.ids])
    assert score.result == pytest.approx(sum(forced[0]) / penalty.divisor(len(forced[0])), abs=1e-4)
    for one in (score, numbers.explain("encoder.layers.2.self_attn.pattern", (0, 1, 2, 3))):
        assert made(one.as_python()) == pytest.approx(one.recorded, rel=1e-12)
    assert capsys.readouterr().out
    other = translator.translate(["你好！"])[0].best
    with pytest.raises(CutawayError, match="not what this run ends with"):
        Arithmetic(looked, hypothesis=other)
