"""The original Transformer: an encoder reads, a decoder writes and looks back (Vaswani et al. 2017, Figure 1)."""

from torch import Tensor, nn

from cutaway.config import ModelConfig
from cutaway.models.length import check_length
from cutaway.nn.block import Block
from cutaway.nn.cache import Cache, KeyValues
from cutaway.nn.embedding import Embedding, token_positions
from cutaway.nn.head import HEADS, as_scores, last_hidden
from cutaway.nn.init import initialise
from cutaway.nn.stack import Stack


class EncoderDecoder(nn.Module):
    """Source ids (B, S) and target ids (B, T) to logits (B, T, V); one embedding matrix for both sides, or two."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        source = config.encoder_side
        self.source_embed = Embedding(source)
        self.target_embed = Embedding(config, self.source_embed.tokens if config.shared_tables else None)
        self.encoder = Stack(source, config.encoder_layers, causal=False)
        self.decoder = Stack(config, config.n_layers, causal=True, cross=True)
        self.head = HEADS[config.head](config, self.target_embed.tokens)
        initialise(self, config)

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """source (B, S) -> memory (B, S, D). source_mask (B, S) is False at padding."""
        check_length(self.config, source.shape[1], "source")
        positions = token_positions(source_mask, source.shape[1], 0, source.device)
        return self.encoder(self.source_embed(source, positions), positions, source_mask)

    def hidden(self, source: Tensor, target: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """The decoder's result (B, T, D) under teacher forcing: target is the decoder's input."""
        memory = self.encode(source, source_mask)
        check_length(self.config, target.shape[1], "target")
        positions = token_positions(None, target.shape[1], 0, target.device)
        x = self.target_embed(target, positions)
        return self.decoder(x, positions, memory=memory, memory_mask=source_mask)

    def forward(self, source: Tensor, target: Tensor, source_mask: Tensor | None = None) -> Tensor:
        return self.head(self.hidden(source, target, source_mask))

    def begin(self, source: Tensor, source_mask: Tensor | None = None) -> Cache:
        """Encode once, project each layer's keys and values of the memory once, and be ready for `step`."""
        memory = self.encode(source, source_mask)
        fixed: list[KeyValues] = []
        for layer in self.decoder.layers:
            assert isinstance(layer, Block)
            fixed.append(KeyValues(*layer.cross_attn.keys_values(memory)))
        return Cache(source.shape[0], len(fixed), fixed, source_mask)

    def step(self, ids: Tensor, cache: Cache, mask: Tensor | None = None) -> Tensor:
        """The next T target ids (B, T) -> logits (B, V) fp32 after the last of them; the cache advances."""
        start = cache.length
        check_length(self.config, start + ids.shape[1], "target")
        cache.extend(ids.shape[1], mask, ids.device)
        positions = token_positions(cache.mask, ids.shape[1], start, ids.device)
        x = self.target_embed(ids, positions)
        x = self.decoder(x, positions, cache.mask, memory_mask=cache.memory_mask, cache=cache)
        return as_scores(self.head(last_hidden(x)))
