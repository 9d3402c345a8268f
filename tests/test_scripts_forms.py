"""Forms that public models and training scripts have, each run in both frameworks."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from runner import convert, run_both

NESTED = """
import torch
import torch.nn as nn


def make(n):
    def block(i, o, normalize=True):
        layers = [nn.Linear(i, o)]
        if normalize:
            layers.append(nn.BatchNorm1d(o))
        return layers

    return nn.Sequential(*block(n, 3), *block(3, 4, normalize=False))


class G(nn.Module):
    def __init__(self, n):
        super().__init__()

        def block(i, o, normalize=True):
            layers = [nn.Linear(i, o)]
            if normalize:
                layers.append(nn.BatchNorm1d(o))
            return layers

        self.model = nn.Sequential(*block(n, 3), *block(3, 4, normalize=False), nn.Tanh())

    def forward(self, x):
        return self.model(x)


def classes(n):
    def outer(k):
        class Inner(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(n, k)

            def forward(self, x):
                return self.fc(x)

        return Inner()

    return nn.Sequential(outer(3), nn.Dropout(0.5))


def drawing(x: torch.Tensor):
    def noise(y):
        return y + torch.randn(3)

    return noise(noise(x))


def main():
    drawing(torch.ones(3))
    return G(5)(torch.ones(2, 5)).shape, make(5)(torch.ones(2, 5)).shape, classes(5)(torch.ones(2, 5)).shape
"""


def test_nested_functions_that_build_layers_share_the_rngs_around_them() -> None:
    """A function inside `__init__` sees its `rngs`; a class inside a function is given its own; keys are handed on."""
    run = run_both(NESTED)
    assert run.same, (run.error, run.outcome.after)
    assert not run.left
    assert "def block(i, o, normalize=True):" in run.outcome.after


def test_assignments_that_have_nothing_left_to_do_go() -> None:
    source = """
        import torch
        from torch import nn

        device = "cuda" if torch.cuda.is_available() else "cpu"
        net = nn.Linear(3, 2).to(device)
        if device == "cuda":
            net = nn.DataParallel(net)

        def main():
            x, y = torch.ones(2, 3), torch.zeros(2)
            x, y = x.to(device), y.to(device)
            for _ in range(2):
                y = y.contiguous()
            values, _ = (net(x) * 0 + 1).max(1)
            x, y = x.exp(), y.cpu()
            return x, y, values, Held.x

        ones = torch.ones(2)

        class Held:
            ones = ones.contiguous()
            x = ones
    """
    run = run_both(source)
    assert run.same, run.error
    assert "x, y = x, y\n" not in run.outcome.after and "y = y\n" not in run.outcome.after
    assert "x, y = jnp.exp(x), y\n" in run.outcome.after


def test_batches_of_two_loaders_are_tensors() -> None:
    source = """
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        def main():
            one = DataLoader(TensorDataset(torch.arange(8.0).view(4, 2), torch.arange(4.0)), batch_size=2)
            two = DataLoader(TensorDataset(torch.ones(4, 2), torch.arange(4.0)), batch_size=2)
            seen = []
            for i, ((x, _), (y, labels)) in enumerate(zip(one, two)):
                seen.append(x.type(torch.LongTensor).max(1)[0] + labels.type(torch.LongTensor) + y.size(0) + i)
            return seen
    """
    run = run_both(source)
    assert run.same and not run.left, (run.error, run.left)


def test_text_that_is_split_is_no_tensor() -> None:
    source = "import torch\n\n\ndef f(line, path, x):\n"
    source += "    return line.split(), path.split('/'), path.split(sep=None), torch.sqrt(x), x.split(2)\n"
    outcome, _ = convert(source)
    assert "line.split(), path.split('/'), path.split(sep=None)" in outcome.after
    assert not [f for f in outcome.findings if f.name == "torch.Tensor.split" and f.code == "JM201"]


def test_initialisation_by_its_old_names() -> None:
    source = """
        import torch
        from torch import nn
        from torch.nn import init

        def main():
            layer = nn.Linear(3, 2)
            init.constant(layer.weight, 0.5)
            nn.init.normal(layer.bias, 2.0, 0.0)
            return layer(torch.ones(1, 3))
    """
    run = run_both(source)
    assert run.same and not run.left, (run.error, run.left)


def test_devices_by_names_that_are_known_when_the_program_runs() -> None:
    source = """
        import argparse

        import torch
        import torch.nn as nn

        parser = argparse.ArgumentParser()
        parser.add_argument("--device", default="cpu")
        args = parser.parse_args([])
        device = torch.device(args.device)

        def main():
            net = nn.Linear(2, 1)
            net.to(args.device)
            nn.init.ones_(net.weight)
            nn.init.zeros_(net.bias)
            name = str(args.device)
            y = torch.zeros(3, 2).to(name).to(device)
            return net(torch.ones(3, 2).to(args.device)), y, y.to(args.device, torch.float32)
    """
    run = run_both(source)
    assert run.same and not run.left, (run.error, run.left)


def test_items_of_a_parameter_list_are_read_as_arrays() -> None:
    source = """
        import torch
        from torch import nn
        from einops import repeat

        class Net(nn.Module):
            def __init__(self, n):
                super().__init__()
                self.layers = nn.ModuleList([nn.Identity() for _ in range(2)])
                self.tokens = nn.ParameterList([nn.Parameter(torch.full((n,), float(i + 1))) for i in range(2)])

            def forward(self, x):
                for t in self.tokens:
                    x = x + repeat(t, "d -> b d", b=x.shape[0])
                for i, (layer, t) in enumerate(zip(self.layers, self.tokens)):
                    x = layer(x) * repeat(t, "d -> b d", b=x.shape[0]) + i * self.tokens[0]
                return x

        def main():
            return Net(3)(torch.ones(2, 3))
    """
    run = run_both(source)
    assert run.same and not run.left, (run.error, run.left)


def test_a_buffer_that_is_an_index_is_read() -> None:
    source = """
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("at", torch.tensor([2, 0]), persistent=False)

            def forward(self, x):
                return x[self.at] + x[:, self.at].sum() + self.at[0]

        def main():
            return Net()(torch.arange(9.0).view(3, 3))
    """
    run = run_both(source)
    assert run.same and not run.left, (run.error, run.left)


MIXINS = """
import torch
from torch import nn


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        return self.fc(x)


class Twice:
    def forward(self, x, *args):
        return 2 * super().forward(x, *args)

    def again(self, x):
        return self.forward(self.forward(x))


class Double(Twice, Base):
    pass


class Mixin:
    def forward(self, x, token=None):
        return self.fc(x) * (1 if token is None else token)


class Both(Mixin, Base):
    def extra(self):
        return 1


class Plain(Mixin):
    fc = torch.abs


class Last(Both):
    def forward(self, x):
        return super().forward(x, torch.full((), 2.0))


def main():
    net = Last()
    nn.init.ones_(net.fc.weight)
    nn.init.zeros_(net.fc.bias)
    double = Double()
    nn.init.ones_(double.fc.weight)
    nn.init.zeros_(double.fc.bias)
    both = Both()
    both.load_state_dict(net.state_dict())
    x = torch.ones(1, 3)
    return net(x), both(x, 3.0), double.again(x), both.forward(x), Plain().forward(-x, 2)
"""


def test_mixins_give_modules_their_forward() -> None:
    """A class that is no module is the first base: its `forward` is what a call runs."""
    run = run_both(MIXINS)
    assert run.same and not run.left, (run.error, run.outcome.after)
