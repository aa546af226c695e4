"""Named taps: see, or replace, any intermediate value of a forward pass.

    with Trace(model, watch=["*.pattern"]) as trace:
        model(tokens)
    trace["decoder.layers.0.self_attn.pattern"]        # (B, H, T, S)

A module names a value where the value is born: `q = tap(self, "q", q)`. Without a trace `tap` returns its
argument, and `torch.compile` removes it. A trace is seen only by the thread that entered it, and only while
entered, so it must not be held across a `yield` or an `await`.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache

import torch
from torch import Tensor, nn

from cutaway.errors import CutawayError
from cutaway.words import Phrase, listed, names_of, say

Edit = Callable[[Tensor], Tensor]


class TapError(CutawayError, KeyError):
    """A name or pattern of taps that leads to none, or to too many."""

    # That of KeyError would show the message quoted.
    __str__ = CutawayError.__str__


# The vocabulary: name -> (dimensions, meaning). B batch, T queries, S keys, D width, H heads, K key/value
# heads, E head width, F feed-forward width, X experts, A chosen experts, V vocabulary; inside an expert B is 1
# and T counts the tokens it was given. Tests demand that this table and reality agree.
TAPS: dict[str, tuple[str, Phrase]] = {
    "embed": ("B T D", say("token vectors, scaled, before positions are added")),
    "position": ("B T D", say("position vectors as they are added to the token vectors")),
    "resid_pre": ("B T D", say("residual stream entering a block")),
    "q": ("B H T E", say("queries")),
    "k": ("B K S E", say("keys of this call's tokens")),
    "v": ("B K S E", say("values of this call's tokens")),
    "q_rot": ("B H T E", say("queries after rotation by position")),
    "k_rot": ("B K S E", say("keys after rotation by position")),
    "scores": ("B H T S", say("q·k, every query with every key")),
    "scaled": ("B H T S", say("scores times the attention scale, 1/√E as a rule")),
    "masked": ("B H T S", say("scaled scores (softly capped in Gemma 2) plus mask and position bias")),
    "pattern": ("B H T S", say("attention weights: softmax of the masked scores over the keys")),
    "z": ("B H T E", say("each head's weighted sum of values")),
    "out": ("B T D", say("what a sublayer (attention or feed-forward) writes")),
    "resid_mid": ("B T D", say("residual stream after self-attention")),
    "resid_cross": ("B T D", say("residual stream after cross-attention")),
    "pre": ("B T F", say("feed-forward before its activation function")),
    "hidden": ("B T F", say("feed-forward neurons after activation (and gate)")),
    "router": ("B T X", say("the router's score of every expert")),
    "expert_index": ("B T A", say("numbers of the chosen experts, best first")),
    "expert_weight": ("B T A", say("how much each chosen expert counts")),
    "expert_out": ("B T A D", say("what each chosen expert makes of the token, before it is weighted")),
    "resid_post": ("B T D", say("residual stream leaving a block")),
    "normed": (
        "B T D",
        say("what a sublayer reads, normalised; and the stack's result, after its final norm if any"),
    ),
    "logits": ("B T V", say("logits of all tokens of the vocabulary")),
}


# not a ContextVar: torch.compile cannot trace ContextVar.get
class _Current(threading.local):
    trace: "Trace | None" = None


_current = _Current()


def tap(module: nn.Module, name: str, x: Tensor) -> Tensor:
    """Show `x` to the current trace as `<path of module>.<name>`; return what to use in its place."""
    trace = _current.trace
    return x if trace is None else trace.visit(module, name, x)


def tapped(module: nn.Module, *names: str) -> bool:
    """Whether the current trace asks for any of `names`, so that they must really be computed."""
    trace = _current.trace
    return trace is not None and any(trace.asks(module, name) for name in names)


class Trace(Mapping[str, Tensor]):
    """Watch and edit the taps of `model` whose full names match glob patterns.

    Afterwards it is a mapping from the full names that were recorded, in the order of their birth, to their values; of
    a tap that was met in several calls `calls` has all.

    `watch` lists patterns, or maps each to a reducer that is applied before the value is kept (one head, the
    last position, `.half()`), so that memory follows what is asked for: a part is kept without its whole. `edit`
    maps patterns to functions that return the value to use instead. Edits come first; a watched value is what the
    model went on with.

    Raises LookupError on leaving when a pattern matched no tap, naming the nearest taps seen.
    """

    def __init__(
        self,
        model: nn.Module,
        watch: Iterable[str] | Mapping[str, Edit] = (),
        edit: Mapping[str, Edit] | None = None,
    ):
        self.calls: dict[str, list[Tensor]] = {}  # full name -> one tensor per call, in order
        self._paths = {module: f"{path}." if path else "" for path, module in model.named_modules()}
        self._watch: dict[str, Edit | None] = (
            dict(watch) if isinstance(watch, Mapping) else dict.fromkeys(watch)
        )
        self._edit = dict(edit or {})
        self._unmatched = set(self._watch) | set(self._edit)
        self._entered = False
        self._outer: Trace | None = None
        self._matches: dict[str, list[str]] = {}  # full name -> patterns; filled as taps are met
        _keep_freed_memory()

    def __enter__(self) -> "Trace":
        if self._entered:
            raise RuntimeError("this Trace is entered already; make another one")
        self._entered, self._outer, self._thread = True, _current.trace, threading.get_ident()
        _current.trace = self
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if threading.get_ident() != self._thread:
            raise RuntimeError(
                "a Trace was left by another thread than entered it; enter it once per model call"
            )
        _current.trace, self._outer, self._entered = self._outer, None, False
        if error is None and self._unmatched:
            pattern = min(self._unmatched)
            near = get_close_matches(pattern, self._matches, n=3, cutoff=0.4)
            raise TapError(
                "no tap matched {pattern!r}; nearest: {near}",
                pattern=pattern,
                near=names_of(near) if near else "–",
            )

    # One recording is not another one, whatever they hold.
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __contains__(self, name: object) -> bool:
        return name in self.calls

    def __iter__(self) -> Iterator[str]:
        return iter(self.calls)

    def __len__(self) -> int:
        return len(self.calls)

    def __getitem__(self, name: str) -> Tensor:
        """The value of the only call of tap `name`; KeyError when it was not recorded exactly once."""
        if not isinstance(name, str):
            raise TapError(
                "{name!r} is no tap's name, expected a text such as {example!r}: list(trace) has those recorded, "
                "trace[name] the value of one",
                name=name,
                example=next(iter(self.calls), "decoder.layers.0.self_attn.pattern"),
            )
        values = self.calls.get(name, [])
        if len(values) != 1:
            near = get_close_matches(name, self.calls, n=3, cutoff=0.4)
            raise TapError(
                "tap {name!r} was recorded {n} times, expected once; recorded: {near}",
                name=name,
                n=len(values),
                near=names_of(near) if near else "–",
            )
        return values[0]

    def asks(self, module: nn.Module, name: str) -> bool:
        """Whether a pattern names this tap."""
        full = self._full(module, name)
        here = full is not None and bool(self._patterns(full))
        return here or (self._outer is not None and self._outer.asks(module, name))

    def visit(self, module: nn.Module, name: str, x: Tensor) -> Tensor:
        """Apply the edits that match, record if watched, return the value to go on with. A trace entered earlier
        and still open comes first, so that what it changes is what this one sees."""
        if self._outer is not None:
            x = self._outer.visit(module, name, x)
        full = self._full(module, name)
        patterns = [] if full is None else self._patterns(full)
        if full is None or not patterns:
            return x
        self._unmatched.difference_update(patterns)
        for pattern in patterns:
            if pattern in self._edit:
                x = self._edit[pattern](x)
        watched = [pattern for pattern in patterns if pattern in self._watch]
        if watched:
            reduce = self._watch[watched[0]]
            if any(self._watch[pattern] is not reduce for pattern in watched):
                raise TapError(
                    "tap {full} matches {watched}, which keep different parts of it",
                    full=full,
                    watched=listed(watched, say(" and ")),
                )
            self.calls.setdefault(full, []).append(x if reduce is None else _reduced(x, reduce))
        return x

    def _full(self, module: nn.Module, name: str) -> str | None:
        path = self._paths.get(module)  # None: a module of another model, which this trace does not watch
        return None if path is None else path + name

    def _patterns(self, full: str) -> list[str]:
        found = self._matches.get(full)
        if found is None:
            found = [p for p in dict.fromkeys((*self._edit, *self._watch)) if fnmatchcase(full, p)]
            self._matches[full] = found
        return found


def _reduced(x: Tensor, reduce: Edit) -> Tensor:
    """`reduce(x)`, in memory of its own where it is a part of `x`: a view would keep the whole alive."""
    kept = reduce(x)
    partial = kept is not x and kept.untyped_storage().nbytes() > kept.nbytes
    return kept.clone() if partial else kept


@cache
def _keep_freed_memory() -> None:
    """Once a process, let it keep up to 64 MB that it freed, for its next trace.

    glibc gives freed memory back to the system beyond twice the largest block freed so far (mallopt(3), dynamic
    threshold), and fetching it anew, page by page, can cost half as much as the forward pass that is traced. One
    block of the largest size that counts, freed unused, moves the threshold for good; elsewhere it does nothing.
    """
    torch.empty(32 * 2**20 - 2**13, dtype=torch.uint8, device="cpu")
