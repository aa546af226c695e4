"""The terms of the field, one sentence each, for somebody who never saw a Transformer: pages, docs and the web read
them. Their Chinese lies in the catalogue, as all words do; tests hold the rest of the catalogue to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cutaway.errors import CutawayError, nearest
from cutaway.words import LOCALES, Phrase, say


@dataclass(frozen=True)
class Entry:
    """A term, the letter or formula that stands for it ("" where there is none), and what it means."""

    term: Phrase
    symbol: str
    about: Phrase


# In data-flow order: text, the stream, attention, feed-forward, output; then decoding, training, looking inside.
# fmt: off
_ENTRIES = (
    Entry(say("token"), "", say(
        "A piece of text that the model reads or writes as one unit: a word, a part of one, or a single character.")),
    Entry(say("vocabulary"), "V", say(
        "All tokens that a model knows, each with its number (id).")),
    Entry(say("tokenizer"), "", say(
        "Cuts a text into tokens of the vocabulary and puts tokens together to text again.")),
    Entry(say("control token"), "", say(
        "A token that stands for no text but tells the model something: where a text ends, which language to write.")),
    Entry(say("embedding"), "E[id]", say(
        "The table that has one learned vector for each token; also the vector that a token takes from it.")),
    Entry(say("unembedding"), "W_u", say(
        "The output matrix: it compares the last vector of a position with a vector of every token, which gives "
        "the logits; often it is the embedding table itself.")),
    Entry(say("position"), "t", say(
        "The place of a token in its text, counted from 0; attention alone could not tell the order of tokens, so it "
        "is told to the model apart.")),
    Entry(say("sinusoidal positions"), "", say(
        "Positions as fixed vectors of sines and cosines of many wavelengths, added to the embeddings.")),
    Entry(say("rotary positions"), "R", say(
        "Positions as rotations: queries and keys are turned by an angle that grows with the position, so that their "
        "product depends on the distance only.")),
    Entry(say("encoder"), "", say(
        "The stack of layers that reads a whole text at once, each token seeing all others.")),
    Entry(say("decoder"), "", say(
        "The stack of layers that writes a text token by token, each token seeing only those before it.")),
    Entry(say("stack"), "", say(
        "The blocks of an encoder or of a decoder, one after another: each reads what the one before it left.")),
    Entry(say("layer"), "L", say(
        "One step of the stack: a block with weights of its own; the same kind of block is repeated, with other "
        "weights each time.")),
    Entry(say("block"), "", say(
        "Attention, then a feed-forward network, each with a norm and each adding its result to the residual stream.")),
    Entry(say("residual stream"), "x", say(
        "The vector of each token on its way through the model: every sublayer reads it and adds its own result to "
        "it.")),
    Entry(say("norm"), "", say(
        "Brings each vector to a standard size before or after a sublayer (LayerNorm, RMSNorm), then scales every "
        "coordinate by a learned weight.")),
    Entry(say("attention"), "", say(
        "The part of a block where tokens read from each other: each takes a weighted sum of what the others offer.")),
    Entry(say("self-attention"), "", say(
        "Attention within one text: queries, keys and values come from the same tokens.")),
    Entry(say("cross-attention"), "", say(
        "The decoder's attention to the source: queries come from what is being written, keys and values from what "
        "the encoder read.")),
    Entry(say("head"), "h", say(
        "One of several attentions that work side by side in a layer, each with its own queries, keys and values.")),
    Entry(say("query"), "q", say(
        "The vector by which a token asks: it is compared with the keys of all tokens in sight.")),
    Entry(say("key"), "k", say(
        "The vector by which a token is found: the better it matches a query, the more that query reads there.")),
    Entry(say("value"), "v", say(
        "The vector that a token hands over to those who attend to it.")),
    Entry(say("score"), "q·k", say(
        "How well a query and a key match, as their dot product; of a whole translation, how the search rates it.")),
    Entry(say("scale"), "1/√E", say(
        "The factor that keeps scores small whatever the width E of a head, so that softmax does not "
        "settle on one key.")),
    Entry(say("mask"), "−∞", say(
        "What hides keys from queries: minus infinity is added to their scores, so their weight becomes 0; it hides "
        "later tokens in a decoder, and padding.")),
    Entry(say("softmax"), "exp / Σ exp", say(
        "Turns numbers into weights above 0 whose sum is 1: the exponential of each, divided by the sum of all.")),
    Entry(say("attention pattern"), "a", say(
        "The weights of one head, a row for each query: how much it reads at each key; every row sums to 1.")),
    Entry(say("feed-forward network"), "", say(
        "The part of a block that works on each token by itself: to many neurons, through an activation function, "
        "and back to the width of the stream.")),
    Entry(say("activation"), "", say(
        "The value of a neuron for one token, after the activation function (ReLU, GELU, SiLU).")),
    Entry(say("neuron"), "f", say(
        "One unit of a feed-forward network: it fires by how well the stream matches a pattern, and then adds its "
        "own vector to the stream.")),
    Entry(say("mixture of experts"), "", say(
        "A block with several feed-forward networks, of which each token uses only a few.")),
    Entry(say("expert"), "", say(
        "One of the feed-forward networks of a mixture of experts.")),
    Entry(say("router"), "r", say(
        "The small matrix that scores the experts for each token; those of the highest scores are used.")),
    Entry(say("load balance"), "", say(
        "How evenly the router spreads tokens over the experts; 1 where every expert is given the same share.")),
    Entry(say("output head"), "", say(
        "What turns the last vectors into the result: logits over the vocabulary; a model without it gives vectors.")),
    Entry(say("logit"), "l", say(
        "The number that the model gives a token of the vocabulary as the next one, before softmax makes it a "
        "probability.")),
    Entry(say("probability"), "p", say(
        "How sure the model is of a token, from 0 to 1; over the whole vocabulary they sum to 1.")),
    Entry(say("log-probability"), "log p", say(
        "The natural logarithm of a probability: 0 is certain, and the more negative, the less likely; those of the "
        "tokens of a text may be added.")),
    Entry(say("nats"), "", say(
        "The unit of natural logarithms: one nat less makes something 2.718 times less probable; 0.69 nats are one "
        "bit.")),
    Entry(say("entropy"), "−Σ p log p", say(
        "How spread out a distribution is, in nats: 0 where one choice has all the weight, log n where n share it "
        "evenly.")),
    Entry(say("temperature"), "τ", say(
        "Divides the logits before sampling: below 1 the likely becomes likelier, above 1 the choice is more even.")),
    Entry(say("top-k"), "", say(
        "Sampling among the k most probable tokens only.")),
    Entry(say("top-p"), "", say(
        "Sampling among the fewest tokens whose probabilities reach the sum p (nucleus sampling).")),
    Entry(say("greedy"), "", say(
        "Decoding that takes the most probable token at every step.")),
    Entry(say("beam search"), "", say(
        "Decoding that keeps the best few beginnings at every step and lets them compete to the end; how many is the "
        "beam's width.")),
    Entry(say("hypothesis"), "", say(
        "One of the translations that a search found or still follows.")),
    Entry(say("length penalty"), "", say(
        "What the sum of log-probabilities is divided by, so that longer translations are not at a disadvantage.")),
    Entry(say("BLEU"), "", say(
        "How many runs of one to four words a translation shares with a reference, from 0 to 100.")),
    Entry(say("chrF"), "", say(
        "How many runs of one to six characters a translation shares with a reference, from 0 to 100.")),
    Entry(say("perplexity"), "exp(loss)", say(
        "Between how many equally likely tokens the model hesitates on average: the exponential of the loss per "
        "token.")),
    Entry(say("loss"), "", say(
        "What training makes small: the mean negative log-probability of the right tokens.")),
    Entry(say("parameter"), "", say(
        "A number of the model that training sets; all of them together are its weights.")),
    Entry(say("checkpoint"), "", say(
        "A model's parameters as files, during training together with all that is needed to go on.")),
    Entry(say("recipe"), "", say(
        "A TOML file that describes one training run completely: data, tokenizer, model, settings.")),
    Entry(say("run"), "", say(
        "One forward pass over one text, with everything that was recorded of it; also one training from start to "
        "end.")),
    Entry(say("tap"), "", say(
        "A named place in the model where a value can be seen or replaced.")),
    Entry(say("trace"), "", say(
        "The record of the values at chosen taps during a forward pass.")),
    Entry(say("operand"), "", say(
        "One of the numbers from which another number was computed.")),
    Entry(say("change"), "", say(
        "Something done to a forward pass to see what depends on it: a head switched off, a pattern replaced, "
        "positions shuffled.")),
    Entry(say("ablation"), "", say(
        "A change that takes a part away: its result is set to 0, or to its mean.")),
    Entry(say("activation patching"), "", say(
        "A change that puts in a value from a run on another text, to see what that value carries.")),
    Entry(say("sweep"), "", say(
        "The same change made to every head in turn, to compare what the output loses.")),
    Entry(say("logit lens"), "", say(
        "Reads the residual stream after each layer with the model's own output head, as though that layer were the "
        "last.")),
    Entry(say("attribution"), "", say(
        "Splits a number, such as a logit, into shares of what it came from: tokens, layers, heads.")),
    Entry(say("gradient × input"), "∂F/∂x · x", say(
        "Attribution by the slope at the input: how steeply the result changes with each token's vector, times that "
        "vector.")),
    Entry(say("integrated gradients"), "", say(
        "Attribution by the mean slope on the straight way from a starting point to the input, so that the shares "
        "add up.")),
    Entry(say("rollout"), "", say(
        "The attention patterns of all layers multiplied, as an estimate of how much each input token reaches each "
        "position.")),
    Entry(say("alignment error rate"), "AER", say(
        "How far the links between source and target words are from those that people drew: 0 where all agree.")),
    Entry(say("KL divergence"), "KL(p‖q)", say(
        "How far one distribution is from another, in nats: 0 where they are the same.")),
    Entry(say("cosine"), "cos", say(
        "How alike the directions of two vectors are: 1 the same, 0 at a right angle, −1 opposite.")),
    Entry(say("neighbour"), "", say(
        "A token whose vector is among the nearest to a given one.")),
    Entry(say("analogy"), "a − b + c", say(
        "Arithmetic with token vectors: king − man + woman should come near queen.")),
    Entry(say("projection"), "", say(
        "Vectors of many dimensions drawn in a plane, along the two directions in which they vary most.")),
    Entry(say("singular value"), "σ", say(
        "How much a matrix stretches along one of its own directions; all of them tell how many directions really "
        "matter.")),
    Entry(say("rank"), "", say(
        "The number of independent directions that a matrix keeps: the count of its singular values above 0.")),
)
# fmt: on

GLOSSARY: Mapping[str, Entry] = MappingProxyType({str(each.term): each for each in _ENTRIES})


def entry(term: str) -> Entry:
    """The entry of a term, given in English or Chinese; CutawayError when there is none, naming the nearest."""
    found = {each.term.said(locale): each for each in _ENTRIES for locale in LOCALES}
    if term not in found:
        raise CutawayError("the glossary has no term {term!r}{hint}", term=term, hint=nearest(term, found))
    return found[term]
