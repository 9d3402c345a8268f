"""A difference in gradients alone names the sub-module that it comes from."""

from __future__ import annotations

import pytest

from jaxmigrate.verify.compare import Comparison
from jaxmigrate.verify.record import Recording, Step

from .conftest import Golden


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            ("body.0.weight", "body.1.bias", "body.4.bias"),
            "in order of definition, with a gradient that differs: body.4",
        ),
        (("body.4.bias",), ""),
        ((), ""),
    ],
)
def test_the_last_that_differs(wrong: tuple[str, ...], said: str, golden: Golden) -> None:
    torch = golden.recordings["01_mlp"]
    arrays = torch.get("gradient eval").arrays
    changed = {n: a + 1 if n.removeprefix("grad.") in wrong else a for n, a in arrays.items()}
    jax = Recording({"load": torch.get("load"), "gradient eval eager": Step({}, changed)})
    stage = Comparison(torch, jax, golden.cases["01_mlp"], golden.options).gradient("eval", "eager")
    assert stage.verdict == ("different" if wrong else "equal")
    assert stage.detail.endswith(said) and ("last sub-module" in stage.detail) == bool(said)
    assert not wrong or stage.worst.rpartition("[")[0] in wrong
