"""A tiny transformer that learns one batch by heart: the plainest proof that tokens, targets and masks fit together."""

from collections.abc import Iterator

import torch
from torch import nn

from pipeline_assets.corpus.parallel_text.loader import Batch
from pipeline_assets.corpus.parallel_text.padding import IGNORED

_WIDTH, _HEADS, _LAYERS = 64, 4, 2


class TinyTransformer(nn.Module):
    """Ids (B, T) to logits (B, T, vocabulary), each token seeing those that its mask allows."""

    def __init__(self, vocabulary: int, seq_len: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, _WIDTH), nn.Embedding(seq_len, _WIDTH)
        layer = nn.TransformerEncoderLayer(_WIDTH, _HEADS, 4 * _WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, _LAYERS, enable_nested_tensor=False)
        self.out = nn.Linear(_WIDTH, vocabulary)

    def forward(self, tokens: torch.Tensor, attn_mask: torch.Tensor) -> torch.Tensor:
        """
        Args:
            attn_mask: bool (B, T, T), True where a token may look.
        """
        places = torch.arange(tokens.shape[1], device=tokens.device)
        blocked = ~attn_mask.repeat_interleave(_HEADS, dim=0)
        logits: torch.Tensor = self.out(self.layers(self.tokens(tokens) + self.places(places), mask=blocked))
        return logits


def overfit(batch: Batch, vocabulary: int, steps: int, seed: int = 0) -> Iterator[float]:
    """The loss of each step on one batch, whose mask is causal: cross entropy in nats, a token on average."""
    torch.manual_seed(seed)
    model = TinyTransformer(vocabulary, batch["tokens"].shape[1])
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(steps):
        logits = model(batch["tokens"], batch["attn_mask"])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        yield loss.item()
