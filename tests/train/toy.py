"""A toy language pair and recipes that learn it in seconds, for tests that go through files."""

import json
import random
from pathlib import Path

WORDS = {
    "one": "一",
    "two": "二",
    "three": "三",
    "cat": "猫",
    "dog": "狗",
    "runs": "跑",
    "sees": "看",
    "big": "大",
}

PAIRS = """
[run]
name = "toy"
folder = "{folder}/run"
threads = 1
[model]
family = "encoder-decoder"
d_model = 16
n_layers = 1
n_heads = 2
d_ff = 32
dropout = 0.1
max_len = 32
[tokenizer]
vocab_size = 400
[data]
folder = "{folder}"
directions = ["zh>en", "en>zh"]
languages = {{ zh = "zho", en = "eng" }}
max_source = 20
max_target = 20
weights = {{ two = 0.5 }}
[[data.sources]]
path = "pairs.tsv"
columns = ["domain", "en", "zh"]
[data.validation]
hold_out = 20
translations = 4
samples = 1
[train]
objective = "seq2seq"
steps = 8
batch_tokens = 400
accumulate = 2
lr = 3e-3
warmup = 4
smoothing = 0.1
precision = "fp32"
average = "ema"
average_decay = 0.9
validate_every = 4
save_every = 4
"""

TEXTS = """
[run]
name = "toy"
folder = "{folder}/run"
threads = 1
[model]
preset = "{preset}"
d_model = 16
n_layers = 1
n_heads = 2
d_ff = 32
max_len = 24
[tokenizer]
kind = "{kind}"
vocab_size = 300
[data]
folder = "{folder}"
[[data.sources]]
path = "text.txt"
format = "text"
[data.validation]
hold_out = 20
[train]
objective = "{objective}"
steps = 4
batch_rows = 8
lr = 3e-3
schedule = "constant"
warmup = 2
precision = "fp32"
validate_every = 2
save_every = 2
"""


def write_data(folder: Path) -> None:
    """pairs.tsv (domain, en, zh), pairs.jsonl, pairs.en, pairs.zh and text.txt of the toy language."""
    draws = random.Random(0)
    pairs = []
    for _ in range(300):
        words = [draws.choice(list(WORDS)) for _ in range(draws.randint(2, 6))]
        pairs.append((" ".join(words), "".join(WORDS[word] for word in words)))
    tsv = [f"{'two' if i % 3 else 'one'}\t{en}\t{zh}" for i, (en, zh) in enumerate(pairs)]
    jsonl = [json.dumps({"en": en, "zh": zh, "text": en}, ensure_ascii=False) for en, zh in pairs]
    english, chinese = [en for en, _ in pairs], [zh for _, zh in pairs]
    for name, lines in (
        ("pairs.tsv", tsv),
        ("pairs.jsonl", jsonl),
        ("pairs.en", english),
        ("pairs.zh", chinese),
        ("text.txt", english),
    ):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_recipe(folder: Path, text: str = PAIRS, **choices: str) -> Path:
    path = folder / "toy.toml"
    path.write_text(text.format(folder=folder, **choices), encoding="utf-8")
    return path
