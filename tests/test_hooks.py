"""Forward hooks: the same outputs and records as torch, in order, removed again; those that NNX would lose are left."""

from __future__ import annotations

import textwrap
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import runner
import torch
from converted import arrays, convert, with_layers
from flax import nnx

HEAD = "import torch\nfrom torch import nn\n"
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    def forward(self, x):
        return self.body(x)

def filled():
    net = Net()
    for p in net.parameters():
        nn.init.constant_(p, 0.5)
    return net
"""
PROGRAMS = {
    "a factory": """
        activations = {}

        def keep(name):
            def hook(module, args, output):
                activations[name] = output.detach()
            return hook

        def main():
            net = filled()
            net.body[0].register_forward_hook(keep("first"))
            net.body[1].register_forward_hook(keep("second"))
            return net(torch.ones(2, 4)), activations["first"], activations["second"]
        """,
    "a list of handles": """
        def main():
            net, outs = filled(), []
            handles = [layer.register_forward_hook(lambda m, i, o: outs.append(o)) for layer in net.body]
            a = net(torch.ones(2, 4))
            for handle in handles:
                handle.remove()
            return a, outs[0], outs[2], net(torch.ones(2, 4)), len(outs)
        """,
    "what is returned takes the place": """
        def double(module, args):
            return args[0] * 2

        def main():
            net = filled()
            handle = net.body[2].register_forward_pre_hook(double)
            net.body[2].register_forward_hook(lambda m, i, o: o + i[0])
            net.body[2].register_forward_hook(hook=lambda m, i, o: o * 3)
            a = net(torch.ones(2, 4))
            handle.remove()
            return a, net(torch.ones(2, 4))
        """,
    "keyword arguments": """
        class Scaled(nn.Module):
            def forward(self, x, scale=1.0):
                return x * scale

        def before(module, args, kwargs):
            return args, {**kwargs, "scale": kwargs["scale"] * 2}

        def main():
            net = Scaled()
            net.register_forward_pre_hook(before, with_kwargs=True)
            net.register_forward_hook(lambda m, a, k, o: o + k["scale"], with_kwargs=True)
            return net(torch.ones(2), scale=3.0)
        """,
    "a class that collects": """
        class Features:
            def __init__(self, net: nn.Module, count):
                self.kept = []
                self.handles = [net.body[i].register_forward_hook(self.keep) for i in range(count)]

            def keep(self, module, args, output):
                self.kept.append(output)

            def close(self):
                for handle in self.handles:
                    handle.remove()

        def main():
            net = filled()
            features = Features(net, 2)
            net(torch.ones(2, 4))
            features.close()
            net(torch.ones(2, 4))
            return features.kept
        """,
}
LEFT = {
    "a method of a module": ("self.fc.register_forward_hook(self.keep)", "method of a module"),
    "a lambda that holds the module": ("self.fc.register_forward_hook(lambda m, i, o: self.kept.append(o))", "`self`"),
    "prepend": ("self.fc.register_forward_hook(print, prepend=True)", "prepend"),
    "a backward hook": ("self.fc.register_full_backward_hook(print)", "register_full_backward_hook"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_hooks_see_and_change_what_torchs_do(name: str) -> None:
    run = runner.run_both(HEAD + NET + textwrap.dedent(PROGRAMS[name]))
    assert not run.left, [f.message for f in run.left]
    assert "JM142" in run.codes
    assert run.same, (run.outcome.after, run.expected, run.got, run.error)


@pytest.mark.parametrize("name", LEFT)
def test_a_hook_that_would_be_lost_is_left(name: str) -> None:
    line, says = LEFT[name]
    source = f"""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.kept = nn.Linear(4, 4), []
        {line}

    def keep(self, module, args, output):
        self.kept.append(output)

    def forward(self, x):
        return self.fc(x)
"""
    assert any(says in text for text in convert(HEAD + source).left)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("net.forward(torch.ones(2, 4))", "calls `forward` itself"),
        ("[type(m) is nn.Linear for m in net.body]", "compares the type"),
        ("[type(m) in (Net, nn.ReLU) for m in net.modules()]", "compares the type"),
    ],
)
def test_what_tells_a_hooked_module_apart_is_reported(line: str, says: str) -> None:
    source = "\ndef main():\n    net, seen = filled(), []\n"
    source += "    net.register_forward_hook(lambda m, i, o: seen.append(o))\n"
    program = HEAD + NET + source
    assert not convert(f"{program}    return [type(s) is list for s in seen]\n").left
    assert any(says in text for text in convert(f"{program}    return {line}\n").left)


def test_hooks_work_under_jit_and_in_gradients(tmp_path: Path) -> None:
    source = NET + "\ndef build():\n    net = filled()\n    net.body[0].register_forward_hook(lambda m, i, o: o * 3)\n"
    source = f"{HEAD}{source}    return net\n"
    names: dict[str, object] = {}
    exec(compile(source, "original.py", "exec"), names)
    net = names["build"]()  # type: ignore[operator]
    net(torch.ones(2, 4)).sum().backward()
    program, layers = with_layers(convert(source), tmp_path)
    model = program.build(rngs=nnx.Rngs(0))
    x = jnp.ones((2, 4))
    np.testing.assert_allclose(nnx.jit(lambda m, x: m(x))(model, x), net(torch.ones(2, 4)).detach().numpy())
    gradients = nnx.jit(nnx.grad(lambda m: m(x).sum()))(model)
    assert len(arrays(net.state_dict())) == len(dict(layers.named_variables(model)))
    np.testing.assert_allclose(gradients["body"]["0"]["weight"][...], net.body[0].weight.grad.numpy())
