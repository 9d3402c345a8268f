"""What prints, counts or leaves the loop between forward and backward follows the gradient, or the step is left."""

from __future__ import annotations

from pathlib import Path

import pytest
from converted import convert
from trained import PLAIN, trains_alike

SOURCE = (
    PLAIN.replace(
        "return self.fc2(torch.tanh(self.fc1(x)))", "return F.log_softmax(self.fc2(torch.tanh(self.fc1(x))), dim=1)"
    )
    + """def train(model: Net, x: torch.Tensor, y: torch.Tensor):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(5):
        optimizer.zero_grad()
        output = model(x)
        BETWEEN
        loss = F.nll_loss(output, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
"""
)
FOLLOWS = {
    "prints": "print(step, output.shape)  # the shape",
    "collects": "losses.append(output.mean().item())",
    "goes on": "if step == 2:\n            losses.append(output.max().item())\n            continue",
    "leaves": "hit = (output.argmax(1) == y).sum()\n        if hit.item() > 5:\n            break",
}
LEFT = {
    "changes the model": "model.eval()",
    "is not known": "look(output)",
    "changes what the loss reads": "y.add_(1) if step else None",
    "leaves before another module runs": "if step == 2:\n            continue\n        output = output + model(x)",
}


@pytest.mark.parametrize("name", FOLLOWS)
def test_it_follows_the_gradient(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = trains_alike(SOURCE.replace("BETWEEN", FOLLOWS[name]), tmp_path, "train", (6,))
    assert "# the shape" in text or name != "prints"
    said = capsys.readouterr().out.replace("torch.Size([6, 3])", "(6, 3)").splitlines()
    assert said[: len(said) // 2] == said[len(said) // 2 :]
    assert len(said) == (10 if name == "prints" else 0)


@pytest.mark.parametrize("name", LEFT)
def test_the_step_is_left(name: str) -> None:
    converted = convert(SOURCE.replace("BETWEEN", LEFT[name]))
    assert any("JM208 training step left" in line for line in converted.left)
