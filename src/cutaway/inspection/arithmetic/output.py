"""Logits, probabilities, the loss and a hypothesis' score, number by number."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from cutaway.decode.search import LengthPenalty
from cutaway.decode.text_model import Hypothesis, mask_id_of
from cutaway.errors import CutawayError
from cutaway.inspection.arithmetic.norm import normalised
from cutaway.inspection.arithmetic.record import Numbers, Record, Sheet, Steps
from cutaway.inspection.arithmetic.rounding import ACTIVATIONS, Rounded, log_softmax, soft_cap, softmax
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
        if not 0 <= self.smoothing < 1:
            raise CutawayError(
                "smoothing is {smoothing}, expected 0 <= smoothing < 1", smoothing=self.smoothing
            )


def head_steps(record: Record, hidden: str) -> Steps:
    """Of `head.logits`, which are made from the stack's result of that name; `head.dense` and `head.norm` (B, T, D) are
    the stages of a masked model's head before its output matrix (Devlin et al. 2019, §3.1)."""
    head = record.model.head
    if not isinstance(head, Head):
        return {}
    reads = "head.norm" if isinstance(head, MaskedHead) else hidden

    def logits(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, t, word = index
        x = sheet.take("x", reads, 0, t, slice(None))
        value = sheet.affine(x, "head.unembed", word, "u")
        formula = f"Σ_d x[t,d] · W_u[v, d]{' + b_u[v]' if sheet.has('head.unembed.bias') else ''}"
        if head.scale != 1.0:
            value = value * sheet.constant("scale", head.scale, "logit_scale")
            formula = f"({formula}) · scale"
        if head.softcap is not None:
            value = soft_cap(value, sheet.constant("c", head.softcap, "logit_softcap"))
            formula = f"c · tanh(({formula}) / c)"
        if record.config.tied:
            sheet.note = say("W_u is the embedding matrix")
        return f"logits[t,v] = {formula}", value

    def dense(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, t, d = index
        x = sheet.take("x", hidden, 0, t, slice(None))
        return "dense[t,i] = Σ_d x[t,d] · W_h[i, d] + b_h[i]", sheet.affine(x, "head.dense", d, "h")

    function, written = ACTIVATIONS[record.config.activation]

    def norm(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, t, i = index
        x = function(sheet.take("y", "head.dense", 0, t, slice(None)))
        assert isinstance(head, MaskedHead)
        formula, result = normalised(sheet, x, i, "head.norm", head.norm)
        return f"norm[t,i] = {formula},  x[j] = f(y[t,j]),  f(x) = {written}", result

    steps: Steps = {LOGITS: logits}
    if isinstance(head, MaskedHead):
        record.add("head.dense", lambda: head.dense(record.need(hidden)))
        record.add("head.norm", lambda: head.transform(record.need(hidden)))
        steps |= {"head.dense": dense, "head.norm": norm}
    return steps


def output_steps(record: Record, settings: Settings) -> Steps:
    """Of what follows the logits: `probabilities`, `log_probabilities` (B, T, V), `token_loss` (B, T), `loss` () and,
    for models that write, `score` ()."""
    if not isinstance(record.model.head, Head):
        return {}
    outcome, smoothing = record.outcome.ids, settings.smoothing
    hidden_word = mask_id_of(record.loaded) if record.target is None else None
    counted = [t for t, id in enumerate(outcome) if id != hidden_word]

    def float_logits() -> Tensor:
        return record.need(LOGITS).float()

    def row(sheet: Sheet, t: int) -> Rounded:
        return sheet.take("l", LOGITS, 0, t, slice(None))

    def probabilities(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, t, v = index
        return "p[t,v] = exp(l[v] - max l) / Σ_w exp(l[w] - max l)", softmax(row(sheet, t))[v]

    def log_probabilities(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, t, v = index
        return "log p[t,v] = l[v] - max l - log Σ_w exp(l[w] - max l)", log_softmax(row(sheet, t))[v]

    def losses() -> Tensor:
        labels = torch.tensor(outcome, device=record.need(LOGITS).device)
        return F.cross_entropy(float_logits()[0], labels, reduction="none", label_smoothing=smoothing)[None]

    def token_loss(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        _, t = index
        words = record.config.vocab_size
        log_p = sheet.take("log p", "log_probabilities", 0, t, slice(None))
        epsilon = sheet.constant("ε", smoothing, say("label smoothing"))
        sheet.constant("y", outcome[t], say("the token that stands here in truth"))
        value = -(log_p[outcome[t]] * (-epsilon + 1)) - log_p.sum() * epsilon / words
        return f"loss[t] = -(1 - ε) · log p[t,y] - ε/{words} · Σ_v log p[t,v]", value

    def loss(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        losses = sheet.take("loss", "token_loss", 0, slice(None))
        value = losses[torch.tensor(counted)].mean()
        if record.target is None:
            sheet.note = say(
                "the words are in the model's sight here, unlike in training, where they are hidden; a "
                "[MASK] is not counted, since its word is not known"
            )
        return f"loss = Σ_t loss[t] / {len(counted)}", value

    record.add("probabilities", lambda: float_logits().softmax(dim=-1))
    record.add("log_probabilities", lambda: float_logits().log_softmax(dim=-1))
    record.add("token_loss", losses)
    steps: Steps = {
        "probabilities": probabilities,
        "log_probabilities": log_probabilities,
        "token_loss": token_loss,
    }
    if counted:
        record.add("loss", lambda: record.need("token_loss")[0, counted].mean())
        steps["loss"] = loss
    return steps if record.target is None else steps | _score_steps(record, settings)


def _score_steps(record: Record, settings: Settings) -> Steps:
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
    n = len(outcome) - first
    places = range(first, len(outcome))

    def score(sheet: Sheet, index: Numbers) -> tuple[str, Rounded]:
        taken = [sheet.take(f"log p_{t}", "log_probabilities", 0, t, outcome[t]) for t in places]
        numbers = torch.stack([one.value for one in taken])
        if hypothesis is not None:
            sheet.replace(hypothesis.log_probs)
            numbers = torch.tensor(hypothesis.log_probs, dtype=torch.float64)
            sheet.note = say(
                "log p are those of the search, which reads earlier tokens from its cache: the same "
                "but for rounding as in this run. A repetition penalty, where one was set, changes the "
                "score and not them"
            )
        sheet.constant("n", n, say("tokens, the end token too"))
        kind = say("length penalty, {kind}", kind=penalty.kind)
        sheet.constant("α", penalty.alpha, kind)
        base = (5 + n) / 6 if penalty.kind == "gnmt" else n
        formula = "((5 + n)/6)^α" if penalty.kind == "gnmt" else "n^α"
        total = Rounded(
            numbers, 0.0, torch.float32
        ).sum()  # log-probabilities are fp32 whatever the model's type
        return f"score = Σ_t log p_t / {formula}", total / base**penalty.alpha

    def recorded() -> Tensor:
        if hypothesis is not None:
            return torch.tensor(hypothesis.score, dtype=torch.float64)
        labels = torch.tensor(outcome, device=record.need(LOGITS).device)
        log_probs = record.need("log_probabilities")[0].gather(1, labels[:, None])
        return log_probs.sum() / penalty.divisor(n)

    record.add("score", recorded)
    return {"score": score}
