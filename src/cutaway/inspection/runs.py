"""One text on its way through one model: what every question of this package is asked of."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, TypeVar, cast

import torch
from torch import Tensor

from cutaway.checkpoint.folder import Loaded
from cutaway.decode.complete import continue_text, prepare_prompt
from cutaway.decode.gaps import encode_with_gaps
from cutaway.decode.own_settings import own_settings
from cutaway.decode.route import Language
from cutaway.decode.search import GREEDY, MAX_BEAM, Limits
from cutaway.decode.text_model import mask_id_of, tokenizer_for
from cutaway.decode.translator import BEAM, Translator
from cutaway.errors import CutawayError, TooLong, brief, nearest
from cutaway.inspection.options import Option, bounded
from cutaway.inspection.sentences import sentence_ids
from cutaway.inspection.terms import FAMILIES, SOURCE, TOKENS
from cutaway.inspection.wiring import Side, embedding_of, of_source, output_stack, sides, stack_of
from cutaway.models.build import Model
from cutaway.models.decoder_only import DecoderOnly
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.nn.embedding import Embedding
from cutaway.nn.head import Head
from cutaway.nn.stack import Stack
from cutaway.page.blocks import Line, Page, Prose, Remark, page
from cutaway.page.drawn import Drawn
from cutaway.tap import Edit, Trace
from cutaway.text.tokens.named_token import find_token, piece_label
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.words import listed, say

T = TypeVar("T")


@dataclass(frozen=True)
class Tokens:
    """Ids and, for each, its piece as a reader sees it."""

    ids: list[int]
    pieces: list[str]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, repr=False)
class Run(Drawn):
    """A model and the ids it reads in one forward pass, batch 1 and without cache.

    `source` is what an encoder reads (None for a decoder-only model), `target` what a decoder reads, its start token
    first (None for an encoder-only model). `outcome` are the tokens that the decoder's positions stand before: the
    target moved by one, with the last token that was written. For an encoder-only model it is the source itself, and
    for a decoder-only model without output head the target itself: it gives vectors, and no next token is predicted.
    """

    loaded: Loaded
    source: Tokens | None
    target: Tokens | None
    outcome: Tokens

    _kept: dict[Callable[..., object], object] = field(default_factory=dict, repr=False, compare=False)

    def page(self) -> Page:
        read = self.source or self.target
        written = self.source is not None and self.target is not None
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        family = FAMILIES[self.model.config.family]
        more = say(
            "Ask it any question of cutaway.inspection: overview(run), lens(run), explain(run, name, index)"
        )
        return page(
            say("A text on its way through {name}", name=self.loaded.name),
            [
                Line(SOURCE if written else TOKENS, read.pieces if read else []),
                Line(say("writes"), self.outcome.pieces) if written else None,
                Prose(say("model"), say("{family}, {n:,} parameters", family=family, n=parameters)),
                Remark(more),
            ],
        )

    def kept(self, kind: Callable[["Run"], T]) -> T:
        """What `kind(run)` makes of this run, made once and kept as long as the run is; after a change of the model's
        parameters make another Run."""
        if kind not in self._kept:
            self._kept[kind] = kind(self)
        return cast(T, self._kept[kind])

    @property
    def model(self) -> Model:
        return self.loaded.model

    @property
    def inputs(self) -> dict[str, Tensor]:
        """The arguments of the model's forward: ids (1, T), or source (1, S) and target (1, T)."""
        device = next(self.model.parameters()).device

        def row(tokens: Tokens | None) -> Tensor:
            assert tokens is not None
            return torch.tensor([tokens.ids], device=device)

        if isinstance(self.model, EncoderDecoder):
            return {"source": row(self.source), "target": row(self.target)}
        return {"ids": row(self.target if isinstance(self.model, DecoderOnly) else self.source)}

    def forward(
        self, watch: Iterable[str] | Mapping[str, Edit] = (), edit: Mapping[str, Edit] | None = None
    ) -> tuple[Tensor, Trace]:
        """logits (T, V) of every position, without gradients, and the trace of what was watched.

        A model without output head scores no words: what is watched in it comes with logits (T, 0). Raises CutawayError
        where nothing is watched, so that nothing but its logits was asked for, and as `checked` does.
        """
        if watch and not isinstance(self.model.head, Head):
            states, trace = self.hidden(watch, edit)
            return states[:, :0], trace
        with torch.no_grad(), Trace(self.model, watch, edit) as trace:
            logits = self.model(**self.inputs)
        return self.checked(logits[0], edited=bool(edit)), trace

    def hidden(
        self, watch: Iterable[str] | Mapping[str, Edit] = (), edit: Mapping[str, Edit] | None = None
    ) -> tuple[Tensor, Trace]:
        """The last hidden states (T, D), without gradients, and the trace of what was watched: the residual stream at
        the end of the decoder, or of the only stack, after the final norm where there is one. The output head does not
        run, whose taps are then not there to be watched or edited. Raises CutawayError as `checked` does."""
        with torch.no_grad(), Trace(self.model, watch, edit) as trace:
            states = self.model.hidden(**self.inputs)
        return self.checked(states[0], edited=bool(edit)), trace

    def seen(self, watch: Mapping[str, Edit]) -> Trace:
        """The trace of what was watched, from no more of the model than that needs: the encoder alone where nothing
        else is watched, never the output head. Raises CutawayError as `checked` does."""
        if isinstance(self.model, EncoderDecoder) and all(map(of_source, watch)):
            with torch.no_grad(), Trace(self.model, watch) as trace:
                memory = self.model.encode(self.inputs["source"])
            self.checked(memory[0])
            return trace
        return self.hidden(watch)[1]

    def checked(self, result: Tensor, *, edited: bool = False) -> Tensor:
        """`result`, logits or states of this run. Raises CutawayError where one of them is no number or infinite, which
        no answer could be made of, and names the first tap where that is so; -inf is a logit like others."""
        # false for NaN
        if bool((result < torch.inf).all()):
            return result
        # edits serve one pass, so the taps cannot be looked through in another
        if edited:
            raise CutawayError(
                "{path}: under these edits the model's output is not a number: a value that they set, "
                "or a weight, is too large for its type or damaged",
                path=self.loaded.path,
            )
        with torch.no_grad(), Trace(self.model, {"*": lambda x: (x < torch.inf).all()}) as trace:
            self.model.hidden(**self.inputs)
        bad = [name for name, calls in trace.calls.items() if not all(map(bool, calls))]
        raise CutawayError(
            "{path}: the model's output is not a number, from {bad} on: its weights are damaged, "
            "or too large for their type; fetch the weights again, or load them as float32",
            path=self.loaded.path,
            bad=(bad or [say("its output head")])[0],
        )


# How a translation comes about that is looked into.
GivenTarget = Annotated[str | None, Option(say("A translation to look at in the place of the model's own."))]
ToLanguage = Annotated[
    Language | None,
    Option(
        say("Translate to zh, en or another language of the model; else it is told by the text's characters.")
    ),
]
Beam = Annotated[
    int | None,
    Option(
        say(
            "Width of the search for the translation; the model's own unless given, and 4 where it has none."
        ),
        at_least=1,
        at_most=MAX_BEAM,
    ),
]


@bounded
def run(
    loaded: Loaded,
    text: Annotated[str, Option(say("The text."), positional=True)],
    *,
    target: GivenTarget = None,
    to: ToLanguage = None,
    beam: Beam = None,
    max_new_tokens: Annotated[
        int | None,
        Option(say("Tokens that a decoder-only model writes after the text, one unless given."), at_least=0),
    ] = None,
) -> Run:
    """Make a text ready for a forward pass that can be looked into.

    An encoder-decoder reads `text` as its source and writes beside it `target`, or where that is None its own
    translation by a search of width `beam`. A decoder-only model reads the text and what it goes on to write greedily,
    `max_new_tokens` of it; None: one, so that all of the text is read. After a text of one token it writes at least
    one, so that there is a prediction.
    An encoder-only model reads the text between its control tokens, `[MASK]` where a word is hidden. A model without
    output head reads what `cutaway.embed` reads of the text, and is never cut.
    Raises CutawayError for a text that is empty, too long, or not of this model's kind.
    """
    if not isinstance(text, str):
        raise CutawayError(
            "text is {text}, expected one text: a run is one forward pass; several texts are several runs",
            text=brief(text),
        )
    if isinstance(loaded.model, EncoderDecoder):
        return _translated(loaded, text, target, to, beam)
    if target is not None or to is not None:
        raise CutawayError(
            "a {family} model has no target text: leave `target` and `to` out", family=loaded.config.family
        )
    if not isinstance(loaded.model.head, Head):
        if max_new_tokens:
            raise CutawayError(
                "{path}: this model has no output head, so it writes nothing: leave `max_new_tokens` out",
                path=loaded.path,
            )
        tokens = tokens_of(loaded, sentence_ids(loaded, text))
        if isinstance(loaded.model, DecoderOnly):
            return Run(loaded, None, tokens, tokens)
        return Run(loaded, tokens, None, tokens)
    if isinstance(loaded.model, DecoderOnly):
        ids = list(prepare_prompt(loaded, text).ids)
        wanted = 1 if max_new_tokens is None else max(max_new_tokens, int(len(ids) < 2))
        if wanted:
            greedy = own_settings(loaded).search(GREEDY, beam=1, temperature=0.0)
            ids += continue_text(loaded, [text], search=greedy, limits=Limits(wanted))[0].best.ids
        return Run(loaded, None, tokens_of(loaded, ids[:-1]), tokens_of(loaded, ids[1:]))
    return _with_gaps(loaded, text)


def _translated(loaded: Loaded, text: str, target: str | None, to: Language | None, beam: int | None) -> Run:
    translator = Translator(loaded)
    source = translator.prepare(text, to=to)
    if not source.ids:
        raise CutawayError("the text is empty: there is nothing to look into; give a sentence")
    if target is None:
        search = translator.own.search(BEAM, beam=beam, temperature=0.0)
        written = translator.write([source], search=search)[0][0].ids
    else:
        written = [*translator.tokenizer.target.encode(target).ids, *translator.end_ids[:1]]
    whole = [*translator.start(source), *written]
    read, outcome = tokens_of(loaded, whole[:-1]), tokens_of(loaded, whole[1:])
    return Run(loaded, Tokens(source.ids, source.pieces), read, outcome)


def _with_gaps(loaded: Loaded, text: str) -> Run:
    tokenizer = tokenizer_for(loaded, "encoder-only")
    ids, pieces, _ = encode_with_gaps(tokenizer, text, mask_id_of(loaded))
    if len(ids) == sum(map(len, tokenizer.around)):
        raise CutawayError("the text is empty: there is nothing to look into; give a sentence")
    if len(ids) > loaded.config.max_len:
        count, most = len(ids), loaded.config.max_len
        raise TooLong(
            "the text has {count} tokens, but this model reads at most {max_len}; give a shorter text",
            count=count,
            max_len=most,
        )
    tokens = Tokens(ids, pieces)
    return Run(loaded, tokens, None, tokens)


def tokens_of(loaded: Loaded, ids: list[int]) -> Tokens:
    """Ids with their pieces. CutawayError for a model without a tokenizer."""
    tokenizer = loaded.require_tokenizer()
    return Tokens(ids, [tokenizer.readable(id) for id in ids])


# The stacks of a run, with the tokens that they read.


@dataclass(frozen=True)
class ReadingStack:
    """A stack, its name in the model (`encoder` or `decoder`), the embedding before it with its own name, and the
    tokens it reads."""

    name: Side
    stack: Stack
    embedding_name: str
    embedding: Embedding
    tokens: Tokens


def stacks(run: Run) -> dict[Side, ReadingStack]:
    """Every stack by its name, in data-flow order."""
    found: dict[Side, ReadingStack] = {}
    for side, tokens in (("encoder", run.source), ("decoder", run.target)):
        if side in sides(run.model):
            assert tokens is not None
            stack, (name, embedding) = stack_of(run.model, side), embedding_of(run.model, side)
            found[side] = ReadingStack(side, stack, name, embedding, tokens)
    return found


def stack_named(run: Run, name: str | None) -> ReadingStack:
    """The stack called `name`; None: the output stack. CutawayError for one that this model lacks."""
    found: dict[str, ReadingStack] = {**stacks(run)}
    wanted = output_stack(run.model) if name is None else name
    if wanted in found:
        return found[wanted]
    raise CutawayError(
        "this {family} model has no stack {name!r}{hint}, expected {known}",
        family=run.model.config.family,
        name=name,
        hint=nearest(wanted, found),
        known=listed(found, say(" or ")),
    )


# What a reader points at: a token of the vocabulary, a position in the text. Checked before anything is run.


def token_id(run: Run, token: int | str, side: Side = "decoder") -> int:
    """The id of a token given by its id, as a word, or by its piece (see `text`'s `find_token`).

    In an encoder-decoder a text is cut as those of `side` are: a pair may have two tokenizers with the same ids.
    Raises CutawayError for an id that the model lacks, and for a text of several tokens, naming them.
    """
    tokenizers = [tokenizer_of(run, side)] if isinstance(token, str) else ()
    return find_token(token, run.model.config.vocab_size, tokenizers)


def tokenizer_of(run: Run, side: Side) -> Tokenizer:
    """What cuts the texts of a side into tokens. CutawayError for a model without a tokenizer."""
    tokenizer = run.loaded.require_tokenizer()
    return tokenizer if side == "encoder" else tokenizer.target


def piece_of(run: Run, id: int) -> str:
    """The piece of an id as a reader sees it; `⟨32001⟩` for a row of the output matrix that no piece belongs to."""
    return piece_label(id, run.loaded.tokenizer)


def position_in(tokens: Tokens, position: int) -> int:
    """A position in the text from 0, where -1 means the last. CutawayError when there is none such."""
    if not -len(tokens) <= position < len(tokens):
        raise CutawayError(
            "position {position} is not in the text, which has {n} tokens: expected 0 to {last}, or -1 for the last",
            position=position,
            n=len(tokens),
            last=len(tokens) - 1,
        )
    return position % len(tokens)
