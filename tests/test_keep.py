"""Comments and refusals: what they keep, what goes with it, and that nothing of it is silent."""

from __future__ import annotations

import pytest

from jaxmigrate.config import Settings
from jaxmigrate.engine import Source
from jaxmigrate.keep import keys_of
from jaxmigrate.project import convert_files
from jaxmigrate.report.findings import Finding, Run
from jaxmigrate.rulebook import load_rules

BOOK = load_rules()


def convert(text: str, refused: frozenset[str] = frozenset(), **files: str) -> Run:
    sources = [Source("m.py", text), *(Source(f"{name}.py", t) for name, t in files.items())]
    return convert_files(sources, BOOK, Settings(todo=True), refused={"m.py": refused} if refused else {})


def codes(run: Run, path: str = "m.py") -> list[tuple[int, str]]:
    return [(f.start[0], f.code) for f in run.findings if f.path == path and f.code not in ("JM001", "JM002")]


def lines(run: Run, at: int = 0) -> list[str]:
    return [line.strip() for line in run.outcomes[at].after.splitlines()]


def test_a_kept_statement_stays_and_so_does_what_reads_it() -> None:
    run = convert(
        "import torch\n\n\ndef f(x: torch.Tensor):\n    a = torch.exp(x)\n"
        "    b = torch.relu(a)  # jaxmigrate: keep not yet\n    c = b\n    d = torch.sum(c, dim=1)\n"
        "    return torch.cat([a, a], dim=0)\n"
    )
    text = lines(run)
    assert "a = jnp.exp(x)" in text
    assert "b = torch.relu(a)  # jaxmigrate: keep not yet" in text
    assert "d = torch.sum(c, dim=1)" in text
    assert "return jnp.concatenate([a, a])" in text or "return jnp.concatenate([a, a], axis=0)" in text
    assert "import torch" in text
    assert codes(run) == [(6, "JM402"), (6, "JM221"), (8, "JM221")]
    assert not run.outcomes[0].torch_free
    why = {f.start[0]: f.message for f in run.findings if f.code == "JM221"}
    assert why[6].endswith("not yet")
    assert why[8].endswith("it uses what a kept line gives")


FAMILY = """import torch
from torch import nn


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        return torch.relu(self.fc(x))


class Child(Base):
    def forward(self, x):
        return torch.exp(super().forward(x))  # only here


class Other(nn.Module):
    def forward(self, x):
        return torch.tanh(x)
"""


def test_a_kept_class_keeps_its_family_and_who_uses_it_in_other_files() -> None:
    user = (
        "import torch\nfrom m import Child, Other\n\n\ndef run(x):\n    net = Child()\n    o = Other()\n"
        "    y = torch.exp(net(x))\n    return y, torch.sin(x), o\n"
    )
    run = convert(FAMILY.replace("class Base(", "# jaxmigrate: keep\nclass Base("), user=user)
    text = run.outcomes[0].after
    kept = FAMILY.partition("class Base")[2].partition("class Other")[0]
    assert kept in text
    assert "class Other(nnx.Module)" in text
    used = lines(run, 1)
    assert "y = torch.exp(net(x))" in used
    assert {c for _, c in codes(run, "user.py")} >= {"JM221"}
    assert {c for n, c in codes(run) if n <= 18} == {"JM221", "JM402"}


def test_keeping_a_method_keeps_its_class() -> None:
    run = convert(
        FAMILY.replace(
            "    def forward(self, x):\n        return torch.tanh",
            "    # jaxmigrate: keep\n    def forward(self, x):\n        return torch.tanh",
        )
    )
    assert "class Other(nn.Module)" in run.outcomes[0].after
    assert "class Child(Base)" in run.outcomes[0].after
    assert "class Base(nnx.Module)" in run.outcomes[0].after


def test_a_comment_about_what_is_left_anyway_is_an_answer_to_it() -> None:
    text = (
        "import torch\n\n\ndef f(x: torch.Tensor):\n    y = torch.no_such(x)  # jaxmigrate: keep[JM302] ours\n"
        "    return torch.exp(x)\n"
    )
    run = convert(text)
    assert codes(run) == [(5, "JM221")]
    assert "TODO" not in run.outcomes[0].after
    assert "return jnp.exp(x)" in run.outcomes[0].after


def test_accepted_findings_stay_findings_and_are_converted() -> None:
    run = convert("import torch\n\nx = torch.rand(3)  # jaxmigrate: accept[JM121] fine\n")
    found = [f for f in run.findings if f.code == "JM121"]
    assert found
    assert all(f.accepted for f in found)
    assert "jax.random.uniform" in run.outcomes[0].after


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("keep[JM206]", "there is no finding of JM206 here to keep"),
        ("accept[JM121]", "there is no finding of JM121 here to accept"),
        ("keep[JM21]", "JM21 is no code"),
    ],
)
def test_a_comment_that_does_nothing_is_reported(comment: str, message: str) -> None:
    run = convert(f"import torch\n\nx = torch.zeros(3)  # jaxmigrate: {comment}\n")
    (found,) = [f for f in run.findings if f.code == "JM411"]
    assert found.message == message
    assert found.start == (3, 21)


def test_a_comment_in_a_string_is_none() -> None:
    run = convert('import torch\n\nx = torch.zeros(3), "# jaxmigrate: keep"\n')
    assert "jnp.zeros" in run.outcomes[0].after
    assert codes(run) == []


def keyed(run: Run) -> dict[str, Finding]:
    return {key: f for f, key in keys_of(run.outcomes[0].findings).items()}


def names(run: Run) -> set[str]:
    return {f.name for f in run.findings}


def test_refusing_any_one_finding_leaves_a_file_that_is_whole() -> None:
    """Whatever is refused: its statement is as it was, the output passed its check, no construct is lost."""
    whole = convert(FAMILY)
    for key, finding in keyed(whole).items():
        run = convert(FAMILY, frozenset({key}))
        assert run.outcomes[0].status in ("changed", "unchanged"), finding
        line = FAMILY.splitlines()[finding.start[0] - 1]
        assert line in run.outcomes[0].after.splitlines()
        assert names(run) >= names(whole) - {"__init__"}, "an __init__ that builds nothing needs no rngs"
        assert any(f.code == "JM221" and f.start == finding.start for f in run.findings)


def test_refusing_everything_gives_the_file_back() -> None:
    run = convert(FAMILY, frozenset(keyed(convert(FAMILY))))
    assert run.outcomes[0].after == FAMILY


def test_keys_survive_moved_lines() -> None:
    twice = FAMILY + "\n\ndef f(x: torch.Tensor):\n    return torch.exp(x), torch.exp(x)\n"
    moved = "# a line more\n" + twice
    assert list(keyed(convert(twice))) == list(keyed(convert(moved)))
    assert len(keyed(convert(twice))) == len(convert(twice).outcomes[0].findings)
