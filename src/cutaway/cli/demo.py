"""`cutaway demo`: the main job on the bundled model, and what to try next."""

from typing import Annotated

from cutaway.cli.help import described, option
from cutaway.cli.terminal import shows_unicode, write, write_page
from cutaway.cli.translate import open_translator
from cutaway.text.display import pad, width
from cutaway.words import Locale, reader_locale, say
from cutaway.zoo import MASKED, POET, TRANSLATOR, bundled

TEXTS = (
    "好久不见",
    "我们明天去北京。",
    "你想喝点什么？",
    "I love you.",
    "Where is the station?",
    "He is reading a book.",
)
DRAWN = "我的猫在桌子下面睡觉。"
NEXT = (
    ('cutaway translate "我不知道他在哪里。" --show alignment', TRANSLATOR),
    ('cutaway translate "I have never been there." --n-best 3', TRANSLATOR),
    ('cutaway translate "你会说英语吗？" --show tokens --show scores', TRANSLATOR),
    ('cutaway inspect "我的猫在桌子下面睡觉。"', TRANSLATOR),
    ('cutaway inspect word "我的猫在桌子下面睡觉。" --at 3', TRANSLATOR),
    ("cutaway inspect anatomy", TRANSLATOR),
    ('cutaway tokenize "我爱机器学习"', TRANSLATOR),
    ('cutaway generate "床前明月光，"', POET),
    ('cutaway fill "The sun [MASK] in the east."', MASKED),
    ("cutaway models", None),
)


@described("Translate a few sentences, draw how one came about, and say what to try next.")
def demo(
    lang: Annotated[Locale | None, option("Language of the explanations; not given: the locale's.")] = None,
) -> None:
    lang = lang or reader_locale()

    from cutaway.decode.search import Search
    from cutaway.inspection.questions.align import alignment_map

    translator = open_translator(TRANSLATOR)
    size = sum(parameter.numel() for parameter in translator.model.parameters())
    opening = say(
        "cutaway translates with a model of its own: {parameters:,} parameters, offline.", parameters=size
    )
    write(opening.said(lang) + "\n")
    arrow = "→" if shows_unicode() else "->"
    wide = max(map(width, TEXTS))
    for found in translator.translate(TEXTS):
        write(f"  {pad(found.source.text, wide)}  {arrow}  {found.best.text}")
    write()
    [drawn] = translator.translate([DRAWN], search=Search(beam=4, attention="mean"))
    source, best = drawn.source, drawn.best
    assert best.alignment is not None
    drawing = say(
        "How “{source}” became “{text}”:\nwhere the model looked when it chose each token.",
        source=source.text,
        text=best.text,
    )
    write(drawing.said(lang) + "\n")
    write_page(alignment_map(best.alignment, best.pieces, source.pieces), lang)
    reading = say(
        "Read a row: the darker a cell, the more weight that token of the source had\n"
        "(cross-attention, mean over layers and heads). </s> ends a sentence, >>eng<< asks\nfor English."
    )
    write(reading.said(lang) + "\n")
    write(say("Try next").said(lang))
    there = {None, *(folder.name for folder in bundled())}
    for command, model in NEXT:
        if model in there:
            write(f"  {command}")
