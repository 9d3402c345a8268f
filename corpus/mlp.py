"""A multi-layer perceptron with dropout."""

import torch
from torch import nn


class MLP(nn.Module):
    """`depth` hidden layers of width `hidden`, each followed by a ReLU and dropout."""

    def __init__(self, d_in, hidden, d_out, depth=2, dropout=0.1):
        super().__init__()
        layers = []
        width = d_in
        for _ in range(depth):
            layers += [nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout)]
            width = hidden
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, d_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x.flatten(1)))


# jaxmigrate: example MLP(12, 32, 5, dropout=0.0)(f32[4, 3, 4])

if __name__ == "__main__":
    torch.manual_seed(0)
    model = MLP(12, 32, 5)
    print(model(torch.randn(4, 3, 4)).shape)
