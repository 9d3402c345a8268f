"""Classifies token sequences with a bidirectional LSTM and attention over its steps."""

from typing import Optional, Tuple

import torch
from torch import Tensor, nn


class AttentionPool(nn.Module):
    """A weighted mean over the steps; masked steps get no weight."""

    def __init__(self, dim: int):
        super().__init__()
        self.score = nn.Linear(dim, 1)

    def forward(self, x: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]:
        scores = self.score(torch.tanh(x)).squeeze(-1)
        scores = scores.masked_fill(~mask, -1e9)
        weights = torch.softmax(scores, dim=1)
        return torch.bmm(weights.unsqueeze(1), x).squeeze(1), weights


class LSTMClassifier(nn.Module):
    def __init__(
        self,
        vocab_size: int,
        embed_dim: int = 16,
        hidden: int = 12,
        num_layers: int = 2,
        num_classes: int = 3,
        dropout: float = 0.0,
        pad: int = 0,
    ):
        super().__init__()
        self.pad = pad
        self.embed = nn.Embedding(vocab_size, embed_dim, padding_idx=pad)
        self.lstm = nn.LSTM(
            embed_dim, hidden, num_layers=num_layers, batch_first=True, bidirectional=True, dropout=dropout
        )
        self.pool = AttentionPool(2 * hidden)
        self.classify = nn.Sequential(nn.LayerNorm(4 * hidden), nn.Linear(4 * hidden, num_classes))

    def forward(self, tokens: Tensor, state: Optional[Tuple[Tensor, Tensor]] = None) -> Tensor:
        mask = tokens != self.pad
        out, (h_n, _) = self.lstm(self.embed(tokens), state)
        pooled, _ = self.pool(out, mask)
        last = torch.cat([h_n[-2], h_n[-1]], dim=-1)
        return self.classify(torch.cat([pooled, last], dim=-1))


# jaxmigrate: example LSTMClassifier(20)(i64[3, 7] < 20)
# jaxmigrate: example LSTMClassifier(20, num_layers=1)(i64[3, 7] < 20, (f32[2, 3, 12], f32[2, 3, 12]))

if __name__ == "__main__":
    torch.manual_seed(0)
    tokens = torch.randint(1, 20, (3, 7))
    tokens[0, 4:] = 0
    print(LSTMClassifier(20)(tokens).argmax(dim=-1).tolist())
