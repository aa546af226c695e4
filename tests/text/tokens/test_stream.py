import random

import pytest
from tests.text.conftest import KINDS, SUBWORDS

from cutaway.text.tokens.plan import Kind
from cutaway.text.tokens.tokenizer import Tokenizer


def deltas(tokenizer: Tokenizer, ids: list[int], skip_special: bool = True) -> list[str]:
    stream = tokenizer.stream(skip_special)
    return [*(stream.push(id) for id in ids), stream.finish()]


@pytest.mark.parametrize("kind", KINDS)
def test_joined_deltas_are_the_decoded_text_for_any_ids(tokenizers: dict[str, Tokenizer], kind: Kind):
    tokenizer = tokenizers[kind]
    choose = random.Random(kind)
    for _ in range(400):
        ids = [choose.randrange(tokenizer.vocab_size) for _ in range(choose.randrange(12))]
        few = [choose.randrange(min(262, tokenizer.vocab_size)) for _ in range(12)]  # mostly single bytes
        for each in (ids, few):
            for skip_special in (True, False):
                assert "".join(deltas(tokenizer, each, skip_special)) == tokenizer.decode(each, skip_special)


@pytest.mark.parametrize("kind", SUBWORDS)
def test_characters_cut_into_bytes_never_reach_the_reader_in_pieces(
    tokenizers: dict[str, Tokenizer], kind: Kind
):
    tokenizer = tokenizers[kind]
    text = "我 naïve 😀 龘a龘b🇨🇳 e\u0301 \ufffd!"
    parts = deltas(tokenizer, tokenizer.encode_ids([text])[0])
    assert "".join(parts) == text
    assert sum(part.count("\ufffd") for part in parts) == 1


def test_every_character_goes_out_as_soon_as_it_is_certain(tokenizers: dict[str, Tokenizer]):
    tokenizer = tokenizers["bpe-bytes"]
    parts = deltas(tokenizer, tokenizer.encode_ids(["龘a龘"])[0])
    assert parts == ["", "", "龘", "a", "", "", "龘", ""]


def test_bytes_that_never_become_a_character_come_out_at_the_end(tokenizers: dict[str, Tokenizer]):
    for kind, first in (("bpe-bytes", "é"), ("bpe", "<0xE9>")):
        tokenizer = tokenizers[kind]
        id = tokenizer.id(first)
        assert id is not None
        stream = tokenizer.stream()
        assert [stream.push(id), stream.finish(), stream.finish()] == ["", "\ufffd", ""]


def test_a_push_costs_the_same_however_long_the_text_is(
    tokenizers: dict[str, Tokenizer], monkeypatch: pytest.MonkeyPatch
):
    tokenizer = tokenizers["bpe"]
    ids = tokenizer.encode_ids(["I love you, 我爱你。" * 200])[0]
    decoded: list[int] = []
    decode = tokenizer.decode

    def counting(ids: list[int], skip_special: bool = True) -> str:
        decoded.append(len(ids))
        return decode(ids, skip_special)

    monkeypatch.setattr(tokenizer, "decode", counting)
    deltas(tokenizer, ids)
    assert max(decoded) < 8
