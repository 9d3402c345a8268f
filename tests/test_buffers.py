"""Tensors made of NumPy arrays that are written again: copied, shared, or read by JAX in the background."""

from __future__ import annotations

import pytest
from runner import run_both

HEAD = "import numpy as np\nimport torch\n\n\n"
COPIED = {
    "a write below": """
def main():
    a = np.ones(1_000_000, dtype=np.float32)
    t = torch.tensor(a)
    a[:] = 5
    return t.max().item()
""",
    "an augmented write to what a view shows": """
def main():
    a = np.ones(1_000_000, dtype=np.float32)
    t = torch.tensor(a[2:])
    a += 1
    return t.max().item()
""",
    "a buffer of a loop": """
def main():
    buf, seen = np.zeros(4, dtype=np.float32), []
    for i in range(3):
        buf[i] = 1
        seen.append(torch.tensor(buf))
    return [t.tolist() for t in seen]
""",
    "a buffer of an object": """
class Frames:
    def __init__(self):
        self.frames = np.zeros((2, 3), dtype=np.float32)
    def push(self, x):
        self.frames[:-1] = self.frames[1:]
        self.frames[-1] = x
    def stack(self):
        return torch.tensor(self.frames)
def main():
    frames = Frames()
    frames.push(1.0)
    first = frames.stack()
    frames.push(2.0)
    return first.tolist(), frames.stack().tolist()
""",
    "a function that writes": """
def main():
    a = np.ones(8, dtype=np.float32)
    t = torch.tensor(a)
    np.add(a, 1, out=a)
    a.fill(7)
    return t.tolist()
""",
}
PLAIN = {
    "filled before": """
def main():
    a = np.zeros(3, dtype=np.float32)
    a[1] = 1
    return torch.tensor(a).tolist()
""",
    "an array of each turn": """
def main():
    seen = []
    for i in range(3):
        hot = np.zeros(4, dtype=np.float32)
        hot[i] = 1
        seen.append(torch.tensor(hot))
    return [t.tolist() for t in seen]
""",
    "filled by the constructor": """
class Table:
    def __init__(self):
        self.rows = np.zeros(3, dtype=np.float32)
        self.rows[0] = 2
    def tensor(self):
        return torch.tensor(self.rows)
def main():
    return Table().tensor().tolist()
""",
}


@pytest.mark.parametrize("name", COPIED)
def test_written_again_is_copied(name: str) -> None:
    both = run_both(HEAD + COPIED[name])
    assert both.same and not both.left, both
    assert ".copy()" in both.outcome.after


@pytest.mark.parametrize("name", PLAIN)
def test_not_written_again_is_not_copied(name: str) -> None:
    both = run_both(HEAD + PLAIN[name])
    assert both.same and not both.left, both
    assert ".copy()" not in both.outcome.after


@pytest.mark.parametrize("call", ["from_numpy", "as_tensor", "asarray", "FloatTensor", "Tensor"])
def test_shared_and_written_again_is_left(call: str) -> None:
    program = f"""
def main():
    a = np.ones(3, dtype=np.float32)
    t = torch.{call}(a)
    a[0] = 5
    return t.tolist()
"""
    both = run_both(HEAD + program)
    assert both.expected == [5.0, 1.0, 1.0]
    assert [f.code for f in both.left] == ["JM206"]


@pytest.mark.parametrize("call", ["torch.from_numpy(a)", "torch.as_tensor(a)", "torch.asarray(a)"])
def test_shared_memory_is_stated(call: str) -> None:
    both = run_both(f"{HEAD}def main():\n    a = np.ones(3, dtype=np.float32)\n    return {call}.tolist()\n")
    assert both.same and "JM101" in both.codes
