"""The stacks of a run with the tokens they read, and the one whose residual stream becomes words."""

from dataclasses import dataclass

from cutaway.errors import CutawayError, nearest
from cutaway.inspection.runs.run import Run, Tokens
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.block import Block
from cutaway.nn.embedding import Embedding
from cutaway.nn.head import Head
from cutaway.nn.stack import Stack


@dataclass(frozen=True)
class ReadingStack:
    """A stack, its name in the model (`encoder` or `decoder`), the embedding before it with its own name, and the
    tokens it reads."""

    name: str
    stack: Stack
    embedding_name: str
    embedding: Embedding
    tokens: Tokens

    def block(self, layer: int) -> Block:
        block = self.stack.layers[layer]
        assert isinstance(block, Block)
        return block


def stacks(run: Run) -> dict[str, ReadingStack]:
    """Every stack by its name, in the order of the data's way."""
    model = run.model
    if isinstance(model, EncoderDecoder):
        assert run.source is not None and run.target is not None
        return {
            "encoder": ReadingStack("encoder", model.encoder, "source_embed", model.source_embed, run.source),
            "decoder": ReadingStack("decoder", model.decoder, "target_embed", model.target_embed, run.target),
        }
    if isinstance(model, DecoderOnly):
        assert run.target is not None
        return {"decoder": ReadingStack("decoder", model.decoder, "embed", model.embed, run.target)}
    assert run.source is not None
    return {"encoder": ReadingStack("encoder", model.encoder, "embed", model.embed, run.source)}


def stack_named(run: Run, name: str | None) -> ReadingStack:
    """The stack called `name`; None: the one whose stream becomes words. CutawayError for one that is not there."""
    found = stacks(run)
    if name is None:
        return list(found.values())[-1]
    if name not in found:
        raise CutawayError(
            "this {family} model has no stack {name!r}{hint}, expected {found}",
            family=run.model.config.family,
            name=name,
            hint=nearest(name, found),
            found=" or ".join(found),
        )
    return found[name]


def output_head(run: Run) -> Head:
    """What turns the residual stream into logits. CutawayError for a model that has none."""
    if not isinstance(run.model.head, Head):
        raise CutawayError(
            "{path}: this model has no output head: it gives vectors and not words, so nothing in "
            "it can be read as words",
            path=run.loaded.path,
        )
    return run.model.head
