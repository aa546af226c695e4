"""Pairs for the second stage of the bundled translator: clean, everyday, robust for numbers, names and places.

`python recipes/translate-zh-en/pairs.py` reads ../shared/data and writes runs/translate-zh-en-pairs/train.tsv and
valid.tsv (domain, en, zh). The validation pairs are those that the first stage held out, so no stage has seen them.
Every random choice comes from one seed. What it does, in the order of the file:

* cleans: a pair with profanity on either side goes, and so do stage directions, other scripts, halves of sentences,
  lengths that do not fit, and of the film dialogue the part that the first stage's model finds least probable;
* varies real pairs: digits, number words, places and persons that stand on both sides give way to others, on both;
  emoji are added to both, final marks taken from both;
* adds sentences with slots (words.toml) and the everyday words of CC-CEDICT with short meanings.

No pair is written that shares a side with a Tatoeba test set or with a validation pair.
"""

import gzip
import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from cutaway.checkpoint.folder import load
from cutaway.decode.score import score_targets
from cutaway.decode.translator import Translator
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.text.corpus import Pair, read_tsv
from cutaway.train.data import hold_out
from cutaway.train.recipe import read_recipe

HERE = Path(__file__).parent
DATA = Path("../shared/data")
FIRST_STAGE = Path("runs/translate-zh-en/model")
OUT = Path("runs/translate-zh-en-pairs")
EVERYDAY = ("tatoeba", "hsk", "msctd")
OTHERS = ("wesnoth", "mlqe-pe", "libreoffice-help", "desktop-ui", "gnome-help", "debian-handbook")
SCORED, KEPT = (
    36_000,
    0.6,
)  # of the film dialogue that passes the rules: how many are scored, which part is kept
HAN = "\u4e00-\u9fff"
WORDS = tomllib.loads((HERE / "words.toml").read_text(encoding="utf-8"))
# A name, its English before its Chinese: `New+York纽约`.
NAME = re.compile(rf"([^{HAN}]+)([{HAN}]+)")
ONES = ["", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TENS = ["", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
DIGITS = ["", "一", "二", "三", "四", "五", "六", "七", "八", "九"]
# Small numbers that people write in words; two is 两 before what is counted.
COUNTED = {ONES[n]: "两" if n == 2 else DIGITS[n] for n in range(2, 10)}
COUNTED |= {"ten": "十", "twenty": "二十", "thirty": "三十"}
IN_ENGLISH = re.compile(rf"\b(?:{'|'.join(COUNTED)})\b")
IN_CHINESE = re.compile(
    r"(?<![一二两三四五六七八九十百千万几第星期])(?:[二三]十|[两三四五六七八九十])(?=[个天年岁次本张块周分小条辆件杯瓶])"
)


# Cleaning.


ENGLISH, CHINESE = WORDS["profane"]["en"].split(), WORDS["profane"]["zh"].split()
PROFANE = {
    "en": re.compile(r"\b(?:" + "|".join(ENGLISH).replace("-", " ") + r")\b", re.IGNORECASE),
    "zh": re.compile("|".join(map(re.escape, CHINESE))),
}


def profane(zh: str, en: str) -> bool:
    return bool(PROFANE["zh"].search(zh) or PROFANE["en"].search(en) or PROFANE["en"].search(zh))


STAGE = re.compile(r"[][(){}（）【】<>♪#*_~=|\\^]")
ENDS = {".": "。", "?": "？", "!": "！"}


def cleaned(pair: Pair) -> Pair | None:
    """The pair with small faults mended, or None where it is not one to learn from. Source is Chinese."""
    zh, en = pair.source.strip(), pair.target.strip()
    if profane(zh, en):
        return None
    if pair.domain == "msctd":
        if STAGE.search(zh + en) or len(en) < 3 or en[-1] not in ".?!" or "..." in en or " l " in en:
            return None
        zh = re.sub(rf"(?<=[{HAN}]) +(?=[{HAN}])", "，", zh)
        zh = re.sub(r"([？！。])[？。]+", r"\1", zh)
    if pair.domain in EVERYDAY:
        if en[-1:] in ENDS and re.search(rf"[{HAN}]$", zh):
            zh += ENDS[en[-1]]
        marks = len(re.findall(r"[.?!](?= |$)", en)), len(re.findall(r"[。？！?!…]+", zh))
        if pair.domain == "msctd" and marks[1] > marks[0] + 1:
            return None
    han, words = len(re.findall(rf"[{HAN}]", zh)), len(re.findall(r"[A-Za-z]+", en))
    if not han or not words or re.search(rf"[{HAN}\u3040-\u30ff\uac00-\ud7a3]", en):
        return None
    if not 0.6 <= (han + 2) / (words + 1) <= 4:
        return None
    return replace(pair, source=zh, target=en)


def probable(pairs: list[Pair], part: float) -> list[Pair]:
    """The `part` of the pairs whose Chinese the first stage's model finds most probable, token by token, among pairs of
    about the same length."""
    translator = Translator(load(FIRST_STAGE))
    assert isinstance(translator.model, EncoderDecoder)
    sources = [translator.prepare(pair.target, to="zh").ids for pair in pairs]
    tokenizer = translator.tokenizer
    targets = [
        [*ids, tokenizer.require("eos")] for ids in tokenizer.encode_ids([pair.source for pair in pairs])
    ]
    order = sorted(range(len(pairs)), key=lambda i: (len(targets[i]), len(sources[i])))
    kept: list[int] = []
    for first in range(0, len(order), 2048):
        bucket, scores = order[first : first + 2048], {}
        for start in range(0, len(bucket), 64):
            rows = bucket[start : start + 64]
            found = score_targets(translator.model, [sources[i] for i in rows], [targets[i] for i in rows])
            scores |= {i: sum(values) / len(values) for i, values in zip(rows, found, strict=True)}
        kept += sorted(bucket, key=lambda i: -scores[i])[: round(part * len(bucket))]
    return [pairs[i] for i in sorted(kept)]


# Names and numbers.


def names(text: str) -> list[tuple[str, str]]:
    """(English, Chinese) of each name in a list."""
    found = [NAME.fullmatch(word) for word in text.split()]
    return [(match[1].replace("+", " "), match[2]) for match in found if match]


def dictionary() -> list[tuple[str, str, list[str]]]:
    """CC-CEDICT: (simplified Chinese, pinyin with numbers, meanings)."""
    with gzip.open(DATA / "text/cedict_ts.u8.gz", "rt", encoding="utf-8") as lines:
        entries = [re.match(r"\S+ (\S+) \[([^]]+)\] /(.*)/", line) for line in lines]
    return [(entry[1], entry[2], entry[3].split("/")) for entry in entries if entry]


@dataclass
class Slots:
    """What can stand in a slot, drawn at random as (English, Chinese)."""

    random: random.Random
    entries: list[tuple[str, str, list[str]]]

    men, women = names(WORDS["names"]["man"]), names(WORDS["names"]["woman"])
    places = names(WORDS["names"]["place"])
    latin_words = WORDS["names"]["latin"].split()

    @cached_property
    def readings(self) -> dict[str, str]:
        """The pinyin of a character: as a surname, else its first reading as a common word."""
        found: dict[str, str] = {}
        common: set[str] = set()
        for zh, pinyin, meanings in self.entries:
            if len(zh) == 1 and pinyin[-1].isdigit():
                plain = pinyin[:-1].lower().replace("u:", "v")
                if meanings[0].startswith("surname") and zh in WORDS["names"]["surname"]:
                    found[f"{zh}-"] = plain
                elif zh not in common:
                    found[zh] = plain
                    common |= {zh} if pinyin[0].islower() else set()
        return found

    def chinese(self) -> tuple[str, str]:
        """A Chinese person's name: Wang Xiaoming, 王小明."""
        draw, read = self.random, self.readings
        surname = draw.choice(WORDS["names"]["surname"])
        given = "".join(draw.sample(WORDS["names"]["given"], draw.choice((1, 2, 2))))
        family = read.get(f"{surname}-", read.get(surname, ""))
        return f"{family.title()} {''.join(read[mark] for mark in given).title()}", surname + given

    def person(self, of: list[tuple[str, str]]) -> tuple[str, str]:
        """A Western name written in Chinese or, at times, in Latin letters; or a Chinese name."""
        kind = self.random.random()
        if kind < 0.45:
            return self.chinese()
        name = self.random.choice(of)
        return name if kind < 0.8 else (name[0], name[0])

    def digits(self, length: int | None = None) -> str:
        length = length or self.random.choice((1, 2, 2, 2, 3, 3, 4))
        first = self.random.choice("23456789" if length == 1 else "123456789")
        return first + "".join(self.random.choice("00123456789") for _ in range(length - 1))

    def number(self) -> tuple[str, str]:
        digits = self.digits(self.random.choice((1, 2, 2, 2, 2, 3, 3, 4, 5)))
        if len(digits) > 3 and self.random.random() < 0.5:
            comma = f"{int(digits):,}"
            return comma, self.random.choice((comma, digits))
        return digits, digits

    def clock(self) -> tuple[str, str]:
        draw = self.random
        hour, minute = draw.randint(1, 12), draw.choice((draw.randint(10, 59), 15, 30, 45))
        early = hour < 12 and draw.random() < 0.5
        half, part = ("a.m.", "上午") if early else ("p.m.", "下午" if hour % 12 < 6 else "晚上")
        return draw.choice((
            (f"{hour}:{minute}", f"{hour}:{minute}"),
            (f"{hour}:{minute}", f"{hour}点{minute}分"),
            (f"{hour} o'clock", f"{hour}点"),
            (f"{hour}:30", f"{hour}点半"),
            (f"{hour}:{minute} {half}", f"{part}{hour}点{minute}分"),
            (f"{hour} {half}", f"{part}{hour}点"),
        ))  # fmt: skip

    def in_words(self) -> tuple[str, str]:
        """A number from 20 to 99 in words."""
        tens, ones = self.random.randint(2, 9), self.random.randint(0, 9)
        return f"{TENS[tens]}-{ONES[ones]}".rstrip("-"), f"{DIGITS[tens]}十{DIGITS[ones]}"

    def people(self) -> tuple[str, str]:
        """Thousands and millions, which Chinese counts in ten thousands."""
        n = self.random.randint(1, 99)
        return self.random.choice((
            (f"{n}0,000", f"{n}万"), (f"{n}00,000", f"{n}0万"), (f"{n} million", f"{n}00万"),
            (f"{n},000", f"{n}000"),
        ))  # fmt: skip

    def money(self) -> tuple[str, str]:
        n = self.number()
        if self.random.random() < 0.15:
            cents = self.digits(2)
            n = (f"{n[0]}.{cents}", f"{n[1]}.{cents}")
        en, zh = self.random.choice(WORDS["slots"]["money"]).split("|")
        return en.format(n=n[0]), zh.format(n=n[1])

    def address(self, mail: bool) -> str:
        draw = self.random
        word = "".join(draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(draw.randint(3, 7)))
        word = draw.choice((word, draw.choice(self.latin_words).lower(), draw.choice(self.women)[0].lower()))
        end = draw.choice((".com", ".com", ".org", ".cn", ".net", ".io"))
        if mail:
            return f"{word}{draw.choice(('', self.digits(2)))}@{draw.choice(('gmail', 'qq', '163', 'outlook'))}.com"
        start, page = (
            draw.choice(("https://", "https://www.", "www.", "")),
            draw.choice(("", "", "/help", "/en")),
        )
        return start + word + end + page

    def __call__(self, slot: str) -> tuple[str, str]:
        """Something for the slot of that name (a digit at its end tells two of a kind apart)."""
        draw, slot = self.random, slot.rstrip("2")
        if slot in ("man", "woman", "anyone"):
            return self.person({"man": self.men, "woman": self.women}.get(slot, self.men + self.women))
        if slot == "place":
            return draw.choice(self.places)
        same: dict[str, Callable[[], str]] = {
            "latin": lambda: draw.choice(self.latin_words),
            "year": lambda: str(draw.randint(1900, 2035)),
            "day": lambda: str(draw.randint(1, 31)),
            "percent": lambda: (
                draw.choice((self.digits(2), self.digits(1), f"{self.digits(1)}.{self.digits(1)}")) + "%"
            ),
            "decimal": lambda: f"{self.digits(draw.choice((1, 2)))}.{self.digits(1)}",
            "phone": lambda: draw.choice(("", "", "+86 ", "021-")) + self.digits(draw.choice((7, 8, 11))),
            "url": lambda: self.address(mail=False),
            "mail": lambda: self.address(mail=True),
        }
        if slot in same:
            value = same[slot]()
            return value, value
        drawn = {
            "n": self.number, "clock": self.clock, "words": self.in_words, "many_people": self.people,
            "money": self.money,
        }  # fmt: skip
        if slot in drawn:
            return drawn[slot]()
        en, zh = draw.choice(WORDS["slots"][slot]).split("|")
        return en, zh

    def filled(self, line: str) -> Pair:
        """A sentence of words.toml, its slots filled on both sides."""
        en, zh = line.split("|")
        values = {slot: self(slot) for slot in re.findall(r"{(\w+)}", en)}
        english = en.format(**{slot: one for slot, (one, _) in values.items()})
        chinese = zh.format(**{slot: other for slot, (_, other) in values.items()})
        keep = re.match(r"iP|eB|www|http", english)
        return Pair(chinese, english if keep else english[0].upper() + english[1:], "slots", 0)


# Variations of real pairs.


@dataclass
class Variations:
    slots: Slots

    def digits(self, pair: Pair) -> Pair | None:
        """Other digits where both sides have the same."""
        numbers = re.findall(r"\d+", pair.target)
        if not numbers or sorted(numbers) != sorted(re.findall(r"\d+", pair.source)) or "1" in numbers:
            return None
        if any(number.startswith("0") for number in numbers):
            return None
        others = {number: self._like(number) for number in sorted(set(numbers))}
        zh, en = (re.sub(r"\d+", lambda match: others[match[0]], text) for text in (pair.source, pair.target))
        return replace(pair, source=zh, target=en, domain="varied")

    def _like(self, number: str) -> str:
        draw, value = self.slots.random, int(number)
        if len(number) == 4 and number[:2] in ("18", "19", "20"):
            return str(draw.randint(1850, 2035))
        for most in (12, 31, 59):
            if value <= most:
                return str(draw.randint(2, most))
        return self.slots.digits(len(number))

    def words(self, pair: Pair) -> Pair | None:
        """Digits in place of the one small number in words."""
        english, chinese = IN_ENGLISH.findall(pair.target), list(IN_CHINESE.finditer(pair.source))
        if len(english) != 1 or len(chinese) != 1 or re.search(r"\d|one\b", pair.target):
            return None
        at = chinese[0]
        if COUNTED[english[0]] != at[0]:
            return None
        digits = self.slots.digits(self.slots.random.choice((1, 2, 2)))
        zh = pair.source[: at.start()] + digits + pair.source[at.end() :]
        return replace(pair, source=zh, target=pair.target.replace(english[0], digits), domain="varied")

    def places(self, pair: Pair) -> Pair | None:
        """Other places where both sides have the same."""
        return self._swapped(
            pair, self.slots.places, lambda: self.slots("place"), r"(?![人语文菜式制货车队军字])"
        )

    def persons(self, pair: Pair) -> Pair | None:
        """Other persons where both sides have the same."""
        one = self._swapped(pair, self.slots.men, lambda: self.slots("man"), "")
        two = self._swapped(one or pair, self.slots.women, lambda: self.slots("woman"), "")
        return two or one

    def _swapped(
        self, pair: Pair, known: list[tuple[str, str]], draw: Callable[[], tuple[str, str]], after: str
    ) -> Pair | None:
        zh, en = pair.source, pair.target
        for one, other in known:
            english = rf"(?<![\w']){one}(?!\w)"
            if other not in zh or len(re.findall(english, en)) != zh.count(other):
                continue
            if len(re.findall(other + after, zh)) != zh.count(other):
                continue
            name = draw()
            zh, en = zh.replace(other, name[1]), re.sub(english, name[0], en)
        return replace(pair, source=zh, target=en, domain="varied") if zh != pair.source else None

    def unmarked(self, pair: Pair) -> Pair | None:
        """Without final marks; at times in small letters, or with the other width of mark: how people type."""
        zh, en = pair.source, pair.target
        if not (re.search(r"[。？！]$", zh) and re.search(r"[.?!]$", en)):
            return None
        kind = self.slots.random.random()
        if kind < 0.2:
            zh = zh.translate(str.maketrans("。，？！", ".,?!"))
        else:
            zh, en = zh[:-1], en[:-1]
            en = en.lower() if kind < 0.5 else en
        return replace(pair, source=zh, target=en, domain="varied")

    def emoji(self, pair: Pair) -> Pair:
        """With an emoji at the end of both."""
        mark = self.slots.random.choice(WORDS["names"]["emoji"])
        return replace(pair, source=f"{pair.source}{mark}", target=f"{pair.target} {mark}", domain="varied")


def everyday_words(entries: list[tuple[str, str, list[str]]], pairs: list[Pair]) -> Iterator[Pair]:
    """Words of CC-CEDICT that the pairs have, with their first meaning where it is short and of words they have."""
    english = Counter(word for pair in pairs for word in re.findall(r"[a-z]+", pair.target.lower()))
    text = "\n".join(pair.source for pair in pairs)
    pieces = Counter(text[i : i + n] for n in (2, 3, 4) for i in range(len(text) - n + 1))
    seen: set[str] = set()
    for zh, pinyin, meanings in entries:
        if zh in seen or not re.fullmatch(rf"[{HAN}]{{2,4}}", zh) or pieces[zh] < 3 or pinyin[0].isupper():
            continue
        seen.add(zh)
        first = re.sub(r"\s*\([^)]*\)\s*", " ", meanings[0]).strip()
        words = re.findall(r"[a-z]+", first)
        if not re.fullmatch(r"(?!see |variant|old |also )[a-z]+(?:[ -][a-z]+){0,3}", first):
            continue
        if all(english[word] >= 5 for word in words):
            yield Pair(zh, re.sub("^to ", "", first), "dictionary", 0)


def unseen(pairs: Iterable[Pair], forbidden: set[str]) -> list[Pair]:
    """The pairs that share no side with a forbidden text, each once, without profanity."""
    found: dict[tuple[str, str], Pair] = {}
    for pair in pairs:
        sides = pair.source, pair.target
        if not {plain(side) for side in sides} & forbidden and not profane(*sides):
            found.setdefault(sides, pair)
    return list(found.values())


def plain(text: str) -> str:
    """The text by which two are the same: letters and digits alone, in small letters."""
    return re.sub(r"\W+", "", text.lower())


def tell(template: str, **values: object) -> None:
    print(template.format(**values))


def main() -> None:
    torch.set_num_threads(1)
    first = read_recipe(HERE.parent / "translate-zh-en.toml").data
    every = list(read_tsv(DATA / "zh-en/train.tsv.gz", "zh", "en", "domain", first.sources[0].columns))
    pairs, held = hold_out(every, first, tell)
    tests = sorted((DATA / "tatoeba-test").glob("*.eng")) + sorted((DATA / "tatoeba-test").glob("*.zho"))
    forbidden = {plain(line) for path in tests for line in path.read_text(encoding="utf-8").splitlines()}
    forbidden |= {plain(side) for pair in held for side in (pair.source, pair.target)}

    good = [pair for pair in map(cleaned, pairs) if pair is not None]
    dialogue = [pair for pair in good if pair.domain == "msctd"]
    real = [pair for pair in good if pair.domain in (*EVERYDAY, *OTHERS) and pair.domain != "msctd"]
    slots = Slots(random.Random(20261130), dictionary())
    vary, draw = Variations(slots), slots.random
    tell("dialogue: {n:,} pairs, of which {some:,} are scored", n=len(dialogue), some=SCORED)
    real += probable(draw.sample(dialogue, SCORED), KEPT)
    tell("kept: {n:,}", n=len(real))
    spoken = [pair for pair in real if pair.domain in EVERYDAY]

    made: list[Pair | None] = []
    for pair in spoken:
        made += [vary.digits(pair), vary.digits(pair), vary.words(pair), vary.places(pair), vary.places(pair)]
        made += [vary.persons(pair)]
        if pair.domain != "msctd" and draw.random() < 0.12:
            made.append(vary.unmarked(pair))
        if pair.domain != "msctd" and draw.random() < 0.03:
            made.append(vary.emoji(pair))
    filled = [slots.filled(line) for line in WORDS["carriers"]["lines"] for _ in range(80)]
    words = list(everyday_words(slots.entries, spoken))

    written = unseen([*real, *(pair for pair in made if pair), *filled, *words], forbidden)
    OUT.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train.tsv", written), ("valid.tsv", held)):
        lines = "".join(f"{pair.domain}\t{pair.target}\t{pair.source}\n" for pair in rows)
        (OUT / name).write_text(lines, encoding="utf-8")
    print(*sorted(Counter(pair.domain for pair in written).items()))


if __name__ == "__main__":
    main()
