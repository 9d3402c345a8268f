"""A Trainer class as many projects have it: parameter groups, accumulation, clipping, a schedule, validation."""

import torch
import torch.nn as nn
import torch.nn.functional as F

# jaxmigrate: example Classifier(6, 8, 3)(f32[5, 6])


class Classifier(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, hidden), nn.LayerNorm(hidden), nn.GELU())
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.head(self.body(x))


class Trainer:
    def __init__(self, model: nn.Module, lr=0.01, accumulate=2):
        self.model = model
        self.accumulate = accumulate
        decay = [p for n, p in model.named_parameters() if p.dim() > 1]
        others = [p for n, p in model.named_parameters() if p.dim() <= 1]
        groups = [{"params": decay, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=lr)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=0.5)
        self.best = float("inf")

    def train_epoch(self, batches):
        self.model.train()
        losses = []
        self.optimizer.zero_grad()
        for step, (x, y) in enumerate(batches):
            loss = F.cross_entropy(self.model(x), y) / self.accumulate
            loss.backward()
            losses.append(loss.item())
            if (step + 1) % self.accumulate == 0:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
        return losses

    @torch.no_grad()
    def validate(self, batches):
        self.model.eval()
        return sum(F.cross_entropy(self.model(x), y).item() for x, y in batches) / len(batches)

    def fit(self, batches, epochs):
        history = []
        for _ in range(epochs):
            history += self.train_epoch(batches)
            loss = self.validate(batches)
            self.scheduler.step()
            history.append(loss)
            if loss > self.best:
                break
            self.best = loss
        return history


def main():
    torch.manual_seed(0)
    inputs, targets = torch.randn(4, 5, 6), torch.randint(0, 3, (4, 5))
    print(Trainer(Classifier(6, 8, 3)).fit(list(zip(inputs, targets)), 2))


if __name__ == "__main__":
    main()
