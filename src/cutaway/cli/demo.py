"""`cutaway demo`: the main job on the bundled model, and what to try next."""

from typing import Annotated

import typer

from cutaway.cli.help import described
from cutaway.cli.terminal import shows_unicode, write, write_map
from cutaway.cli.translate import open_translator
from cutaway.text.display import pad, width
from cutaway.words import Locale, reader_locale, say, told
from cutaway.zoo import MASKED, POET, TRANSLATOR, bundled

TEXTS = (
    "好久不见",
    "今天天气怎么样？",
    "你想喝点什么？",
    "I love you.",
    "Where is the station?",
    "He is reading a book.",
)
DRAWN = "他昨天买了一本新书。"
WORDS = {
    "en": {
        "opening": "cutaway translates with a Transformer that it trained itself: {parameters:,} parameters, offline.",
        "drawing": "How “{source}” became “{text}”:\nwhere the model looked when it chose each piece.",
        "reading": "Read a row: the darker a cell, the more that piece of the source weighed\n"
        "(cross-attention, mean over layers and heads). </s> ends a sentence, >>eng<< asks\nfor English.",
        "next": "Try next",
    },
    "zh": {
        "opening": "cutaway 用自己训练的 Transformer 翻译：{parameters:,} 个参数，全程离线。",
        "drawing": "“{source}” 怎样变成 “{text}”：\n模型选出每个词块时看向了哪里。",
        "reading": "横着读：格子越深，原文中那个词块的份量越大（交叉注意力，各层各头的平均）。\n"
        "</s> 表示句子结束，>>eng<< 要求译成英文。",
        "next": "接下来试试",
    },
}
NEXT = (
    ('cutaway translate "我不知道他在哪里。" --show alignment', TRANSLATOR),
    ('cutaway translate "I have never been there." --nbest 3', TRANSLATOR),
    ('cutaway translate "你会说英语吗？" --show tokens --show scores', TRANSLATOR),
    ('cutaway inspect translate-zh-en "他昨天买了一本新书。"', TRANSLATOR),
    ('cutaway tokenize "我爱机器学习"', TRANSLATOR),
    ('cutaway generate "床前明月光，"', POET),
    ('cutaway fill "The sun [MASK] in the east."', MASKED),
    ("cutaway models", None),
)


@described(say("Translate a few sentences, draw how one came about, and say what to try next."))
def demo(
    lang: Annotated[
        Locale | None,
        typer.Option(help=told("Language of the explanations; not given: the locale's.")),
    ] = None,
) -> None:
    lang = lang or reader_locale()
    words = WORDS[lang]

    from cutaway.decode.search import Search
    from cutaway.inspection.questions.align import alignment_map

    translator = open_translator(TRANSLATOR)
    write(words["opening"].format(parameters=sum(p.numel() for p in translator.model.parameters())))
    write()
    arrow = "→" if shows_unicode() else "->"
    wide = max(map(width, TEXTS))
    for found in translator.translate(TEXTS):
        write(f"  {pad(found.source.text, wide)}  {arrow}  {found.best.text}")
    write()
    [drawn] = translator.translate([DRAWN], search=Search(beam=4, attention="mean"))
    source, best = drawn.source, drawn.best
    assert best.alignment is not None
    write(words["drawing"].format(source=source.text, text=best.text))
    write()
    write_map(alignment_map(best.alignment, best.pieces, source.pieces), lang)
    write(words["reading"])
    write()
    write(words["next"])
    there = {folder.name for folder in bundled()}
    for command, model in NEXT:
        if model is None or model in there:
            write(f"  {command}")
