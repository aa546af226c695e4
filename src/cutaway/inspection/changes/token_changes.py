"""Changes of what enters the model and of what it may write: tokens hidden, embeddings, output tokens, temperature."""

# Shapes: B batch, T tokens, S keys, H heads, D width, V vocabulary.

import math

import torch
from torch import Tensor

from cutaway.config import checked, key
from cutaway.errors import CutawayError
from cutaway.inspection.changes.change import SIDE, Building, Change, Example, Token, without
from cutaway.inspection.changes.position_changes import tell_rotations, tell_vectors
from cutaway.inspection.outcome import never_written
from cutaway.inspection.wiring import All, Side, output_head, output_stack, places, sides, stack_entry
from cutaway.words import say

_LOGITS = "head.logits"


@checked
class Hide(Change):
    """To its numbers what the mask of padding does (see `source_effect`): the vector at a hidden position is 0 from the
    first block on, every query's score for it is -inf, in cross-attention too where an encoder reads it, and positions
    that are counted absolutely, rotary ones included, count the other tokens alone. With relative positions the gap
    stays. What several of these changes hide on a side is hidden together; it and a `pos` change of that side both tell
    positions, of which the later counts."""

    op = "hide"
    title = say("tokens hidden")
    about = say(
        "No token sees these tokens, as if the text never had them: where positions are counted absolutely, those "
        "after them move up."
    )
    example = Example({"token": 2})

    side: Side | None = key(
        say("may be left out: the encoder where there is one, else the only stack"), default=None
    )
    token: int | tuple[int, ...] = key(say("the position in the text, from 0, or several"), ge=0)

    def __post_init__(self) -> None:
        if not self.tokens:
            raise CutawayError("`token` is an empty list, expected at least one position")

    @property
    def tokens(self) -> tuple[int, ...]:
        return (self.token,) if isinstance(self.token, int) else self.token

    def reads(self, building: Building) -> Side:
        """The stack whose tokens are hidden."""
        return building.sides(self.side or sides(building.model)[0], self.allowed)[0]

    def check(self, building: Building) -> None:
        for token in self.tokens:
            building.check_position("token", token, self.reads(building))

    def edit(self, building: Building) -> None:
        side = self.reads(building)
        alike = (each for each in building.changes if isinstance(each, Hide) and each.reads(building) == side)
        hidden = torch.tensor(sorted({token for each in alike for token in each.tokens}))

        def renumbered(positions: Tensor) -> Tensor:
            before = (hidden.to(positions) <= positions[:, None]).sum(dim=1)
            return (positions - before).clamp(min=0)

        def unseen(masked: Tensor) -> Tensor:  # (B, H, T, S)
            keys = torch.arange(masked.shape[-1], device=masked.device)
            return masked.masked_fill(torch.isin(keys, hidden.to(keys)), -math.inf)

        tell_vectors(building, side, renumbered)
        tell_rotations(building, side, renumbered)
        for token in self.tokens:
            building.add_at(stack_entry(side), side, token, torch.zeros_like)
        crossed: tuple[Side, ...] = (
            ("cross",) if side == "encoder" and "cross" in sides(building.model) else ()
        )
        for each in (side, *crossed):
            for place in places(building.model, each):
                building.add(f"{place.attention_path}.masked", unseen)


@checked
class SetEmbedding(Change):
    """Scaled as the model scales it, and before positions are added."""

    op = "embedding"
    title = say("another embedding")
    about = say("A token's embedding becomes another token's, or moves along the step between two tokens.")
    example = Example({"side": "encoder", "token": 2, "id": "今天"})

    side: Side | None = key(SIDE, default=None)
    token: int = key(say("the position in the text, from 0"), ge=0)
    id: Token | None = key(
        say("the other token: its id, its piece, or a word that is one token"), default=None, ge=0
    )
    along: tuple[Token, ...] | None = key(
        say("in the place of `id`: two tokens; the embedding moves by the step from the first to the second"),
        default=None,
        ge=0,
    )
    amount: float = key(say("how often the step along is taken"), default=1.0)

    def __post_init__(self) -> None:
        if (self.id is None) == (self.along is None):
            raise CutawayError("expected either id or along")
        if self.along is not None and len(self.along) != 2:
            raise CutawayError("along has {count} tokens, expected two: from, to", count=len(self.along))

    def _side(self, building: Building) -> Side:
        return building.sides(self.side, self.allowed)[0]

    def check(self, building: Building) -> None:
        building.check_position("token", self.token, self._side(building))

    def edit(self, building: Building) -> None:
        side = self._side(building)
        stack = building.stacks[side]
        table, scale = stack.embedding.tokens.weight.detach(), stack.embedding.scale

        tap = f"{stack.embedding_name}.embed"
        if self.id is not None:
            new = table[building.id("id", self.id, side)] * scale
            building.add_at(tap, side, self.token, lambda x: new.to(x).expand_as(x))
        else:
            first, second = (table[building.id("along", token, side)] for token in self.along or ())
            step = (second - first) * (scale * self.amount)
            building.add_at(tap, side, self.token, lambda x: x + step.to(x))


@checked
class SetOutput(Change):
    """Banned tokens, and all but a forced one, get the logit -inf. Positions are those of the decoder's input (or,
    encoder-only, of the text): at `t` stands what follows the input token at `t`."""

    op = "token"
    title = say("output token banned or forced")
    about = say("A position of the output may not be some tokens, or must be one.")
    example = Example({"at": 0, "ban": ["▁He"]})

    at: All | int = key(
        say('the position of what is written, from 0 (encoder-only: of the text); "*" all'), default="*", ge=0
    )
    ban: tuple[Token, ...] = key(say("tokens that are not written: ids, pieces or words"), default=(), ge=0)
    force: Token | None = key(say("in the place of `ban`: the one token that is written"), default=None, ge=0)

    def __post_init__(self) -> None:
        if bool(self.ban) == (self.force is not None):
            raise CutawayError("expected either ban or force")
        if self.force is not None and self.at == "*":
            raise CutawayError("force needs a position `at`")

    def check(self, building: Building) -> None:
        output_head(building.model)
        building.check_position("at", self.at, output_stack(building.model))

    def edit(self, building: Building) -> None:
        side = output_stack(building.model)
        if self.force is None:
            banned = [building.id("ban", token, side) for token in self.ban]
        else:
            forced = building.id("force", self.force, side)
            if forced in never_written(building.run):
                raise CutawayError(
                    "force is {force!r}, a control token or an id without a piece, which the model never writes; "
                    "force another",
                    force=self.force,
                )
            banned = [id for id in range(building.config.vocab_size) if id != forced]
        building.add_at(_LOGITS, side, self.at, lambda logits: without(logits, banned))


@checked
class SetTemperature(Change):
    """It counts in log-probabilities, sampling and beam search alike, and a temperature of sampling comes on top."""

    op = "temperature"
    title = say("temperature")
    about = say(
        "Every logit is divided by a number: above 1 the distribution is flatter, below 1 sharper; the most probable "
        "token stays the same."
    )
    example = Example({"value": 0.5})

    value: float = key(say("what logits are divided by"), gt=0)

    def check(self, building: Building) -> None:
        output_head(building.model)

    def edit(self, building: Building) -> None:
        building.add(_LOGITS, lambda logits: logits / self.value)
