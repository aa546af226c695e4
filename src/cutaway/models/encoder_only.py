"""The branch of BERT: one stack that sees the whole sentence and fills in hidden words (Devlin et al. 2019)."""

from torch import Tensor, nn

from cutaway.config import ModelConfig
from cutaway.models.length import check_length
from cutaway.nn.embedding import Embedding, token_positions
from cutaway.nn.head import HEADS
from cutaway.nn.init import initialise
from cutaway.nn.stack import Stack


class EncoderOnly(nn.Module):
    """Ids (B, T) to logits (B, T, V): at every position, which word belongs there."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.embed = Embedding(config)
        self.encoder = Stack(config, config.n_layers, causal=False)
        self.head = HEADS[config.head](config, self.embed.tokens)
        initialise(self, config)

    def hidden(self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """ids (B, T) -> (B, T, D). mask (B, T) is False at padding; segments (B, T) tells sentence A from B."""
        check_length(self.config, ids.shape[1], "text")
        positions = token_positions(mask, ids.shape[1], 0, ids.device)
        return self.encoder(self.embed(ids, positions, segments), positions, mask)

    def forward(self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        return self.head(self.hidden(ids, mask, segments))
