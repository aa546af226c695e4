"""What is bundled opens in transformers too, says the same there, and does what its card says it does."""

import re
import tomllib
from pathlib import Path

import pytest
import torch
import transformers

from benchmarks.everyday import judged
from cutaway.checkpoint import folder
from cutaway.decode.complete import continue_text
from cutaway.decode.gaps import fill
from cutaway.decode.search import LengthPenalty, Limits, Search
from cutaway.decode.translator import Translator
from cutaway.zoo import MASKED, POET, TRANSLATOR, find

PROFANE = Path(__file__).parents[2] / "recipes" / "translate-zh-en" / "words.toml"
SENTENCES = [
    ("好久不见", "en"), ("今天天气很好。", "en"), ("你想喝点什么？", "en"), ("他昨天买了一本新书。", "en"),
    ("我不知道他在哪里。", "en"),
    ("I love you.", "zh"), ("Where is the station?", "zh"), ("She has been waiting for an hour.", "zh"), ("Hi.", "zh"),
    ("He said that he would come back tomorrow, but he didn't.", "zh"),
]  # fmt: skip


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator(folder.load(find(TRANSLATOR)))


@pytest.mark.parametrize("beam", [1, 4])
def test_transformers_translates_the_same(translator: Translator, beam: int) -> None:
    path = find(TRANSLATOR)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(path, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    for text, to in SENTENCES:
        mark = tokenizer.convert_tokens_to_ids(">>eng<<" if to == "en" else ">>zho<<")
        ids = [mark, *tokenizer(text, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
        theirs = model.generate(
            torch.tensor([ids]), num_beams=beam, do_sample=False, max_new_tokens=60, length_penalty=1.0,
            early_stopping="never", bad_words_ids=[[tokenizer.pad_token_id]],
        )  # fmt: skip
        search = Search(beam=beam, length_penalty=LengthPenalty(alpha=1.0, kind="power"))
        [ours] = translator.translate([text], to=to, search=search, limits=Limits(60))
        assert ours.best.text == tokenizer.decode(theirs[0], skip_special_tokens=True), text


EVERYDAY = {
    "好久不见。": "It's been a long time.", "我爱你。": "I love you.", "谢谢你。": "Thank you.",
    "我饿了。": "I'm hungry.", "你叫什么名字？": "What's your name?", "你会说英语吗？": "Can you speak English?",
    "明天见。": "See you tomorrow.", "你想喝点什么？": "What do you want to drink?",
    "他昨天买了一本新书。": "He bought a new book yesterday.", "我不知道他在哪里。": "I don't know where he is.",
    "这个多少钱？": "How much is this?", "洗手间在哪里？": "Where is the restroom?",
    "请再说一遍。": "Please say that again.", "生日快乐！": "Happy birthday!", "她是我的妹妹。": "She's my sister.",
    "北京是中国的首都。": "Beijing is China's capital.",
    "我住在北京。": "I live in Beijing.", "猫追狗。": "The cat chased the dog.",
    "I love you.": "我爱你。", "How are you?": "你好吗？", "Where is the station?": "车站在哪里？",
    "He is reading a book.": "他在读一本书。", "Good morning.": "早上好。", "Can you help me?": "你能帮我吗？",
    "I have never been there.": "我从没去过那里。", "Thank you very much.": "非常感谢。", "I'm hungry.": "我饿了。",
}  # fmt: skip


def test_everyday_sentences_come_out_right(translator: Translator) -> None:
    found = translator.translate(list(EVERYDAY))
    assert dict(zip(EVERYDAY, [result.best.text for result in found], strict=True)) == EVERYDAY


# What a translation has, whatever else it says.
KEPT = {
    "我们明天去北京。": ["Beijing", "tomorrow"], "I work in Tokyo.": ["东京"], "这本书要45块钱。": ["45"],
    "我发烧了，38.5度。": ["38.5"], "Tom is 37 years old.": ["汤姆", "37"],
    "He was born on May 4, 1998.": ["1998年5月4日"], "My phone number is 5823914.": ["5823914"],
    "我的电话号码是6823914。": ["6823914"],
}  # fmt: skip


@pytest.mark.parametrize("beam", [1, 4])
def test_numbers_names_and_places_are_kept(translator: Translator, beam: int) -> None:
    found = translator.translate(list(KEPT), search=Search(beam=beam))
    for result, parts in zip(found, KEPT.values(), strict=True):
        assert all(part in result.best.text for part in parts), result.best.text


def test_nothing_harmless_becomes_profane(translator: Translator) -> None:
    words = tomllib.loads(PROFANE.read_text(encoding="utf-8"))["profane"]
    english = re.compile(rf"\b(?:{'|'.join(words['en'].split())})\b", re.IGNORECASE)
    for result in translator.translate([*judged(), *EVERYDAY]):
        text = result.best.text
        assert not english.search(text) and not any(word in text for word in words["zh"].split()), text


def test_the_poet_goes_on_in_metre_and_is_the_same_model_there() -> None:
    path = find(POET)
    loaded = folder.load(path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    ids = torch.tensor([loaded.require_tokenizer().encode("白日依山尽，黄河入海流。").ids])
    with torch.no_grad():
        ours = loaded.model(ids)
        torch.testing.assert_close(ours, theirs(ids).logits, rtol=0, atol=1e-4)
    poem = continue_text(loaded, ["白日依山尽，黄河入海流。"], limits=Limits(13))[0].best.text
    lines = [line for line in poem.replace("。", "，").strip().split("，") if line]
    assert [len(line) for line in lines[:2]] == [5, 5], poem


def test_the_masked_model_fills_and_is_the_same_model_there() -> None:
    path = find(MASKED)
    loaded = folder.load(path)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(path, dtype=torch.float32).eval()
    filled = fill(loaded, "The old man sat down by the [MASK].", top=5)
    ids = torch.tensor([filled.ids])
    with torch.no_grad():
        logits = theirs(ids).logits
        torch.testing.assert_close(loaded.model(ids), logits, rtol=0, atol=1e-4)
    mask = filled.gaps[0].position
    assert filled.ids[mask] == transformers.AutoTokenizer.from_pretrained(path).mask_token_id
    best = logits[0, mask].softmax(-1).topk(5)
    assert [candidate.id for candidate in filled.gaps[0].candidates] == best.indices.tolist()
    found = [candidate.probability for candidate in filled.gaps[0].candidates]
    torch.testing.assert_close(torch.tensor(found), best.values, rtol=1e-3, atol=1e-6)
