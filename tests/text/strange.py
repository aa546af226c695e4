"""Texts that tokenizers disagree about: all planes, combining marks, joined emoji, white space, runs, spellings of
control tokens."""

import random

GOLDEN = [
    "This is 😀",
    "are you ok?",
    "I'M sure we'll see: it's café, naïve ſ's, ß.",
    "1987年村里有250人；现在只有30人……",
    "def f(x):\n\treturn  x + 1  # ok \n",
    "北京 is 北京, ｶﾞｷﾞ ＡＢＣ ① ﬁ",
    " \u2029ꀀ\u3000a  ",
]
_ODD = [
    *(
        "",
        "\n",
        "\r\n",
        "\t",
        "\u200d",
        "\ufe0f",
        "\u3000",
        "\xa0",
        "\u2028",
        "\u2029",
        "\u0085",
        "\ufeff",
        "\0",
    ),
    *("\u180e", "\u1680", "\u202f", "\ufdd0", "…", "é", "e\u0301", "か\u3099", "ᄒ", "ᅡ", "ᆫ", "▁", "▁ ▁"),
    *("👩‍👩‍👧", "🇨🇳", "👍🏽", "     ", "\n\n\n", "  \n ", "12345", "!!!", "……", "<0x41>", "<0xE4>"),
]
_CONTROLS = [
    *("<s>", "</s>", "<pad>", "<unk>", "[MASK]", "[CLS]", "[UNK]", "[INST]", "<|endoftext|>", "<|im_start|>"),
    *("<|eot_id|>", "<tool_call>", "<extra_id_0>", ">>cmn_Hans<<"),
]
_WORDS = [
    *" ".join(GOLDEN).split(),
    *("한국어", "ภาษาไทย", "हिन्दी", "Ελληνικά", "½", "Ⅷ", "？", "don't", "HE'S", "－"),
]


def strange_texts(count: int, seed: int = 0, controls: bool = True) -> list[str]:
    """`controls=False` leaves the spellings of control tokens out."""
    choose = random.Random(seed)
    pools = [_ODD, _CONTROLS if controls else _ODD, _WORDS, _WORDS, [" "]]

    def part() -> str:
        kind = choose.randrange(10)
        if kind == 0:
            code = choose.randrange(0x110000 - 0x800)
            return chr(code if code < 0xD800 else code + 0x800)
        if kind < 4:
            return chr(choose.randrange(*[(0x4E00, 0x9FFF), (0x20, 0x3000), (0x300, 0x370)][kind - 1]))
        if kind == 4:
            return choose.choice("abc \n\t=-_#*.01我") * choose.randrange(1, 20)
        return choose.choice(pools[kind - 5])

    return ["".join(part() for _ in range(choose.randrange(1, 15))) for _ in range(count)]
