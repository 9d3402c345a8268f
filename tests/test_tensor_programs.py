"""Indexing and types of small programs: equal to torch in values, shapes and kinds of types, or reported."""

from __future__ import annotations

import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from converted import convert, under_jax, under_torch

HEAD = "import torch\n\n\n"
EQUAL = """
def i1(x: torch.Tensor): return x[[0, 2]]
def i2(x: torch.Tensor): return x[[0, 2], [1, 3]]
def i4(x: torch.Tensor): return x[[True, False, True]]
def i5(x: torch.Tensor): return x[:, [0, 1]]
def i9(x: torch.Tensor):
    m = (x > 0).byte()
    return x[m]
def i11(x3: torch.Tensor): return x3[0, :, [0, 1]]
def i12(x3: torch.Tensor): return x3[:, 0, [0, 1]]
def i13(x3: torch.Tensor): return x3[[0, 1], :, [0, 1]]
def i14(x3: torch.Tensor): return x3[:, torch.tensor([0, 1]), 0]
def i15(x3: torch.Tensor): return x3[0, ..., torch.tensor([0, 1])]
def i16(x3: torch.Tensor): return x3[torch.tensor(1)]
def i19(x: torch.Tensor): return x[False]
def i20(x: torch.Tensor): return x[torch.tensor(True)]
def i22(x: torch.Tensor): return x[[]]
def i24(x3: torch.Tensor): return x3[:, torch.tensor([True, False, True])]
def i25(x3: torch.Tensor): return x3[torch.tensor([0, 1]), torch.tensor([True, False, True])]
def i26(x3: torch.Tensor): return x3[0][[1, 0]]
def i31(x: torch.Tensor): return x[torch.tensor([-1, 0])]
def i33(x: torch.Tensor): return x[[0, 1], None]
def i35(x3: torch.Tensor): return x3[:, None, [0, 1]]
def i36(x3: torch.Tensor): return x3[[0, 1], None, :, [0, 1]]
def i38(x3: torch.Tensor): return x3[torch.tensor([[0, 1], [1, 0]])]
def i39(x: torch.Tensor): return x[range(2)]
def i41(x: torch.Tensor):
    idx = [0, 2]
    return x[idx]
def i46(x: torch.Tensor):
    m = torch.tensor([1, 0, 1], dtype=torch.uint8)
    return x[m]
def i47(x: torch.Tensor):
    m = torch.ones(3, dtype=torch.uint8)
    return x[:, 1][m]
def i49(x3: torch.Tensor):
    return x3[0, torch.tensor([0, 1]), 1:]
def i50(x3: torch.Tensor, k: int):
    return x3[k, :, torch.tensor([0, 1])]
def i51(x: torch.Tensor):
    i, j = torch.where(x > 0)
    return x[i, j]
def i56(x3: torch.Tensor):
    return x3[..., 0, [0, 1]]
def i58(x3: torch.Tensor):
    return x3[[1, 0], 0, [1, 2]]
def d1(x: torch.Tensor): return (x * 300).to(torch.uint8)
def d2(x: torch.Tensor): return (x * 300).type(torch.uint8)
def d4(x: torch.Tensor): return (x * 300).byte() - 5
def d5(x: torch.Tensor): return (x * 100).byte().sum() - 5000
def d6(x: torch.Tensor): return (x > 0) + (x > 1)
def d7(x: torch.Tensor): return (x * 9).long() // 2
def d9(x: torch.Tensor): return (x * 9).long() % -3
def d11(x: torch.Tensor): return torch.tensor([1, 2], dtype=torch.uint8) + 300
def d12(x: torch.Tensor): return torch.tensor([1, 2], dtype=torch.int8) * 100
def d14(x: torch.Tensor): return torch.ones(2, dtype=torch.bfloat16) + torch.ones(2, dtype=torch.float16)
def d17(x: torch.Tensor): return torch.ones(2, dtype=torch.int32) * torch.tensor(2.5)
def d18(x: torch.Tensor): return torch.ones(2, dtype=torch.float16) / 3
def d21(x: torch.Tensor): return (x > 0).sum() / x.numel()
def d23(x: torch.Tensor): return torch.div((x * 9).long(), 2, rounding_mode='floor')
def d24(x: torch.Tensor): return torch.div((x * 9).long(), 2, rounding_mode='trunc')
def d25(x: torch.Tensor): return torch.floor_divide(x, 0.3)
def d37(x: torch.Tensor): return torch.tensor(5).to(torch.uint8) - torch.tensor([7], dtype=torch.uint8)
def d38(x: torch.Tensor): return (x * 100).to(torch.uint8).float().mean()
def d39(x: torch.Tensor): return (x * 100).to(torch.uint8).cumsum(0) - 300
def d41(x: torch.Tensor): return (x * 100).clamp(0, 255).to(torch.uint8).sum(0) - 300
def d44(x: torch.Tensor): return torch.where(x > 0, 1, 0) / 2
def d45(x: torch.Tensor): return torch.where(x > 0, x.half(), 0.5)
def d47(x: torch.Tensor): return -(x * 9).to(torch.uint8)
def d51(x: torch.Tensor): return torch.stack([x[0].half(), x[1].half()]) * 2.5
def d53(x: torch.Tensor): return torch.pow(2, (x * 3).long())
def r1(x: torch.Tensor): return x.mean(tuple(range(2, x.ndim)))
def r2(x: torch.Tensor): return x.sum(list(range(2, x.dim())), keepdim=True)
def r3(x: torch.Tensor):
    dims = [i for i in range(2, x.ndim)]
    return x.amax(dims) + x.std(dims) + torch.norm(x, dim=dims) + torch.count_nonzero(x, dims)
def r4(x: torch.Tensor): return x.var(dim=[i for i in range(2, x.ndim)])
def r9(x: torch.Tensor):
    def pool(v, dims: "tuple[int, ...] | None" = None): return v.mean(dims)
    return pool(x) + pool(x, (0,)).sum() + pool(x, ())
def r5(x3: torch.Tensor): return x3.mean(tuple(range(1, x3.ndim)))
def r6(x: torch.Tensor): return torch.linalg.vector_norm(x, dim=())
def r7(x: torch.Tensor): return torch.any(x > 0, dim=tuple(range(2, x.ndim)))
def r8(x: torch.Tensor):
    y = x[0, 1].clone()
    y.cumsum_(0)
    return torch.logsumexp(x[0, 0], (0,)) + y
"""
LEFT = """
def d13(x: torch.Tensor): return torch.ones(2, dtype=torch.float16) * torch.tensor(2.0)
def i3(x: torch.Tensor): return x[[[0, 1], [2, 0]]]
def i17(x3: torch.Tensor): return x3[torch.tensor(1), :, torch.tensor([0, 2])]
def i40(x: torch.Tensor): return x[[torch.tensor(0), torch.tensor(2)]]
def i44(x: torch.Tensor):
    return x[[slice(0, 2), 1]]
def d15(x: torch.Tensor): return torch.ones(2, dtype=torch.float16) + x[0, 0]
def d16(x: torch.Tensor): return x.half() * x.mean()
def d54(x: torch.Tensor): return torch.tensor(2 ** 40)
"""


def programs(text: str) -> list[str]:
    return re.split(r"\n(?=def )", text.strip())


def name(program: str) -> str:
    return program.partition("(")[0].removeprefix("def ")


def inputs() -> dict[str, np.ndarray | int]:
    draw = np.random.default_rng(3)
    return {"x": draw.normal(size=(3, 4)).astype("f4"), "x3": draw.normal(size=(2, 3, 4)).astype("f4"), "k": 1}


def arguments(program: str) -> list[np.ndarray | int]:
    return [v for k, v in inputs().items() if re.search(rf"[(, ]{k}:", program.partition(")")[0])]


@pytest.mark.parametrize("program", programs(EQUAL), ids=name)
def test_equal(program: str, tmp_path: Path) -> None:
    converted = convert(HEAD + program + "\n")
    assert not converted.left
    original, migrated = under_torch(HEAD + program), under_jax(converted, tmp_path)
    given = arguments(program)
    wanted = getattr(original, name(program))(*(torch.tensor(a) if isinstance(a, np.ndarray) else a for a in given))
    got = getattr(migrated, name(program))(*(jnp.asarray(a) if isinstance(a, np.ndarray) else a for a in given))
    assert kind(str(got.dtype)) == kind(str(wanted.dtype).removeprefix("torch."))
    loose = {"rtol": 2e-2, "atol": 1e-2} if "16" in str(got.dtype) else {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(got.astype(jnp.float32), wanted.float().numpy(), **loose)


def kind(dtype: str) -> str:
    return dtype.replace("64", "32")


@pytest.mark.parametrize("program", programs(LEFT), ids=name)
def test_left(program: str) -> None:
    assert convert(HEAD + program + "\n").left


def test_sums_of_what_may_be_small_integers_are_stated_once() -> None:
    source = HEAD + "def f(x: torch.Tensor, y: torch.Tensor):\n    return x.cumsum(0), y.sum(), torch.uint8\n"
    assert convert(source).codes().count("JM111") == 1
    assert "JM111" not in convert(source.replace("torch.uint8", "torch.float32")).codes()


def test_indices_that_stand_apart_may_be_scalars() -> None:
    source = HEAD + "def f(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor):\n    return x[i, :, j]\n"
    assert "JM101" in convert(source).codes()
    assert "JM101" not in convert(source.replace("[i, :, j]", "[:, i, j]")).codes()
