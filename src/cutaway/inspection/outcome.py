"""Which tokens a run's output is judged by, how probable they are (forced decoding), and which are never written."""

# Shapes: R rows, T tokens, n counted tokens, D width, V vocabulary.

from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.decode.gaps import never_filling
from cutaway.decode.text_model import mask_id_of, unwanted_ids
from cutaway.inspection.runs import Run
from cutaway.models.build import Model
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.encoder_only import EncoderOnly
from cutaway.nn.head import Head
from cutaway.words import Phrase, say

_ROWS = 256  # positions whose logits are held at a time


@dataclass(frozen=True)
class Forced:
    """The tokens (T,) that the logits' positions should name, and which positions count.

    Where a model writes, the run's outcome, and every position counts. An encoder-only model is judged by the tokens
    that it puts in the place of `[MASK]` (see `filled_gaps`); where nothing is masked, by the text itself.
    """

    ids: list[int]
    positions: list[int]


def forced_tokens(run: Run, logits: Tensor) -> Forced:
    """`logits` (T, V) are those of the unchanged run."""
    ids = list(run.outcome.ids)
    if not isinstance(run.model, EncoderOnly):
        return Forced(ids, list(range(len(ids))))
    return Forced(filled_gaps(run, logits), masked_positions(run) or list(range(len(ids))))


def filled_gaps(run: Run, logits: Tensor) -> list[int]:
    """The text of an encoder-only model's run with each `[MASK]` replaced by its most probable token of those that
    `cutaway.decode.gaps` would write, by logits (T, V)."""
    ids = list(run.outcome.ids)
    for position in masked_positions(run):
        ids[position] = written_token(run, logits[position], position)
    return ids


def output_of(run: Run) -> Phrase:
    """What `forced_tokens` judges a run by, in words; of a model without output head the vector that it gives."""
    if not isinstance(run.model.head, Head):
        return say("the text's vector")
    if isinstance(run.model, EncoderDecoder):
        return say("the translation")
    if not isinstance(run.model, EncoderOnly):
        return say("every token after the first, what the model wrote included")
    if masked_positions(run):
        return say("what the model puts in the gaps")
    return say("every token of the text, since none is hidden")


def written_token(run: Run, scores: Tensor, position: int) -> int:
    """The id that stands at `position` of the output: the one that was written there, or in a gap the one that the
    model puts there by its logits `scores` (V,)."""
    if not isinstance(run.model, EncoderOnly) or position not in masked_positions(run):
        return run.outcome.ids[position]
    # without one nothing is known of any id
    if run.loaded.tokenizer is not None:
        scores = scores.index_fill(0, scores.new_tensor(never_written(run), dtype=torch.long), -torch.inf)
    return int(scores.argmax())


def usual_position(run: Run) -> int:
    """What a reader asks about first: a masked text's first gap, a translation's first word, otherwise the last
    position."""
    if run.target is None:
        return [*masked_positions(run), -1][0]
    return -1 if run.source is None else 0


def masked_positions(run: Run) -> list[int]:
    """Where an encoder-only model's text has its mask token."""
    mask_id = mask_id_of(run.loaded)
    return [position for position, id in enumerate(run.outcome.ids) if id == mask_id]


def never_written(run: Run) -> list[int]:
    """Ids that decoding, or the filling of gaps, never writes."""
    tokenizer = run.loaded.require_tokenizer()
    if isinstance(run.model, EncoderOnly):
        return never_filling(tokenizer, run.model.config.vocab_size)
    return unwanted_ids(run.loaded, tokenizer)


def log_probs_of(model: Model, hidden: Tensor, forced: Forced) -> Tensor:
    """hidden (R, T, D), the stack's result -> (R, n) natural logarithms of the counted tokens' probabilities, without
    holding more than a few rows' logits."""
    states = hidden[:, forced.positions].flatten(0, 1)  # (R·n, D)
    ids = torch.tensor(forced.ids, device=hidden.device)[forced.positions].repeat(len(hidden))
    found: list[Tensor] = []
    for some, labels in zip(states.split(_ROWS), ids.split(_ROWS), strict=True):
        logits = model.head(some[None])[0].float()  # (r, V)
        found.append(logits.gather(1, labels[:, None])[:, 0] - logits.logsumexp(dim=-1))
    return torch.cat(found).view(len(hidden), -1)


def divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p ‖ q) = Σ_v p_v (log p_v - log q_v), in nats (Kullback & Leibler 1951): natural logarithms of probabilities
    (…, V) -> (…). A token without probability under p adds nothing; one that only q cannot say makes it infinite."""
    p = log_p.exp()
    return torch.where(p > 0, p * (log_p - log_q), 0.0).sum(dim=-1)
