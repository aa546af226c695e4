"""A little bilingual text, and one tokenizer of each kind learned from it."""

import pytest
from hypothesis import settings

from cutaway.text.tokens.plan import Kind
from cutaway.text.tokens.tokenizer import Tokenizer

# The same examples in every run, and no limit of time on a machine that may be busy with training.
settings.register_profile("steady", deadline=None, derandomize=True, database=None)
settings.load_profile("steady")

ENGLISH = [
    "Long time no see. How have you been?",
    "I love machine learning, and machine learning loves me.",
    "Tom said that he had never seen such a beautiful river.",
    '"Don\'t worry," she said, "it\'s only the wind in the trees."',
    "The weather was fine, so we walked along the river to the old bridge.",
    "In 1987 there were 250 people in the village; now there are only 30.",
    "He who learns but does not think is lost.",
    "She has been learning Chinese for 12 years, and she still makes mistakes.",
    "What are you doing tomorrow evening? We are going to the theatre.",
    "There is a book on the table and another book under the chair.",
]
CHINESE = [
    "好久不见，你最近怎么样？",
    "我爱机器学习，机器学习也爱我。",
    "汤姆说他从来没有见过这么美丽的河流。",
    "“别担心，”她说，“这只是树林里的风。”",
    "天气很好，所以我们沿着河走到了那座老桥。",
    "1987年村里有250人；现在只有30人。",
    "学而不思则罔，思而不学则殆。",
    "她学习中文已经12年了，可是还会犯错误。",
    "你明天晚上做什么？我们要去看戏。",
    "桌子上有一本书，椅子下面还有一本书。",
]
TEXTS = ENGLISH * 3 + CHINESE * 3
SUBWORDS: tuple[Kind, ...] = ("bpe-bytes", "bpe", "unigram")
KINDS: tuple[Kind, ...] = (*SUBWORDS, "wordpiece", "words", "characters")


def learn(kind: Kind, **settings) -> Tokenizer:
    return Tokenizer.train(TEXTS, kind, 900, languages=("eng", "zho"), coverage=0.99, **settings)


@pytest.fixture(scope="session")
def tokenizers() -> dict[str, Tokenizer]:
    return {kind: learn(kind) for kind in KINDS}


@pytest.fixture
def bpe(tokenizers: dict[str, Tokenizer]) -> Tokenizer:
    return tokenizers["bpe"]
