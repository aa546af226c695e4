"""What a post-processor puts around a text: as the `tokenizers` library does it, for every kind."""

import pytest
import tokenizers
from tokenizers import models, processors

from cutaway.errors import CutawayError
from cutaway.text.tokens.tokenizer_json import around, read

IDS = {"a": 0, "<s>": 1, "</s>": 2, "[CLS]": 3, "[SEP]": 4, "<x>": 5}
BERT = processors.BertProcessing(("[SEP]", 4), ("[CLS]", 3))
TEMPLATE = processors.TemplateProcessing("<s> <x> $A </s>", None, [("<s>", 1), ("<x>", 5), ("</s>", 2)])
KINDS = {
    "none": None,
    "bert": BERT,
    "roberta": processors.RobertaProcessing(("</s>", 2), ("<s>", 1)),
    "template": TEMPLATE,
    "start alone": processors.TemplateProcessing("<s> $A", None, [("<s>", 1)]),
    "end alone, twice": processors.TemplateProcessing("$A </s> </s>", None, [("</s>", 2)]),
    "bytes": processors.ByteLevel(),
    "bytes and template": processors.Sequence([processors.ByteLevel(), TEMPLATE]),
    "one inside the other": processors.Sequence([BERT, TEMPLATE]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_as_the_library_does_it(kind: str):
    library = tokenizers.Tokenizer(models.WordLevel(IDS, "a"))
    if (processor := KINDS[kind]) is not None:
        library.post_processor = processor
    before, after = around(read(library.to_str(), "here").get("post_processor"), "here")
    assert [*before, 0, *after] == library.encode("a").ids


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("BERT", "here: post_processor is 'BERT', expected an object or null"),
        ({}, "here: post_processor has the type None, expected TemplateProcessing"),
        ({"type": "Custom"}, "here: post_processor has the type 'Custom'"),
        (
            {"type": "BertProcessing", "sep": ["[SEP]", 4]},
            "malformed post_processor of type 'BertProcessing'",
        ),
        ({"type": "BertProcessing", "sep": ["[SEP]", "4"], "cls": ["[CLS]", 3]}, "TypeError('4')"),
        ({"type": "TemplateProcessing", "single": [], "special_tokens": {}}, "malformed post_processor of"),
        ({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}]}, "malformed"),
        ({"type": "TemplateProcessing", "single": 3}, "malformed"),
        ({"type": "Sequence", "processors": [{"type": "Custom"}]}, "has the type 'Custom'"),
        ({"type": "Sequence"}, "malformed post_processor of type 'Sequence'"),
    ],
)
def test_what_is_malformed_is_named(given: object, message: str):
    with pytest.raises(CutawayError, match=r"^here: ") as caught:
        around(given, "here")
    assert message in str(caught.value)
