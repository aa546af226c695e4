"""Where in a run's model a change acts, and why it cannot where it cannot."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cutaway.errors import CutawayError, nearest
from cutaway.inspection.changes.schema import Token
from cutaway.inspection.runs import Run, token_id
from cutaway.inspection.wiring import Side, sides, stack_name, stack_of
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.attention import Attention
from cutaway.nn.block import Block
from cutaway.nn.embedding import Embedding
from cutaway.nn.stack import Stack

STACKS: tuple[Side, ...] = ("encoder", "decoder")


@dataclass(frozen=True)
class Place:
    """One block of one side, with the names of its taps' owners."""

    side: Side
    layer: int
    stack: Stack
    block: Block

    @property
    def path(self) -> str:
        return f"{stack_name(self.side)}.layers.{self.layer}"

    @property
    def attention_path(self) -> str:
        return f"{self.path}.{'cross' if self.side == 'cross' else 'self'}_attn"

    @property
    def attention(self) -> Attention:
        return self.block.cross_attn if self.side == "cross" else self.block.self_attn


class Places:
    """What changes may name in the model of a run. `where` in each method is what messages call the change."""

    def __init__(self, run: Run):
        self.run, self.model = run, run.model
        self.stacks = {side: stack_of(run.model, side) for side in sides(run.model)}

    def sides(
        self, side: str | None, allowed: Sequence[Side], where: str, default: str | None = None
    ) -> list[Side]:
        """The sides that `side` names, "*" all of `allowed` that this model has."""
        there: list[Side] = [each for each in allowed if each in self.stacks]
        if not there:
            raise CutawayError(
                "{where}: this change is for side {allowed}, but this {family} model has only {stacks}",
                where=where,
                allowed=" or ".join(allowed),
                family=self.model.config.family,
                stacks=", ".join(self.stacks),
            )
        named = side or default or (there[0] if len(there) == 1 and len(self.stacks) == 1 else None)
        if named is None:
            raise CutawayError(
                "{where}: key 'side' is missing; this model has {there}", where=where, there=", ".join(there)
            )
        if named == "*":
            return there
        for each in there:
            if each == named:
                return [each]
        raise CutawayError(
            "{where}: side is {named!r}{hint}, expected one of {there} for this change to this "
            "{family} model",
            where=where,
            named=named,
            hint=nearest(named, there),
            there=", ".join(there),
            family=self.model.config.family,
        )

    def places(
        self,
        side: str | None,
        layer: int | str,
        allowed: Sequence[Side],
        where: str,
        default: str | None = None,
    ) -> Iterator[Place]:
        """The blocks that `side` and `layer` name."""
        for each in self.sides(side, allowed, where, default):
            stack = self.stacks[each]
            for number in self._numbers(layer, len(stack.layers), where, "layer", f"the {stack_name(each)}"):
                block = stack.layers[number]
                assert isinstance(block, Block)
                yield Place(each, number, stack, block)

    def heads(self, head: int | str, where: str) -> slice:
        number = self.model.config.n_heads
        if head == "*":
            return slice(None)
        (only,) = self._numbers(head, number, where, "head", "each attention")
        return slice(only, only + 1)

    def embedding(self, side: Side) -> tuple[str, Embedding]:
        """The embedding that feeds a side's stack, and its path."""
        if isinstance(self.model, EncoderDecoder):
            if side == "encoder":
                return "source_embed", self.model.source_embed
            return "target_embed", self.model.target_embed
        return "embed", self.model.embed

    def length(self, side: Side) -> int:
        """Tokens of the run on that side."""
        tokens = self.run.source if side == "encoder" else self.run.target
        assert tokens is not None
        return len(tokens)

    def check_position(self, position: int | str | None, side: Side, where: str, name: str) -> None:
        """A place among the tokens: of the source, or up to the model's limit, since decoding writes on."""
        grows = side != "encoder"
        most = self.model.config.max_len if grows else self.length(side)
        if isinstance(position, int) and not 0 <= position < most:
            of = "this model's positions" if grows else "the text's tokens"
            raise CutawayError(
                "{where}: {name} is {position}, expected 0 to {most} ({of})",
                where=where,
                name=name,
                position=position,
                most=most - 1,
                of=of,
            )

    def id(self, token: Token, side: Side, where: str, name: str) -> int:
        """`token_id`, with `name`, what the token is in the change, in front of its messages."""
        try:
            return token_id(self.run, token, side)
        except CutawayError as error:
            raise CutawayError("{where}: {name}: {error}", where=where, name=name, error=error) from error

    @staticmethod
    def _numbers(given: int | str, count: int, where: str, name: str, of: str) -> list[int]:
        if given == "*":
            return list(range(count))
        if not isinstance(given, int) or not 0 <= given < count:
            raise CutawayError(
                "{where}: {name} is {given!r}, expected 0 to {count} or '*' ({of} has {count2})",
                where=where,
                name=name,
                given=given,
                count=count - 1,
                of=of,
                count2=count,
            )
        return [given]
