"""The forms in which a training step is written: how often it compiles, that what it changes is kept, and when it is
bound to its modules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from converted import Converted, convert, under_jax
from flax import nnx
from trained import NORMED, TOLERANCE, both, data, same_weights

from jaxmigrate.layers.library.base import state_dict

FIT = (
    NORMED
    + """
def fit(model: nn.Module, xs: torch.Tensor, ys: torch.Tensor):
    opt = optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    MADE
    losses = []
    for epoch in range(2):
        for i, (x, y) in enumerate(zip(xs, ys)):
            BEFORE
            opt.zero_grad()
            loss = LOSS
            loss.backward()
            opt.step()
            AFTER
            losses.append(loss.item())
    return losses
"""
)
PLAIN = {"MADE": "pass", "BEFORE": "pass", "LOSS": "F.cross_entropy(model(x), y)", "AFTER": "pass"}
S = "torch.optim.lr_scheduler."


def filled(**parts: str) -> str:
    source = FIT
    for name, text in (PLAIN | parts).items():
        source = source.replace(name, text)
    return source


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    """The names of the functions that XLA compiles."""
    names: list[str] = []

    def note(event: str, _: float, **about: Any) -> None:
        if event.endswith("backend_compile_duration"):
            names.append(str(about.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(note)
    yield names
    jax.monitoring.unregister_event_duration_listener(note)


FORMS = {
    "plain": {},
    "a rate for each step": {"MADE": f"s = {S}CosineAnnealingLR(opt, 10)", "AFTER": "s.step()"},
    "warm restarts": {"MADE": f"s = {S}CosineAnnealingWarmRestarts(opt, 2, T_mult=2)", "AFTER": "s.step()"},
    "a lambda": {"MADE": f"s = {S}LambdaLR(opt, lambda e: min(1.0, (e + 1) / 4))", "AFTER": "s.step()"},
    "a rate by hand": {"BEFORE": "for g in opt.param_groups:\n                g['lr'] = 0.2 / (i + 1)"},
    "annealing": {"BEFORE": "beta = min(1.0, (i + 1) / 10)",
                  "LOSS": "F.cross_entropy(model(x), y) + beta * torch.mean(model(x) ** 2)"},
    "temperature": {"MADE": "tau = 2.0", "LOSS": "F.cross_entropy(model(x) / tau, y)", "AFTER": "tau = tau * 0.9"},
    "a counter": {"LOSS": "F.cross_entropy(model(x), y) / (i + 1)"},
    "an epoch": {"LOSS": "F.cross_entropy(model(x), y) * 0.5 ** epoch"},
    "a count of its own": {"MADE": "steps = 0", "LOSS": "F.cross_entropy(model(x), y) * (1 - steps / 20)",
                           "AFTER": "steps += 1"},
    "a clipped norm": {"LOSS": "F.cross_entropy(model(x), y)",
                       "AFTER": "pass", "BEFORE": "bound = 1.0 / (epoch + 1)"},
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_step_is_compiled_once(form: str, tmp_path: Path, compiled: list[str]) -> None:
    source = filled(**FORMS[form])
    if form == "a clipped norm":
        source = source.replace(
            "            opt.step()",
            "            nn.utils.clip_grad_norm_(model.parameters(), bound)\n            opt.step()",
        )
    converted, theirs, ours, model, twin = both(source, tmp_path)
    xs, ys = data(5)
    want = theirs.fit(model, torch.tensor(xs), torch.tensor(ys))
    got = ours.fit(twin, jnp.asarray(xs), jnp.asarray(ys))
    np.testing.assert_allclose(got, want, rtol=TOLERANCE, atol=TOLERANCE)
    same_weights(twin, model)
    assert compiled.count("jit(train_step)") == 1, converted.text
    assert "nnx.cached_partial(train_step, model, opt)" in converted.text


DROPPED = (
    NORMED.replace("torch.tanh(", "self.drop(").replace(
        "self.last =", "self.drop = nn.Dropout(0.5)\n        self.last ="
    )
    + """
def fit(model: Net, xs: torch.Tensor, ys: torch.Tensor):
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for epoch in range(2):
        model.train()
        for x, y in zip(xs, ys):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        losses.append(F.cross_entropy(model(xs[0]), ys[0]).item())
    return losses
"""
)


def test_buffers_and_random_streams_move_on(tmp_path: Path) -> None:
    """Bound or not, the step leaves the same statistics, weights and number of draws behind."""
    converted = convert(DROPPED)
    assert not converted.left and "nnx.cached_partial(train_step, model, optimizer)" in converted.text
    unbound = Converted(
        "import functools\n" + converted.text.replace("nnx.cached_partial", "functools.partial"),
        converted.layers, converted.findings, converted.status,
    )  # fmt: skip
    xs, ys = data(5)
    states, losses = [], []
    for program in (converted, unbound):
        module = under_jax(program, tmp_path)
        model = module.Net(rngs=nnx.Rngs(3))
        losses.append(module.fit(model, jnp.asarray(xs), jnp.asarray(ys)))
        counts = [int(v[...]) for _, v in nnx.iter_graph(model) if isinstance(v, nnx.RngCount)]
        states.append({"counts": counts, **state_dict(model)})
    assert max(states[0]["counts"]) == 10
    assert not np.allclose(states[0]["norm.running_mean"], 0)
    for name, value in states[0].items():
        np.testing.assert_allclose(states[1][name], value, rtol=1e-6, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)
    assert len(set(losses[0])) == len(losses[0])


LOOP = """
def fit(model: Net, xs: torch.Tensor, ys: torch.Tensor):
    opt = optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(2):
        OUTER
        for x, y in zip(xs, ys):
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            INNER
"""
EVALUATE = """
def evaluate(model, x):
    MODE
    with torch.no_grad():
        return model(x)

"""
PLACES = {
    "the whole run": ("pass", "pass", "", 4),
    "an epoch": ("model.train()", "pass", "", 8),
    "train in the loop": ("pass", "model.train()", "", None),
    "eval in a helper": ("pass", "evaluate(model, x)", "model.eval()", None),
    "eval in a helper of the epoch": ("evaluate(model, xs[0])", "pass", "model.eval()", 8),
    "a helper that leaves the mode": ("pass", "evaluate(model, x)", "pass", 4),
    "a layer is replaced": ("pass", "model.last.bias = None", "", None),
    "something unknown is called": ("pass", "hook(x)", "", None),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_step_is_bound_where_nothing_changes_its_modules(place: str) -> None:
    outer, inner, mode, indent = PLACES[place]
    source = NORMED + EVALUATE.replace("MODE", mode or "pass") + LOOP.replace("OUTER", outer).replace("INNER", inner)
    if "hook" in inner:
        source = source.replace("ys: torch.Tensor):", "ys: torch.Tensor, hook):")
    text = convert(source).text
    assert "def train_step(" in text
    bound = [line for line in text.splitlines() if "nnx.cached_partial(train_step, model, opt)" in line]
    assert [len(line) - len(line.lstrip()) for line in bound] == ([indent] if indent else [])


CHANGING = {
    "a global that the function sets": (
        "beta = 0.0\n\n\ndef penalty(out: torch.Tensor):\n    return beta * torch.mean(out ** 2)",
        "global beta", "beta = beta + 0.5", "penalty(out)",
    ),
    "an entry of a global": (
        "options = {'beta': 0.0}\n\n\ndef penalty(out: torch.Tensor):\n    return options['beta'] * out.abs().mean()",
        "pass", "options['beta'] += 0.5", "penalty(out)",
    ),
    "an entry of a local": (
        "", "weights = [0.0]\n\n    def penalty(out: torch.Tensor):\n        return weights[0] * torch.mean(out ** 2)",
        "weights[0] += 0.5", "penalty(out)",
    ),
    "a local entry itself": ("", "weights = [0.0]", "weights[0] += 0.5", "weights[0] * torch.mean(out ** 2)"),
    "a tensor in place": ("", "shift = torch.zeros(2)", "shift.add_(0.5)", "torch.mean((out + shift) ** 2)"),
    "an attribute, by a function that is handed on": (
        "def halve(net: Net):\n    net.scale = net.scale * 0.5", "model.scale = 1.0", "list(map(halve, [model]))",
        "model.scale * torch.mean(out ** 2)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGING)
def test_what_changes_outside_is_not_compiled_in(what: str, tmp_path: Path) -> None:
    above, made, change, term = CHANGING[what]
    source = (
        NORMED + above + """


def fit(model: Net, xs: torch.Tensor, ys: torch.Tensor):
    MADE
    opt = optim.SGD(model.parameters(), lr=0.2)
    losses = []
    for x, y in zip(xs, ys):
        CHANGE
        opt.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y) + TERM
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses
"""
    )  # fmt: skip
    source = source.replace("MADE", made).replace("CHANGE", change).replace("TERM", term)
    _, theirs, ours, model, twin = both(source, tmp_path)
    xs, ys = data(5)
    want = theirs.fit(model, torch.tensor(xs), torch.tensor(ys))
    np.testing.assert_allclose(ours.fit(twin, jnp.asarray(xs), jnp.asarray(ys)), want, rtol=TOLERANCE, atol=TOLERANCE)


ACCUMULATE = (
    NORMED
    + """
def fit(model: nn.Module, xs: torch.Tensor, ys: torch.Tensor):
    opt = optim.AdamW(model.parameters(), lr=0.02)
    MADE
    losses = []
    opt.zero_grad()
    for i, (x, y) in enumerate(zip(xs, ys)):
        loss = F.cross_entropy(model(x), y) / 2
        BACKWARD
        if (i + 1) % 2 == 0 or i + 1 == len(xs):
            UPDATE
            opt.zero_grad()
        losses.append(loss.item())
    return losses
"""
)
CLIP = "nn.utils.clip_grad_norm_(model.parameters(), 0.3)"
UPDATES = {
    "plain": ("pass", "loss.backward()", ["opt.step()"]),
    "clipped": ("pass", "loss.backward()", [CLIP, "opt.step()"]),
    "the norm kept": ("norms = []", "loss.backward()", [f"norm = {CLIP}", "opt.step()", "losses.append(norm.item())"]),
    "scaled": ("scaler = torch.cuda.amp.GradScaler(enabled=False)", "scaler.scale(loss).backward()",
               ["scaler.unscale_(opt)", CLIP, "scaler.step(opt)", "scaler.update()"]),
    "a rate for each update": (f"s = {S}StepLR(opt, 1, 0.5)", "loss.backward()", ["opt.step()", "s.step()"]),
}  # fmt: skip


@pytest.mark.parametrize("form", UPDATES)
def test_accumulated_gradients(form: str, tmp_path: Path, compiled: list[str]) -> None:
    made, backward, update = UPDATES[form]
    source = ACCUMULATE.replace("MADE", made).replace("BACKWARD", backward)
    source = source.replace("UPDATE", "\n            ".join(update))
    converted, theirs, ours, model, twin = both(source, tmp_path)
    xs, ys = data(7)
    want = theirs.fit(model, torch.tensor(xs), torch.tensor(ys))
    np.testing.assert_allclose(ours.fit(twin, jnp.asarray(xs), jnp.asarray(ys)), want, rtol=TOLERANCE, atol=TOLERANCE)
    same_weights(twin, model)
    assert compiled.count("jit(grad_step)") == 2  # without gradients to add to, and with them
    assert compiled.count("jit(update_step)") == 1, converted.text
    (said,) = [f for f in converted.findings if f.name == "torch.optim.Optimizer.step"]
    assert said.code == "JM002" and "grad_step and update_step under nnx.jit" in said.message


def test_what_is_bound_before_the_loop_is_no_argument() -> None:
    source = (
        NORMED
        + """
if torch.cuda.is_available():
    scale = 2.0
else:
    scale = 1.0
model = Net()
opt = optim.SGD(model.parameters(), lr=0.2)
rest = 1.0
for x, y in zip(torch.randn(3, 8, 3), torch.randint(0, 2, (3, 8))):
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y) * scale * rest
    loss.backward()
    opt.step()
    rest = rest * 0.5
"""
    )
    text = convert(source).text
    assert "def train_step(model, opt, x, y, rest):" in text and "cached_train_step(x, y, rest)" in text


CARRIED = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.linear = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor, h):
        out, (h, c) = self.lstm(self.embed(x), h)
        return self.linear(out.reshape(-1, 8)), (h, c)


def detach(states):
    return [state.detach() for state in states]


def fit(model: Net, ids: torch.Tensor):
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for epoch in range(2):
        states = (torch.zeros(1, 4, 8), torch.zeros(1, 4, 8))
        for i in range(0, ids.size(1) - 5, 5):
            inputs = ids[:, i : i + 5]
            targets = ids[:, (i + 1) : (i + 1) + 5]
            states = detach(states)
            outputs, states = model(inputs, states)
            loss = criterion(outputs, targets.reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
"""


def test_carried_states_are_arguments(tmp_path: Path, compiled: list[str]) -> None:
    converted, theirs, ours, model, twin = both(CARRIED, tmp_path)
    ids = np.random.default_rng(0).integers(0, 10, (4, 31))
    want = theirs.fit(model, torch.tensor(ids))
    np.testing.assert_allclose(ours.fit(twin, jnp.asarray(ids)), want, rtol=TOLERANCE, atol=TOLERANCE)
    assert "cached_train_step(states, inputs, targets)" in converted.text
    assert compiled.count("jit(train_step)") == 1


OUTSIDE = {
    "weights are put back": """
        if i % 3 == 2:
            model.load_state_dict(best)
        for p in model.parameters():
            p.data.clamp_(-0.5, 0.5)
""",
    "an average follows": """
        with torch.no_grad():
            for p, q in zip(average.parameters(), model.parameters()):
                p.mul_(0.9).add_(q, alpha=0.1)
        losses.append(F.cross_entropy(average(x), y).item())
""",
}


@pytest.mark.parametrize("what", OUTSIDE)
def test_a_bound_step_and_the_loop_see_the_same_weights(what: str, tmp_path: Path) -> None:
    source = (
        "import copy\n"
        + NORMED.replace("self.norm(self.first(x))", "self.first(x)")
        + f"""
def fit(model: Net, xs: torch.Tensor, ys: torch.Tensor):
    opt = optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    losses = []
    best, average = copy.deepcopy(model.state_dict()), copy.deepcopy(model)
    for i, (x, y) in enumerate(zip(xs, ys)):
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item()){OUTSIDE[what]}    return losses
"""
    )
    converted, theirs, ours, model, twin = both(source, tmp_path)
    assert "nnx.cached_partial(train_step, model, opt)" in converted.text
    xs, ys = data(7)
    want = theirs.fit(model, torch.tensor(xs), torch.tensor(ys))
    np.testing.assert_allclose(ours.fit(twin, jnp.asarray(xs), jnp.asarray(ys)), want, rtol=TOLERANCE, atol=TOLERANCE)
    same_weights(twin, model)


HELD_NUMBERS = (
    NORMED
    + """
class Options:
    def __init__(self):
        self.divide, self.beta = 3, 0.5


def train(options, model: Net, loader, optimizer):
    losses = []
    for x, y in loader:
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y) / options.divide + options.beta * torch.mean(out ** 2)
        loss.backward()
        optimizer.step()
        options.beta = options.beta * 0.5
        losses.append(loss.item())
    return losses


class Trainer:
    def __init__(self, model: Net, scale=2):
        self.model = model
        self.scale = scale
        self.optimizer = optim.SGD(model.parameters(), lr=0.1)

    def fit(self, loader):
        losses = []
        for x, y in loader:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y) / self.scale
            loss.backward()
            self.optimizer.step()
            self.scale = self.scale + 1
            losses.append(loss.item())
        return losses


def fit(model: Net, xs: torch.Tensor, ys: torch.Tensor):
    pairs = list(zip(xs, ys))
    first = train(Options(), model, pairs, optim.SGD(model.parameters(), lr=0.1))
    return first + Trainer(model).fit(pairs)
"""
)


def test_numbers_that_objects_hold_are_arguments(tmp_path: Path, compiled: list[str]) -> None:
    converted, theirs, ours, model, twin = both(HELD_NUMBERS, tmp_path)
    assert "cached_train_step(options.divide, options.beta, x, y)" in converted.text
    assert "cached_training_step(self.scale, x, y)" in converted.text
    xs, ys = data(7)
    want = theirs.fit(model, torch.tensor(xs), torch.tensor(ys))
    np.testing.assert_allclose(ours.fit(twin, jnp.asarray(xs), jnp.asarray(ys)), want, rtol=TOLERANCE, atol=TOLERANCE)
    assert compiled.count("jit(train_step)") == compiled.count("jit(training_step)") == 1
