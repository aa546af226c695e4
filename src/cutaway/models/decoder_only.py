"""The branch of GPT and Llama: one causal stack that goes on writing (Radford et al. 2018; Touvron et al. 2023)."""

from torch import Tensor, nn

from cutaway.config import ModelConfig
from cutaway.models.length import check_length
from cutaway.nn.cache import Cache
from cutaway.nn.embedding import Embedding, token_positions
from cutaway.nn.head import HEADS, as_scores, last_hidden
from cutaway.nn.init import initialise
from cutaway.nn.stack import Stack


class DecoderOnly(nn.Module):
    """Ids (B, T) to logits (B, T, V): at every position, what may come next."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.embed = Embedding(config)
        self.decoder = Stack(config, config.n_layers, causal=True)
        self.head = HEADS[config.head](config, self.embed.tokens)
        initialise(self, config)

    def hidden(self, ids: Tensor, documents: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """ids (B, T) -> (B, T, D).

        documents (B, T) numbers the documents packed into each row: they do not see one another, and each
        counts its positions from 0. mask (B, T) is False at padding, left or right.
        """
        check_length(self.config, ids.shape[1], "text")
        if documents is None:
            positions = token_positions(mask, ids.shape[1], 0, ids.device)
        else:
            positions = positions_in_documents(documents)
        return self.decoder(self.embed(ids, positions), positions, mask, documents)

    def forward(self, ids: Tensor, documents: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return self.head(self.hidden(ids, documents, mask))

    def begin(self, rows: int) -> Cache:
        """An empty cache for `rows` texts, ready for `step`."""
        return Cache(rows, len(self.decoder.layers))

    def step(self, ids: Tensor, cache: Cache, mask: Tensor | None = None) -> Tensor:
        """The next T ids (B, T) -> logits (B, V) fp32 after the last of them; the cache advances.

        mask (B, T) is False at the left padding of prompts of different lengths.
        """
        start = cache.length
        cache.extend(ids.shape[1], mask, ids.device)
        check_length(self.config, cache.longest, "text")
        positions = token_positions(cache.mask, ids.shape[1], start, ids.device)
        x = self.decoder(self.embed(ids, positions), positions, cache.mask, cache=cache)
        return as_scores(self.head(last_hidden(x)))


def positions_in_documents(documents: Tensor) -> Tensor:
    """documents (B, T), equal numbers side by side -> (B, T): each token's place within its document."""
    index = documents.new_ones(documents.shape).cumsum(dim=1) - 1
    starts = index.clone()
    starts[:, 1:][documents[:, 1:] == documents[:, :-1]] = 0
    return index - starts.cummax(dim=1).values
