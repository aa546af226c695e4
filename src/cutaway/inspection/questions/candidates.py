"""What might be written at a place: the model's distribution, and what settings of sampling make of it."""

# Shapes: V vocabulary.

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Annotated, Literal

import torch
from torch import Tensor

from cutaway.decode.own_settings import own_settings
from cutaway.decode.sampling import Sampling, shape
from cutaway.decode.search import GREEDY, Limits, Search
from cutaway.decode.stepping import Choice, nothing_left
from cutaway.decode.text_model import end_ids_of
from cutaway.inspection.asked import Position, position_asked
from cutaway.inspection.options import Option
from cutaway.inspection.outcome import never_written, written_token
from cutaway.inspection.question import WORDS, Suggesting, Suggestion, question
from cutaway.inspection.runs import Run, piece_of, stack_named
from cutaway.inspection.terms import TOKEN, left, right
from cutaway.inspection.wiring import output_head
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.page.blocks import Bar, Page, Prose, Table, Tinted, page
from cutaway.page.numbers import share
from cutaway.words import Phrase, Text, say, say_in

# What takes a token out; "never": it is never written, whatever is set.
Cut = Literal["never", "temperature", "top_k", "top_p", "min_p"]


@dataclass(frozen=True)
class Candidate:
    """A token with its logit, its log-probability (natural) and probability under the model, and the probability with
    which it is drawn. `rank` counts from 1 by logits: no token has a higher one. `cut` is what took it out."""

    id: int
    piece: str
    logit: float
    log_prob: float
    before: float
    after: float
    rank: int
    cut: Cut | None


@dataclass(frozen=True, repr=False)
class Candidates(Suggesting):
    """What might be written at a place, and how probable settings of sampling make it (see `decode.sampling.Sampling`).

    `before` are the probabilities of the model itself, `after` those that a token is drawn with: the repetition penalty
    is for tokens that stand before this place (of an encoder-only model anywhere in the text), then what decoding never
    writes there is out, then logits are divided by the temperature, and top-k, top-p and min-p apply in this order.
    Temperature 0 and top-p 0 take the best one. `rows` are the most probable by `after`, then by `before`; `written` is
    the token that stands there, or that the model puts in a gap. `left_before` and `left_after` are the probability of
    all tokens that are not in `rows`; `kept` counts those that can be drawn, `kept_before` is their probability under
    the model, and `words` counts all. Entropies are in nats.
    """

    position: int
    reads: str  # the piece at this position
    sampling: Sampling
    rows: tuple[Candidate, ...]
    written: Candidate
    left_before: float
    left_after: float
    kept: int
    kept_before: float
    words: int
    entropy_before: float
    entropy_after: float

    def page(self) -> Page:
        return _page(self)

    def suggestions(self) -> Iterator[Suggestion]:
        return _suggestions(self)


@question(
    say("What might be written at a place, with temperature, top-k, top-p, min-p and a repetition penalty."),
    "text",
    WORDS,
)
def candidates(
    run: Run,
    *,
    at: Position = None,
    temperature: Annotated[
        float, Option(say("What logits are divided by; 0 takes the best token."), at_least=0)
    ] = 1.0,
    top_k: Annotated[int, Option(say("Keep so many of the best; 0 keeps all."), at_least=0)] = 0,
    top_p: Annotated[
        float,
        Option(say("Keep the fewest best ones with this much probability together."), at_least=0, at_most=1),
    ] = 1.0,
    min_p: Annotated[
        float,
        Option(
            say("Keep those with at least this part of the best one's probability."), at_least=0, at_most=1
        ),
    ] = 0.0,
    repetition_penalty: Annotated[
        float,
        Option(
            say(
                "Above 1 makes tokens that stand there already less likely: positive logits are divided by it, others "
                "multiplied."
            )
        ),
    ] = 1.0,
    top: Annotated[int, Option(say("Tokens that are listed."), at_least=1)] = 20,
) -> Candidates:
    """The distribution of one position, from one forward pass, by the functions that decoding draws with.

    Raises CutawayError for a model without output head, a position out of range, and settings out of theirs.
    """
    output_head(run.model)
    sampling = Sampling(repetition_penalty, temperature, top_k, top_p, min_p)
    tokens = stack_named(run, None).tokens
    where = position_asked(run, tokens, at)
    logits = run.forward()[0][where].float()  # (V,)
    log_probs = logits.log_softmax(dim=-1)
    allowed = _allowed(run, logits, where, sampling)
    shaped = _shaped(allowed[None], sampling)[0]
    after = shaped.double().softmax(dim=-1)
    before = log_probs.double().exp()
    order = torch.argsort(before, descending=True, stable=True)
    order = order[after[order].argsort(descending=True, stable=True)]
    stages = list(_stages(allowed, sampling))

    def candidate(id: int) -> Candidate:
        cut: Cut | None = next((name for name, stage in stages if float(stage[id]) == -math.inf), None)
        rank = int((logits > logits[id]).sum()) + 1
        return Candidate(
            id=id,
            piece=piece_of(run, id),
            logit=float(logits[id]),
            log_prob=float(log_probs[id]),
            before=float(before[id]),
            after=float(after[id]),
            rank=rank,
            cut=cut,
        )

    listed: list[int] = order[:top].tolist()
    return Candidates(
        position=where,
        reads=tokens.pieces[where],
        sampling=sampling,
        rows=tuple(map(candidate, listed)),
        written=candidate(written_token(run, logits, where)),
        left_before=float(before[order[top:]].sum()),
        left_after=float(after[order[top:]].sum()),
        kept=int((shaped > -math.inf).sum()),
        kept_before=float(before[shaped > -math.inf].sum()),
        words=len(logits),
        entropy_before=_entropy(before),
        entropy_after=_entropy(after),
    )


def _allowed(run: Run, logits: Tensor, position: int, sampling: Sampling) -> Tensor:
    """logits (V,) as decoding has them before it shapes them: with the repetition penalty, and at -inf what is never
    written there."""
    ends, search = None, Search(sampling=sampling)
    if isinstance(run.model, EncoderDecoder | DecoderOnly):
        assert run.target is not None
        own = own_settings(run.loaded)
        ends, search = end_ids_of(run.loaded), replace(own.search(GREEDY, beam=1), sampling=sampling)
        ids, limits = run.target.ids[: position + 1], own.limits()
        start = len(ids)
        if isinstance(run.model, EncoderDecoder):
            # what is forced on the decoder before it writes is made of control tokens, which it never writes
            controls = set(run.loaded.require_tokenizer().controls)
            start = max(1, len(list(takewhile(controls.__contains__, ids))))
            limits = replace(limits, min_new_tokens=max(1, limits.min_new_tokens))
        limits = limits.within(run.model.config.max_len, len(ids) + 1)
    else:
        ids, limits = run.outcome.ids, Limits(1)
        start = len(ids)
    choice = Choice([ids[:start]], limits, ends, never_written(run), search, logits.device)
    choice.start([0])
    for id in ids[start:]:
        choice.follow(None, torch.tensor([id], device=logits.device))
    length = len(ids) - start + 1
    allowed = choice.allowed(choice.penalised(logits[None]), [0], length)[0]
    if float(allowed.amax()) == -math.inf:
        raise nothing_left(length)
    return allowed


def _shaped(logits: Tensor, sampling: Sampling) -> Tensor:
    """`sampling.shape`; where nothing is drawn, the best token alone."""
    if not sampling.greedy:
        return shape(logits, sampling)
    best = logits.argmax(dim=-1, keepdim=True)
    return torch.full_like(logits, -math.inf).scatter(-1, best, 0.0)


def _stages(allowed: Tensor, sampling: Sampling) -> Iterator[tuple[Cut, Tensor]]:
    """What is left after each setting (V,), in the order in which they apply."""
    yield "never", allowed
    if sampling.greedy:
        yield "temperature" if sampling.temperature == 0 else "top_p", _shaped(allowed[None], sampling)[0]
        return
    yield "top_k", shape(allowed[None], replace(sampling, top_p=1.0, min_p=0.0))[0]
    yield "top_p", shape(allowed[None], replace(sampling, min_p=0.0))[0]
    yield "min_p", shape(allowed[None], sampling)[0]


def _entropy(probabilities: Tensor) -> float:
    return float(torch.special.entr(probabilities).sum())


def _suggestions(found: Candidates) -> Iterator[Suggestion]:
    written = found.written
    other = next((each for each in found.rows if each.id != written.id and each.cut != "never"), None)
    if other is not None:
        forced = {"changes": [{"op": "token", "at": found.position, "force": other.id}]}
        yield Suggestion(say("what is written if '{piece}' stands here", piece=other.piece), "diff", forced)
        why = say("why '{written}' and not '{piece}'", written=written.piece, piece=other.piece)
        against = {"at": found.position, "token": written.id, "against": other.id}
        yield Suggestion(why, "logit", against)
    yield Suggestion(say("what each layer would say, were it the last"), "lens", {"at": found.position})
    name, index = "probabilities", [0, found.position, written.id]
    about = say("how the probability of '{piece}' is computed", piece=written.piece)
    yield Suggestion(about, "explain", {"name": name, "index": index})


# Its page.

_CUTS: dict[Cut, Text] = {
    "never": say("never written here"),
    "temperature": say("temperature 0"),
    "top_k": "top-k",
    "top_p": "top-p",
    "min_p": "min-p",
}
_ABOUT = say(
    "before: the probability that the model gives the token. after: the probability with which it is drawn under these "
    "settings; a token that is cut is never drawn. The rank is the token's place by logits."
)


def _page(found: Candidates) -> Page:
    title = say(
        "What might be written at token {position}, '{piece}'", position=found.position, piece=found.reads
    )
    columns = (
        right(say_in("place in a list", "rank")),
        left(TOKEN),
        right(say("logit")),
        right(say("before")),
        left(""),
        right(say("after")),
        left(""),
        left(say("cut by")),
    )
    rows = [_row(each) for each in found.rows]
    if found.written not in found.rows:
        rows.append(_row(found.written))
    rest = found.words - len(found.rows)
    remark = None
    if rest:
        remark = say(
            "Beyond the first {n}: {count:,} tokens, with {before} of the probability before and {after} after.",
            n=len(found.rows), count=rest, before=share(found.left_before), after=share(found.left_after),
        )  # fmt: skip
    written = say(
        "'{piece}': rank {rank:,}, {before} before, {after} after",
        piece=found.written.piece, rank=found.written.rank, before=share(found.written.before),
        after=share(found.written.after),
    )  # fmt: skip
    kept = say(
        "{kept:,} of {words:,} tokens, with {before} of the probability before",
        kept=found.kept, words=found.words, before=share(found.kept_before),
    )  # fmt: skip
    entropy = say(
        "{before:.2f} nats before, {after:.2f} after", before=found.entropy_before, after=found.entropy_after
    )
    return page(
        title,
        [
            Prose(say("written"), written),
            Prose(say("settings"), _settings(found.sampling)),
            Prose(say("kept"), kept),
            Prose(say("entropy"), entropy),
            Table(columns, rows),
            remark,
            _ABOUT,
        ],
    )


def _row(each: Candidate) -> tuple[Text | Bar | Tinted, ...]:
    cut = "" if each.cut is None else _CUTS[each.cut]
    piece = Tinted(each.piece, each.after)
    return (
        f"{each.rank:,}", piece, f"{each.logit:.2f}", share(each.before), Bar(each.before), share(each.after),
        Bar(each.after), cut,
    )  # fmt: skip


def _settings(sampling: Sampling) -> Phrase:
    return say(
        "temperature {temperature:g}, top-k {top_k}, top-p {top_p:g}, min-p {min_p:g}, repetition penalty {penalty:g}",
        temperature=sampling.temperature,
        top_k=sampling.top_k or say("off"),
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        penalty=sampling.repetition_penalty,
    )
