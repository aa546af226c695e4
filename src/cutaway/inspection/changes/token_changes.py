"""Changes of what enters the model and of what it may write: embeddings, output tokens, temperature."""

# Shapes: B batch, T tokens, D width, V vocabulary.

from cutaway.config import checked, key
from cutaway.errors import CutawayError
from cutaway.inspection.changes.change import SIDE, Building, Change, Example, Token, without
from cutaway.inspection.outcome import never_written
from cutaway.inspection.wiring import All, Side, output_head, output_stack
from cutaway.words import say

_LOGITS = "head.logits"


@checked
class SetEmbedding(Change):
    """Scaled as the model scales it, and before positions are added."""

    op = "embedding"
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
