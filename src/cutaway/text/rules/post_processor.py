"""The control tokens that a tokenizer.json puts around a text, read off its post-processor."""

from collections.abc import Mapping

from cutaway.errors import CutawayError

Around = tuple[list[int], list[int]]


def around(post_processor: object, where: str) -> Around:
    """The ids before and after a single text: `[CLS]` and `[SEP]` of BERT, `<s>` alone of Llama.

    `post_processor` is the value of that key in tokenizer.json; None, and what only trims offsets, adds nothing.
    Raises CutawayError naming `where` for a kind that the `tokenizers` library does not have, or a malformed one.
    """
    if post_processor is None:
        return [], []
    if not isinstance(post_processor, Mapping):
        raise CutawayError(
            "{where}: post_processor is {post_processor!r}, expected an object or null",
            where=where,
            post_processor=str(post_processor)[:60],
        )
    kind = post_processor.get("type")
    try:
        if kind == "TemplateProcessing":
            return _template(post_processor)
        if kind in ("BertProcessing", "RobertaProcessing"):
            return [_whole(post_processor["cls"][1])], [_whole(post_processor["sep"][1])]
        if kind == "Sequence":
            before: list[int] = []
            after: list[int] = []
            for inner in post_processor["processors"]:  # each works on what the one before it made
                left, right = around(inner, where)
                before, after = left + before, after + right
            return before, after
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise CutawayError(
            "{where}: malformed post_processor of type {kind!r}: {error!r}",
            where=where,
            kind=kind,
            error=error,
        ) from error
    except RecursionError as error:
        raise CutawayError("{where}: post_processor is nested too deeply", where=where) from error
    if kind == "ByteLevel":
        return [], []
    raise CutawayError(
        "{where}: post_processor has the type {kind!r}, expected TemplateProcessing, "
        "BertProcessing, RobertaProcessing, ByteLevel or Sequence",
        where=where,
        kind=kind,
    )


def _template(post_processor: Mapping) -> Around:
    """The ids around `Sequence A` in the template of a single text."""
    sides: Around = [], []
    seen = 0
    for part in post_processor["single"]:
        if "Sequence" in part:
            seen += 1
            continue
        special = post_processor["special_tokens"][part["SpecialToken"]["id"]]
        sides[min(seen, 1)].extend(map(_whole, special["ids"]))
    if seen != 1:
        raise TypeError(f"the template of a single text holds it {seen} times")
    return sides


def _whole(id: object) -> int:
    if not isinstance(id, int):
        raise TypeError(f"{id!r} is no id")
    return id
