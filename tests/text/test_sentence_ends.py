"""Texts cut into sentences, in Chinese, English and both, and other sentences put in their places."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.text.folding import is_blank
from cutaway.text.sentence_ends import joined, sentences

CASES = {
    "你好。我叫王明。你呢？": ["你好。", "我叫王明。", "你呢？"],
    "How are you? I am fine. And you?": ["How are you?", "I am fine.", "And you?"],
    "how are you? i am fine. and you": ["how are you?", "i am fine.", "and you"],
    "Mr. Smith went to Washington. He left at 5 p.m. The train was late.": [
        "Mr. Smith went to Washington.",
        "He left at 5 p.m.",
        "The train was late.",
    ],
    "Dr. J. K. Brown lives in the U.S. with his dog. He is 3.5 feet tall.": [
        "Dr. J. K. Brown lives in the U.S. with his dog.",
        "He is 3.5 feet tall.",
    ],
    "I like fruit, e.g. apples, pears, etc. They are cheap.": [
        "I like fruit, e.g. apples, pears, etc.",
        "They are cheap.",
    ],
    "I like fruit, e.g. apples, pears, etc. and more.": ["I like fruit, e.g. apples, pears, etc. and more."],
    "“你好吗？”他问。“我很好！”她说。": ["“你好吗？”他问。", "“我很好！”她说。"],
    "他说：“你好。我走了。”然后他走了。": ["他说：“你好。", "我走了。”", "然后他走了。"],
    '"What is it?" he asked. "Nothing."': ['"What is it?" he asked.', '"Nothing."'],
    '"Stop!" She ran away.': ['"Stop!"', "She ran away."],
    "我……不知道。": ["我……不知道。"],
    "Well... I don't know. Hmm... Maybe.": ["Well... I don't know.", "Hmm...", "Maybe."],
    "See https://example.com/a.b?c=1. It works! Mail a.b@c.org. Thanks.": [
        "See https://example.com/a.b?c=1.",
        "It works!",
        "Mail a.b@c.org.",
        "Thanks.",
    ],
    "Version 1.2.3 is out. Get it.": ["Version 1.2.3 is out.", "Get it."],
    "No. 5 is here. No. I don't.": ["No. 5 is here.", "No.", "I don't."],
    "See fig. 3 and p. 12. OK.": ["See fig. 3 and p. 12.", "OK."],
    "你好!我叫Tom.你呢?": ["你好!", "我叫Tom.", "你呢?"],
    "圆周率是3.14。对吗？": ["圆周率是3.14。", "对吗？"],
    "I love it!我也是。Really?Yes!": ["I love it!", "我也是。", "Really?", "Yes!"],
    "1. Buy milk.\n2. Go home. Sleep.\n\n- 休息。\n3、吃饭。": [
        "Buy milk.",
        "Go home.",
        "Sleep.",
        "休息。",
        "吃饭。",
    ],
    "什么？！真的！！！好吧。。。": ["什么？！", "真的！！！", "好吧。。。"],
    "他走了(我也是。)她没走。": ["他走了(我也是。)", "她没走。"],
    "It costs $3.50. Cheap!": ["It costs $3.50.", "Cheap!"],
    "我不知道。Dr. Smith来了。走吧。": ["我不知道。", "Dr. Smith来了。", "走吧。"],
    "": [],
    "  \u200b\n": [],
    "3. ": ["3."],
    "-": ["-"],
    "...": ["..."],
    '他说"你好。"我走了。': ['他说"你好。"', "我走了。"],
    '他说。"你好。"': ["他说。", '"你好。"'],
    "We met at 3 a.m. on Jan. 5. It rained.": ["We met at 3 a.m. on Jan. 5.", "It rained."],
    "Apple Inc. makes phones. Google LLC. does too.": [
        "Apple Inc. makes phones.",
        "Google LLC.",
        "does too.",
    ],
    "You and I. He and she.": ["You and I.", "He and she."],
    "Is it Plan B? Yes. Vitamin C. It helps.": ["Is it Plan B?", "Yes.", "Vitamin C.", "It helps."],
    "王先生说：「好。」": ["王先生说：「好。」"],
    "Visit example.com. Then leave.": ["Visit example.com.", "Then leave."],
    "今天是2025年5月1日.明天是2日.": ["今天是2025年5月1日.", "明天是2日."],
}


@pytest.mark.parametrize("text", CASES)
def test_sentences(text: str) -> None:
    assert [text[start:end] for start, end in sentences(text)] == CASES[text]


@pytest.mark.parametrize(
    ("text", "written", "whole"),
    [
        ("你好。再见。", ["Hello.", "Bye."], "Hello. Bye."),
        ("Hello. Bye.", ["你好。", "再见。"], "你好。再见。"),
        ("Hello. OK. Bye.", ["你好。", "OK.", "再见。"], "你好。OK.再见。"),
        ("  一。\n\n\t二。三。\n", ["One.", "Two.", "Three."], "One.\n\n\tTwo. Three."),
        (
            "1. Buy milk.\n  - Go home. Sleep.",
            ["买牛奶。", "回家。", "睡觉。"],
            "1. 买牛奶。\n  - 回家。睡觉。",
        ),
        ("• 一\r\n• 二", ["One", "Two"], "• One\r\n• Two"),
        ("\u200b车站在哪里？\ufeff再见。", ["Where?", "Bye."], "Where? Bye."),
        ("", [], ""),
    ],
)
def test_joined(text: str, written: list[str], whole: str) -> None:
    assert joined(text, sentences(text), written) == whole


TEXTS = st.text(st.sampled_from(list('aA我1。.!？…"”“’( \n-\u3000\u200b/:@')), max_size=40) | st.text(
    max_size=40
)


@given(TEXTS)
def test_every_character_that_is_seen_is_in_a_sentence_or_marks_a_line(text: str) -> None:
    places = sentences(text)
    assert places == sorted(places) and all(start < end for start, end in places)
    assert all(end <= start for (_, end), (start, _) in pairwise(places))
    assert bool(places) == (not is_blank(text))
    assert not any(is_blank(text[start]) or is_blank(text[end - 1]) for start, end in places)
    left = text
    for start, end in reversed(places):
        left = left[:start] + left[end:]
    assert is_blank("".join(each for each in left if each not in "-–—*•‣●▪◦.)）、(（" and not each.isdigit()))


@given(TEXTS)
def test_sentences_put_back_are_the_text_but_for_white_space(text: str) -> None:
    places = sentences(text)
    whole = joined(text, places, [text[start:end] for start, end in places])
    assert [each for each in whole if not is_blank(each)] == [each for each in text if not is_blank(each)]


def test_a_long_line_takes_no_longer_than_its_length() -> None:
    for text in ("." * 50_000, "Mr. " * 20_000, 'a." ' * 20_000, "。" * 20_000, "x" * 100_000 + "."):
        assert sentences(text)[-1][1] == len(text.rstrip())
