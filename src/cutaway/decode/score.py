"""How probable a given text is under the model: forced decoding."""

# Shapes: B batch, T target tokens, D width, V vocabulary.

from collections.abc import Sequence

import torch
from torch import Tensor

from cutaway.decode.stepping import pad_right
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.text.batches.batch import IGNORED

_ROWS = 256  # positions whose logits are held at a time


@torch.inference_mode()
def score(
    model: EncoderDecoder | DecoderOnly, inputs: dict[str, Tensor], labels: Tensor
) -> list[list[float]]:
    """Log-probability of every counted label, row by row, under teacher forcing.

    `inputs` are the model's arguments and `labels` (B, T) what it should say at each position, IGNORED where
    nothing counts (as in text.batch.Batch). Padding is never scored; every counted token is, once.
    """
    hidden = model.hidden(**inputs)  # (B, T, D)
    counted = labels != IGNORED
    states, targets = hidden[counted], labels[counted]  # (N, D), (N,)
    found: list[float] = []
    for start in range(0, len(targets), _ROWS):
        chunk = slice(start, start + _ROWS)
        logits = model.head(states[chunk][None])[0].float()  # (n, V)
        chosen = logits.gather(1, targets[chunk, None])[:, 0]
        found += (chosen - logits.logsumexp(dim=-1)).tolist()
    values = iter(found)
    return [[next(values) for _ in range(count)] for count in counted.sum(dim=1).tolist()]


def score_targets(
    model: EncoderDecoder, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[list[float]]:
    """Log-probability of every id of `targets`, each given the source and the ids before it.

    Sources and targets are what the model was trained on: end tokens included. The target of an empty text is the
    end token alone, so its score is log P(end).
    """
    start = model.config.decoder_start_id
    assert start is not None, "the config has no decoder_start_id"
    device = next(model.parameters()).device
    source, source_mask = pad_right(sources, model.config.pad_id or 0, device)
    target, _ = pad_right([[start, *ids[:-1]] for ids in targets], model.config.pad_id or 0, device)
    labels, _ = pad_right(targets, IGNORED, device)
    inputs = {"source": source, "target": target}
    return score(model, inputs if source_mask is None else {**inputs, "source_mask": source_mask}, labels)


def score_continuations(
    model: DecoderOnly, prompts: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[list[float]]:
    """Log-probability of every id of `targets`, each given its prompt (at least one token) and the ids before it."""
    device = next(model.parameters()).device
    pairs = list(zip(prompts, targets, strict=True))
    rows = [[*prompt, *target[:-1]] for prompt, target in pairs]
    counted = [[*[IGNORED] * (len(prompt) - 1), *target] for prompt, target in pairs]
    ids, _ = pad_right(rows, model.config.pad_id or 0, device)
    labels, _ = pad_right(counted, IGNORED, device)
    # padding on the right comes later than all that counts
    return score(model, {"ids": ids}, labels)
