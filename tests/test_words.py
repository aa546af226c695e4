"""Every word for a reader is in the catalogue, in both languages, and says the same thing by the same word."""

import ast
import re
from collections.abc import Iterator
from string import Formatter

import pytest
from babel.messages.catalog import Message
from docs import catalogue

from cutaway.errors import CutawayError
from cutaway.glossary import GLOSSARY, entry
from cutaway.words import said

ENTRIES = [each for each in catalogue.read() if each.id]
MODULES = sorted(catalogue.SOURCE.rglob("*.py"))
SPEAKING = {
    "say": 0,
    "told": 0,
    "CutawayError": 0,
    "TooLong": 0,
    "TooLarge": 0,
    "say_in": 1,
}  # where each has its template
HAN = re.compile(r"[\u3000-\u303f\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")

# What Chinese text must not say, and what it says instead.
FORBIDDEN = {
    "词块": "词元", "令牌": "词元", "自带": "内置", "这一遍": "本次运行", "运算数": "操作数",
    "分数": "得分", "注意头": "头", "探针": "探点", "菜谱": "配方", "份额": "贡献", "纳特": "奈特",
}  # fmt: skip

# What is typed or read by a machine, in which a term of the glossary is a name and no word of the sentence.
NAMES = re.compile(
    r"""\{[^{}]*\}                                  # a placeholder
    | `[^`]*` | "[^"]*" | (?<!\w)'[^']*'         # code and examples
    | （[\w-]+） | \[MASK\]                      # the name that follows its translation
    | \w+(?:/\w+)+                             # a path
    | --\w+(?:\ [a-z]+)? | \w+\((?:[^()]|\(\w*\))*\)         # an option and its value, a call
    | [\w.]*\w[._=]\w[\w.]*                      # a file, a key, an assignment
    | [\w-]+(?=、|\ 或) | (?<=、)[\w-]+ | (?<=或\ )[\w-]+     # names listed in Chinese
    | \w+(?=\ (?:is|为)\ \{|\ is\ empty|\ 为空)     # an argument that is refused
    """,
    re.VERBOSE,
)

# Terms that are also everyday English, so that Chinese may well say them by another word or by none.
EVERYDAY = {
    "run", "change", "block", "value", "position", "scale", "key", "rank", "norm", "activation", "trace", "greedy",
    "projection", "sweep", "score", "hypothesis", "vocabulary", "loss",
}  # fmt: skip

# The beginning of a phrase in which a name stands bare: why it must.
EXEMPT = {
    "A translation to look at in": "names of questions",
    "rank needs a matrix": "the name of a question",
    "Learn a vocabulary (tokenizer train)": "a command",
    "{path} has no output head, so there is no unembedding": "the value of an argument",
    "Token by token: the first ": "an attribute",
    'this model has no output head (head = "none")': "a key of config.json",
}


def exempt(each: Message) -> bool:
    return str(each.id).startswith(tuple(EXEMPT))


def name(each: Message) -> str:
    return f"{each.context or ''}|{each.id}"


def fields(template: str) -> set[str]:
    return {field for _, field, _, _ in Formatter().parse(template) if field is not None}


def test_the_catalogue_is_what_the_code_says():
    """No phrase is missing and none is left over: the file is what `make words` would write."""
    there = {(each.context or "", str(each.id)) for each in ENTRIES}
    asked = {(context, template) for _, context, template in catalogue.phrases()}
    assert not asked - there, "phrases without an entry; run `make words`, then say them in Chinese"
    assert not there - asked, "entries that no code says; run `make words`"
    assert catalogue.written(catalogue.updated(catalogue.read())) == catalogue.CHINESE.read_text(
        encoding="utf-8"
    )


def test_every_phrase_has_chinese():
    assert not [name(each) for each in ENTRIES if not each.string]


def test_both_languages_have_the_same_placeholders():
    assert not {
        name(each): each.string
        for each in ENTRIES
        if each.string and fields(str(each.id)) != fields(str(each.string))
    }


def test_chinese_uses_no_second_word_for_a_term():
    wrong = {
        name(each): f"{each.string}: say {right}"
        for each in ENTRIES
        for word, right in FORBIDDEN.items()
        if word in str(each.string)
    }
    assert not wrong


def test_chinese_keeps_to_the_glossary():
    """Where the English has a term, the Chinese has its one word, or keeps it as the name of something."""
    wrong = [
        f"{name(each)} => {each.string}: {term} is {chinese}"
        for each in ENTRIES
        if each.string and not exempt(each)
        for term, chinese in terms_of(str(each.id))
        if chinese not in str(each.string) and term not in str(each.string)
    ]
    assert not wrong, "\n".join(wrong)


def terms_of(template: str) -> Iterator[tuple[str, str]]:
    """The terms that a sentence has, with their Chinese; of two at one place the longer."""
    text = NAMES.sub(" ", template)
    for term in sorted(GLOSSARY, key=len, reverse=True):
        pattern = re.compile(rf"(?<![\w-]){re.escape(term)}(?:s|es)?(?![\w-])", re.IGNORECASE)
        if pattern.search(text):
            text = pattern.sub(" ", text)
            if term not in EVERYDAY:
                yield term, GLOSSARY[term].term.said("zh")


def test_chinese_leaves_no_term_in_english():
    translated = [term for term, each in GLOSSARY.items() if each.term.said("zh") != term]
    latin = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, translated))})s?(?![\w-])", re.IGNORECASE)
    wrong = {
        name(each): each.string
        for each in ENTRIES
        if not exempt(each) and latin.search(NAMES.sub(" ", str(each.string)))
    }
    assert not wrong


def test_terms_are_words_and_not_names():
    text = "Control tokens of {head}, `layer` and --top query: rank(mask), logits, softmax.json, tokenised"
    assert [term for term, _ in terms_of(text)] == ["control token", "logit"]


def test_a_phrase_of_the_code_is_a_plain_template():
    """What `make words` cannot read, it cannot put into the catalogue."""
    wrong = []
    for path in MODULES:
        # where a template is passed on
        if path.name == "words.py" or path.name == "errors.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SPEAKING
            ):
                continue
            place = SPEAKING[node.func.id]
            template = node.args[place] if len(node.args) == place + 1 else None
            plain = isinstance(template, ast.Constant)
            ready = node.func.id == "CutawayError" and isinstance(
                template, ast.Name | ast.Call | ast.Attribute
            )
            # an error may be given a phrase that is made already
            if not plain and not ready:
                wrong.append(f"{path.relative_to(catalogue.ROOT)}:{node.lineno}: {ast.unparse(node)[:80]}")
    assert not wrong, "\n".join(wrong)


def test_no_chinese_in_the_code():
    wrong = [
        f"{path.relative_to(catalogue.ROOT)}:{number}: {line.strip()}"
        for path in MODULES
        if path.relative_to(catalogue.SOURCE).as_posix() not in CHINESE_DATA
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if HAN.search(line)
    ]
    assert not wrong, "\n".join(wrong)


# Files whose Chinese is data, and why.
CHINESE_DATA = {
    "page/wrapping.py": "punctuation that may not begin or end a line",
    "text/tokens/learning.py": "scripts that are written without spaces",
    "text/tokens/sentencepiece_ids.py": "an example in a docstring",
    "text/sentence_ends.py": "what ends a sentence, and words that name a speaker",
    "inspection/changes/change.py": "the text that examples are tried on",
    "inspection/changes/stream_changes.py": "the texts that an example is tried on",
    "inspection/changes/token_changes.py": "a word of the text that examples are tried on",
    "cli/demo.py": "the sentences that the demo translates",
    "cli/terminal.py": "an example of a text",
    "cli/tokenizer.py": "an example of a text",
}


def test_no_exception_outlives_its_reason():
    assert not [start for start in EXEMPT if not any(str(each.id).startswith(start) for each in ENTRIES)]
    assert GLOSSARY.keys() >= EVERYDAY
    for file in CHINESE_DATA:
        assert HAN.search((catalogue.SOURCE / file).read_text(encoding="utf-8")), file


def test_a_term_is_found_in_either_language():
    assert entry("token") is entry("词元") is GLOSSARY["token"]
    assert said(entry("nats").about, "zh").startswith("自然对数的单位")
    with pytest.raises(CutawayError, match=r"no term 'tokn'.*'token'"):
        entry("tokn")


def test_terms_differ_in_both_languages():
    chinese = [each.term.said("zh") for each in GLOSSARY.values()]
    assert len(set(chinese)) == len(chinese) == len(GLOSSARY)
    assert all(
        each.about.said("en").endswith(".") and each.about.said("zh").endswith("。")
        for each in GLOSSARY.values()
    )
