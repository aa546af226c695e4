"""The rules of what a stack's result becomes: logits, probabilities, the loss, a score; or a sentence vector."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.functional import normalize

from cutaway.decode.search import LengthPenalty
from cutaway.decode.sentence_settings import read_settings
from cutaway.decode.text_model import Hypothesis, mask_id_of
from cutaway.errors import CutawayError
from cutaway.inspection.arithmetic.formula import Constant, Read, Reads, Rule, Rules, Sheet
from cutaway.inspection.arithmetic.record import Record
from cutaway.inspection.arithmetic.rounding import ACTIVATIONS, Rounded
from cutaway.inspection.arithmetic.shared_rules import linear, norm_rule
from cutaway.inspection.sentences import pooled_states
from cutaway.inspection.wiring import runs_of
from cutaway.nn.head import Head, MaskedHead
from cutaway.words import say

LOGITS = "head.logits"


@dataclass(frozen=True)
class Settings:
    """What a score and a loss depend on beside the run."""

    smoothing: float = 0.1  # of the loss: ε of Szegedy et al. 2016, §7
    length_penalty: LengthPenalty = field(default_factory=LengthPenalty)
    hypothesis: Hypothesis | None = None  # whose score is asked for; None: the run's outcome

    def __post_init__(self) -> None:
        if not 0 <= (smoothing := self.smoothing) < 1:
            raise CutawayError("smoothing is {smoothing}, expected 0 <= smoothing < 1", smoothing=smoothing)


def head_rules(record: Record, hidden: str) -> Rules:
    """Of `head.logits`, which are made from the stack's result of that name; `head.dense` and `head.norm` (B, T, D) are
    the stages of a masked model's head before its output matrix (Devlin et al. 2019, §3.1)."""
    head, rules, last = record.model.head, Rules(), hidden
    assert isinstance(head, Head)
    if isinstance(head, MaskedHead):
        dense = linear(record, "head.dense", "h", "i", hidden)
        rules["head.dense"] = Rule("dense[t,i]", *dense, made=lambda: head.dense(record.need(hidden)))
        rules["head.norm"] = norm_rule(
            record,
            "norm[t,i]",
            "head.norm",
            "head.dense",
            activation=ACTIVATIONS[record.config.head_activation or record.config.activation],
            made=lambda: head.transform(record.need(hidden)),
        )
        last = "head.norm"
    right, reads = linear(record, "head.unembed", "u", "v", last)
    if head.scale != 1.0:
        right, reads["scale"] = f"({right}) · scale", Constant(head.scale, "logit_scale")
    if head.softcap is not None:
        right, reads["c"] = f"c · tanh(({right}) / c)", Constant(head.softcap, "logit_softcap")
    tied = say("W_u is the embedding matrix") if record.config.tied else None
    return {**rules, LOGITS: Rule("logits[t,v]", right, reads, note=tied)}


def output_rules(record: Record, settings: Settings) -> Rules:
    """Of what follows the logits: `probabilities`, `log_probabilities` (B, T, V), `token_loss` (B, T), `loss` () and,
    for models that write, `score` ()."""
    outcome, smoothing, words = record.outcome.ids, settings.smoothing, record.config.vocab_size

    def logits() -> Tensor:
        return record.need(LOGITS).float()

    def losses() -> Tensor:
        labels = torch.tensor(outcome, device=record.need(LOGITS).device)
        return F.cross_entropy(logits()[0], labels, reduction="none", label_smoothing=smoothing)[None]

    def smoothed(at: Sheet, log_p: Rounded, epsilon: Rounded, y: Rounded) -> Rounded:
        return -(log_p[at["y"]] * (-epsilon + 1)) - log_p.sum() * epsilon / words

    def of_logits(left: str, right: str, made: Callable[[], Tensor]) -> Rule:
        return Rule(left, right, {"l": Read(LOGITS, "t,w")}, follows="l[v]", made=made)

    truth: Reads = {
        "log p": Read("log_probabilities", "t,v"),
        "ε": Constant(smoothing, say("label smoothing")),
        "y": Constant(lambda at: at["y"], say("the token that stands here in truth")),
    }
    p, log_p = "exp(l[v] - max l) / Σ_w exp(l[w] - max l)", "l[v] - max l - log Σ_w exp(l[w] - max l)"
    rules = {
        "probabilities": of_logits("p[t,v]", p, lambda: logits().softmax(dim=-1)),
        "log_probabilities": of_logits("log p[t,v]", log_p, lambda: logits().log_softmax(dim=-1)),
        "token_loss": Rule(
            "loss[t]",
            f"-(1 - ε) · log p[t,y] - ε/{words} · Σ_v log p[t,v]",
            truth,
            {"y": lambda at: outcome[at["t"]]},
            work=smoothed,
            follows="log p[y]",
            made=losses,
        ),
        **_loss_rules(record),
    }
    return rules if record.target is None else rules | _score_rules(record, settings)


def _loss_rules(record: Record) -> Rules:
    """The mean of the losses of all tokens whose word is known: a [MASK] is not counted."""
    outcome = record.outcome.ids
    hidden_word = mask_id_of(record.loaded) if record.target is None else None
    counted = [t for t, id in enumerate(outcome) if id != hidden_word]
    if not counted:
        return {}
    lines = [f"{first}:{last + 1}" for first, last in runs_of(counted)]
    note = None
    if record.target is None:
        note = say(
            "the words are in the model's sight here, unlike in training, where they are hidden; a "
            "[MASK] is not counted, since its word is not known"
        )

    def mean(at: Sheet, *losses: Rounded) -> Rounded:
        return Rounded(torch.cat([each.value for each in losses]), 0.0, losses[0].dtype).mean()

    def made() -> Tensor:
        return record.need("token_loss")[0, counted].mean()

    reads: Reads = {f"loss[{line}]": "token_loss" for line in lines}
    where = "" if len(lines) == 1 else f",  t in {', '.join(lines)}"
    right = f"Σ_t loss[t] / {len(counted)}{where}"
    return {"loss": Rule("loss", right, reads, note=note, work=mean, made=made)}


def _score_rules(record: Record, settings: Settings) -> Rules:
    """A hypothesis' sum of log-probabilities, divided by its length penalty (Wu et al. 2016, §7, equation 14)."""
    penalty, hypothesis = settings.length_penalty, settings.hypothesis
    outcome = record.outcome.ids
    first = 0 if hypothesis is None else len(outcome) - len(hypothesis.ids)
    if hypothesis is not None and (not hypothesis.ids or outcome[max(first, 0) :] != hypothesis.ids):
        raise CutawayError(
            "the hypothesis is not what this run ends with: its ids are {ids}, those of the run "
            "{outcome}; make a Run whose outcome are the hypothesis' ids",
            ids=hypothesis.ids,
            outcome=outcome,
        )
    n, note, reads = len(outcome) - first, None, Reads()
    if hypothesis is not None:
        note = say(
            "log p are those of the search, which reads earlier tokens from its cache: the same "
            "but for rounding as in this run. A repetition penalty, where one was set, changes the "
            "score and not them"
        )
    for t in range(first, len(outcome)):
        found = None if hypothesis is None else hypothesis.log_probs[t - first]
        reads[f"log p_{t}"] = Read("log_probabilities", f"{t},{outcome[t]}", instead=found)
    reads["n"] = Constant(n, say("tokens, the end token too"))
    reads["α"] = Constant(penalty.alpha, say("length penalty, {kind}", kind=penalty.kind))

    def score(at: Sheet, *values: Rounded) -> Rounded:
        # Log-probabilities are fp32 whatever the model's type.
        total = Rounded(torch.stack([each.value for each in values[:n]]), 0.0, torch.float32).sum()
        return total / penalty.divisor(n)

    def made() -> Tensor:
        if hypothesis is not None:
            return torch.tensor(hypothesis.score, dtype=torch.float64)
        labels = torch.tensor(outcome, device=record.need(LOGITS).device)
        return record.need("log_probabilities")[0].gather(1, labels[:, None]).sum() / penalty.divisor(n)

    right = f"Σ_t log p_t / {'((5 + n)/6)' if penalty.kind == 'gnmt' else 'n'}^α"
    return {"score": Rule("score", right, reads, note=note, work=score, made=made)}


def sentence_rules(record: Record, hidden: str) -> Rules:
    """Of a model without output head: `pooled` (B, D), made of the last hidden states of that name, and
    `sentence_vector` (B, D) where the model's folder wants vectors of length 1 (Reimers and Gurevych 2019, §3)."""
    settings, n = read_settings(record.loaded.path), record.need(hidden).shape[1]
    right, work = {
        "cls": ("x[0,d]", None),
        "last": (f"x[{n - 1},d]", None),
        "max": ("max_t x[t,d]", lambda at, x: x.max()),
    }.get(settings.pooling, (f"Σ_t x[t,d] / {n}", lambda at, x: x.mean()))
    reads: Reads = {"x": hidden} if work is None else {"x[t,d]": hidden}

    def made() -> Tensor:
        return pooled_states(record.loaded, record.need(hidden))

    rules = {"pooled": Rule("pooled[d]", right, reads, work=work, made=made)}
    if settings.normalise:
        rules["sentence_vector"] = Rule(
            "v[d]",
            "p[d] / √(Σ_j p[j]²)",
            {"p": Read("pooled", "j")},
            work=lambda at, p: p[at["d"]] * (p * p).sum().rsqrt(),
            follows="p[d]",
            made=lambda: normalize(record.need("pooled"), dim=-1),
        )
    return rules
