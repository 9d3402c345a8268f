"""Control flow on tensor values, side effects under jit, index ranges: what is reported, where, and what is not."""

from __future__ import annotations

import textwrap

import pytest

from jaxmigrate.config import Settings
from jaxmigrate.project import convert_files
from jaxmigrate.read.source import Source
from jaxmigrate.report.findings import Finding
from jaxmigrate.rulebook import load_rules

HEAD = "import contextlib\n\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\n"
WATCHED = ("JM141", "JM142", "JM143", "JM151", "JM209")


def findings(body: str, settings: Settings | None = None) -> list[Finding]:
    run = convert_files([Source("m.py", HEAD + textwrap.dedent(body))], load_rules(), settings)
    return [f for f in run.findings if f.code in WATCHED]


def function(body: str, params: str = "x: torch.Tensor, y: torch.Tensor") -> str:
    return f"def f({params}):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"


# One construct each: the source, the text that the finding is about, what its advice names.
HAZARDS = {
    "if": ("if x.sum() > 0:\n    x = x * 2\nreturn x", "x.sum() > 0", "jax.lax.cond"),
    "elif": (
        "if x.ndim > 1:\n    x = y\nelif (x > 0).any():\n    x = x * 2\nreturn x",
        "(x > 0).any()",
        "jax.lax.cond",
    ),
    "if with return": ("if x.any():\n    return x\nreturn y", "x.any()", "compute both"),
    "if with raise": ("if torch.isnan(x).any():\n    raise ValueError\nreturn x", "torch.isnan(x).any()", "checkify"),
    "while": ("while x.norm() > 1:\n    x = x / 2\nreturn x", "x.norm() > 1", "jax.lax.while_loop"),
    "assert": ("assert (x > 0).all(), 'positive'\nreturn x", "assert (x > 0).all(), 'positive'", "checkify"),
    "ternary": ("return x if x.max() > 1 else y", "x if x.max() > 1 else y", "jnp.where"),
    "and": ("return x.any() and y.any()", "x.any() and y.any()", "jnp.logical_and"),
    "or": ("return x.any() or y", "x.any() or y", "jnp.logical_or"),
    "not": ("return not x.any()", "not x.any()", "jnp.logical_not"),
    "bool": ("return bool(x.any())", "bool(x.any())", "jnp.logical_not"),
    "and in an if": ("if len(x) > 1 and x.any():\n    x = y\nreturn x", "len(x) > 1 and x.any()", "jax.lax.cond"),
    "in": ("return 3 in x", "3 in x", "jnp.any(x == value)"),
    "chain": ("return 0 < x.mean() < 1", "0 < x.mean() < 1", "&"),
    "max": ("return max(x[0], y[0])", "max(x[0], y[0])", "jnp.maximum"),
    "min of a tensor": ("return min(x)", "min(x)", "jnp.min"),
    "sorted": ("return sorted(x)", "sorted(x)", "jnp.sort"),
    "all": ("return all(x)", "all(x)", "jnp.all"),
    "filter": ("return [v for v in x if v > 0]", "[v for v in x if v > 0]", "mask"),
    "range": ("n = x.sum()\nfor _ in range(n):\n    y = y + 1\nreturn y", "range(n)", "fori_loop"),
    "mask": ("return x[x > 0]", "x[x > 0]", "jnp.where"),
    "mask by name": ("m = (x > 0) & ~torch.isnan(y)\nreturn y[:, m]", "y[:, m]", "jnp.where"),
    "nonzero": ("return x.nonzero()", "x.nonzero()", ""),
    "unique": ("return torch.unique(x)", "torch.unique(x)", ""),
}


@pytest.mark.parametrize("name", HAZARDS)
def test_what_jit_cannot_trace_is_reported_once_with_advice(name: str) -> None:
    body, place, advice = HAZARDS[name]
    found = findings(function(body))
    assert [(f.code, f.before) for f in found] == [("JM141", place)]
    assert advice in found[0].advice


SIZES = {"nonzero": "x.nonzero()", "unique": "torch.unique(x)", "masked_select": "x.masked_select(y > 0)"}


@pytest.mark.parametrize("name", SIZES)
def test_results_sized_by_values_name_what_jit_needs(name: str) -> None:
    (found,) = findings(function(f"return {SIZES[name]}"))
    assert found.code == "JM141"
    assert ("size=" in found.message) == (name != "masked_select")


FINE = {
    "None": "if x is None:\n    return y\nreturn x",
    "shape": "if x.shape[0] > 3 and x.ndim == 2 and not x.is_floating_point():\n    return y\nreturn x",
    "item": "n = int(x.sum().item())\nif n > 3:\n    return y\nreturn x",
    "numbers": "n = max(x.shape[0], 3)\nfor i in range(n):\n    x = x * i\nreturn x",
    "type": "if x.dtype == torch.float32 and isinstance(x, torch.Tensor):\n    return y\nreturn x",
    "comparison": "return torch.where(x > 0, x, y)",
    "masked write": "x = x.clone()\nx[x > 0] = 0\nreturn x",
    "list of numbers": "return sorted([3, 1]), [i for i in range(3) if i > 1], all(i for i in (1, 2)), x",
}


@pytest.mark.parametrize("name", FINE)
def test_what_jit_can_trace_is_not(name: str) -> None:
    assert findings(function(FINE[name])) == []


def test_a_flag_that_a_forward_is_given_is_no_tensor() -> None:
    body = """
    class Net(nn.Module):
        def forward(self, x, causal, scale):
            if causal and scale > 1:
                return x * scale
            return torch.relu(x)
    """
    assert findings(body) == []


def test_a_loop_that_jit_unrolls_is_a_note() -> None:
    (found,) = findings(
        function("out = []\nfor i in range(len(x)):\n    out.append(x[i] * 2)\nreturn torch.stack(out)")
    )
    assert (found.code, found.severity) == ("JM143", "note")
    assert "jax.lax.scan" in found.advice


IMPURE = """
seen = []
calls = 0


@torch.compile
def f(x: torch.Tensor):
    global calls
    calls += 1
    print("mean", x.mean())
    print(x.shape)
    seen.append(x)
    local = []
    local.append(x)
    return x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.register_buffer("steps", torch.zeros(()))
        self.last = None
        self.history = []

    def forward(self, x):
        self.steps = self.steps + 1
        h = self.fc(x)
        self.last = h
        self.history.append(h)
        return h

    def reset(self):
        self.last = None
"""


def test_side_effects_of_functions_that_jit_traces_are_reported() -> None:
    found = [(f.before, f.advice) for f in findings(IMPURE) if f.code == "JM142"]
    assert [before for before, _ in found] == [
        "calls", 'print("mean", x.mean())', "seen.append(x)", "self.last", "self.history.append(h)",
    ]  # fmt: skip
    assert "jax.debug.print" in found[1][1]
    assert "nnx.Variable" in found[3][1]


def test_the_same_function_is_fine_when_nothing_compiles_it() -> None:
    body = "seen = []\n\n\ndef f(x: torch.Tensor):\n    print(x)\n    seen.append(x)\n    return x\n"
    assert findings(body) == []


def test_an_index_from_outside_is_said_once_a_file() -> None:
    body = function("a = x[y]\nb = x[:, i]\nreturn a, b, x[0], x[i]", "x: torch.Tensor, y: torch.Tensor, i: int")
    (found,) = findings(body)
    assert (found.code, found.before) == ("JM151", "x[y]")
    assert "2 more places" in found.message or "1 more place" in found.message


IN_RANGE = {
    "loop": "for i in range(len(x)):\n    y = y + x[i]\nreturn y",
    "argmax": "i = y.argmax()\nreturn x[i]",
    "sorted": "order = torch.argsort(y)\nreturn x[order], x[torch.randperm(3)], x[-1], x[2:]",
}


@pytest.mark.parametrize("name", IN_RANGE)
def test_an_index_that_was_made_to_fit_is_not(name: str) -> None:
    assert findings(function(IN_RANGE[name])) == []


def test_an_index_error_that_is_caught_is_refused() -> None:
    (found,) = findings(function("try:\n    return x[y]\nexcept IndexError:\n    return y"))
    assert found.code == "JM209"
    assert "line" in found.message


CAUGHT = {
    "the index of a target": "try:\n    F.cross_entropy(x, y)\nexcept IndexError:\n    return x",
    "a matrix that is not positive": "try:\n    return torch.linalg.cholesky(x)\nexcept RuntimeError:\n    return y",
    "any error at a singular matrix": "try:\n    return x.inverse()\nexcept Exception:\n    return y",
    "a view that cannot be": "try:\n    return x.t().view(-1)\nexcept (ValueError, RuntimeError):\n    return y",
    "suppressed": "with contextlib.suppress(RuntimeError):\n    y = torch.gather(x, 0, y)\nreturn y",
}
PASSED = {
    "an error that JAX raises too": "try:\n    return x @ y\nexcept RuntimeError:\n    return y",
    "any error at an index": "try:\n    return x[y]\nexcept Exception:\n    return y",
    "a matrix behind another error": "try:\n    return x.inverse()\nexcept KeyError:\n    return y",
}


@pytest.mark.parametrize("name", CAUGHT)
def test_a_handler_that_only_torch_reaches_is_refused(name: str) -> None:
    assert "JM209" in [f.code for f in findings(function(CAUGHT[name]))]


@pytest.mark.parametrize("name", PASSED)
def test_a_handler_that_stands_for_other_errors_is_not(name: str) -> None:
    assert "JM209" not in [f.code for f in findings(function(PASSED[name]))]
