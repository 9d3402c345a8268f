"""What a script's own `__main__` says about what to run."""

from __future__ import annotations

import pytest

from jaxmigrate.verify.main_cases import cases_of_main

HEAD = "import torch\nclass Net:\n    pass\ndef fn(x, n):\n    pass\n"
MAIN = HEAD + "if __name__ == '__main__':\n"


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        ("    print(Net(8)(torch.randn(4, 8)))\n", ["Net(8)(f32[4, 8])"]),
        ("    n = 8\n    net = Net(n, p=0.5).to('cpu')\n    x = torch.rand((2, n), device='cpu')\n    y = net(x)\n",
         ["Net(8, p=0.5)(f32[2, 8] in 0..1)"]),
        ("    i = torch.randint(0, 65, (2, 6))\n    Net()(i, mask=None)\n", ["Net()(0 <= i64[2, 6] < 65, mask=None)"]),
        ("    Net().encode(torch.randint(9, size=(3,)))\n", ["Net().encode(i64[3] < 9)"]),
        ("    fn(torch.ones(3), 2)\n    fn(torch.ones(4), 2)\n", ["fn(f32[3], 2)"]),
        ("    import sys\n    Net(int(sys.argv[1]))(torch.randn(4, 8))\n", []),
        ("    Net(8)(torch.randn(4, 8, dtype=torch.float64))\n", []),
        ("    Net(8)(torch.randn(4, 8).to(torch.float64))\n", []),
        ("    Net(8)(load('x'))\n    fn(1, 2)\n", []),
    ],
)  # fmt: skip
def test_main(body: str, texts: list[str]) -> None:
    assert [case.text for case in cases_of_main(MAIN + body)] == texts


def test_a_function_called_from_main() -> None:
    text = HEAD + "def main():\n    Net(3)(torch.randn(1, 3))\nif __name__ == '__main__':\n    main()\n"
    assert [case.text for case in cases_of_main(text)] == ["Net(3)(f32[1, 3])"]


def test_nothing_outside_of_main_and_nothing_that_does_not_parse() -> None:
    assert cases_of_main(HEAD + "Net(8)(torch.randn(4, 8))\n") == []
    assert cases_of_main("x = (\n") == []
