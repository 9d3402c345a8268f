"""Readiness: for each file and the project, what converts whole, what needs hands, what ties it to PyTorch, how much
work that is, and whether to migrate now, in part, or not yet."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .findings import Constructs, Finding, Outcome, Run, fate

Advice = Literal["now", "in part", "not yet", "nothing to do"]


@dataclass(frozen=True)
class Tie:
    """Something that holds code to PyTorch: the names that show it, what it costs for each file that has it, and
    whether it is a reason not to migrate that file yet."""

    name: str
    shown_by: tuple[str, ...]
    minutes: int
    blocks: bool
    instead: str


TIES: tuple[Tie, ...] = (
    Tie("TorchServe", ("ts",), 240, True, "serve the JAX model with another server first"),
    Tie(
        "ONNX export",
        ("torch.onnx", "onnx2torch"),
        240,
        True,
        "export by jax2onnx or StableHLO, and test the consumers",
    ),
    Tie(
        "custom CUDA or C++",
        ("torch.utils.cpp_extension", "torch.ops", "torch.library", "triton", "mamba_ssm", "causal_conv1d"),
        960,
        True,
        "write the kernel in Pallas or as an FFI call, or in plain jnp",
    ),
    Tie("autograd.Function", ("torch.autograd.Function",), 60, False, "write jax.custom_vjp"),
    Tie("TorchScript or fx", ("torch.jit", "torch.fx"), 60, False, "jax.jit traces plain functions"),
    Tie(
        "distributed training",
        ("torch.distributed", "torch.nn.parallel", "torch.nn.DataParallel", "deepspeed", "fairscale", "horovod"),
        480,
        True,
        "use jax.sharding; the launch scripts change too",
    ),
    Tie("quantisation", ("torch.ao", "torch.quantization", "bitsandbytes", "torchao"), 480, True, "use aqt or qwix"),
)

# Minutes for one finding, by its code or the code's first figure; further findings of one code and name in a file
# cost a quarter, since the second is done as the first was.
MINUTES: Mapping[str, int] = {
    "0": 0, "1": 2, "2": 10, "JM206": 20, "JM208": 45, "JM209": 20, "JM221": 0, "3": 20, "JM302": 30, "JM303": 45,
    "4": 5, "9": 30,
}  # fmt: skip
REVIEW = 10  # minutes to read the diff of a changed file and to run `verify` on it
AGAIN = 0.25
HALF = 50  # percent converted below which a file is not worth starting with
MOST = 95  # percent converted from which a project is migrated now


@dataclass(frozen=True)
class FileReadiness:
    """One file: `hands` counts what was left or is unmapped, `ties` what holds it to PyTorch."""

    path: str
    status: str
    constructs: Constructs
    hands: int
    ties: tuple[str, ...]
    minutes: int
    advice: Advice

    @property
    def whole(self) -> bool:
        """Whether all of it is converted."""
        return self.advice in ("now", "nothing to do")


@dataclass(frozen=True)
class Readiness:
    """The project. `extensions` are its CUDA and C++ sources that are built against torch."""

    files: tuple[FileReadiness, ...]
    extensions: tuple[str, ...]
    advice: Advice
    reason: str

    @property
    def with_torch(self) -> list[FileReadiness]:
        return [f for f in self.files if f.advice != "nothing to do"]

    @property
    def constructs(self) -> Constructs:
        return sum((f.constructs for f in self.files), Constructs())

    @property
    def minutes(self) -> int:
        return sum(f.minutes for f in self.files)

    @property
    def ties(self) -> list[tuple[str, int]]:
        """What holds the project to PyTorch, with the number of files, the most frequent first."""
        count = Counter(t for f in self.files for t in f.ties)
        return sorted(count.items(), key=lambda pair: (-pair[1], pair[0]))


def assess(run: Run, extensions: Sequence[str] = ()) -> Readiness:
    """Judge every file of a run, and all of them together."""
    files = tuple(_assess_file(o) for o in run.outcomes)
    advice, reason = _advise(files, extensions)
    return Readiness(files, tuple(extensions), advice, reason)


def effort(minutes: int) -> str:
    """Minutes as people say them: "0", "25 min", "3 h", "2.5 days" of eight hours."""
    if minutes < 60:
        return f"{minutes} min" if minutes else "0"
    if minutes < 8 * 60:
        return f"{math.ceil(minutes / 30) / 2:g} h"
    days = math.ceil(minutes / 240) / 2
    return f"{days:g} {'day' if days == 1 else 'days'}"


def ties_of(findings: Iterable[Finding]) -> tuple[str, ...]:
    """The names of the ties that findings show, in the order of `TIES`; other packages built on torch by their name."""
    names = {f.name for f in findings if fate(f.code) in ("left", "unmapped")}
    ties = [t.name for t in TIES if any(_within(n, t.shown_by) for n in names)]
    packages = {f.name.partition(".")[0] for f in findings if f.code == "JM303"}
    known = {n for t in TIES for n in t.shown_by}
    return (*ties, *sorted(packages - known))


def minutes_of(findings: Sequence[Finding]) -> int:
    """What the findings of one file cost, without its ties and without reading its diff."""
    seen: set[tuple[str, str]] = set()
    total = 0.0
    for finding in findings:
        each = MINUTES.get(finding.code, MINUTES[finding.code[2]])
        total += each * (AGAIN if (finding.code, finding.name) in seen else 1)
        seen.add((finding.code, finding.name))
    return math.ceil(total)


def _within(name: str, heads: Sequence[str]) -> bool:
    return any(name == head or name.startswith(f"{head}.") for head in heads)


def _assess_file(outcome: Outcome) -> FileReadiness:
    seen = outcome.constructs
    ties = ties_of(outcome.findings)
    hands = seen.left + seen.unmapped
    minutes = minutes_of(outcome.findings) + sum(t.minutes for t in TIES if t.name in ties)
    minutes += REVIEW if outcome.status in ("changed", "failed") or hands else 0
    return FileReadiness(outcome.path, outcome.status, seen, hands, ties, minutes, _advise_file(outcome, hands, ties))


def _advise_file(outcome: Outcome, hands: int, ties: Sequence[str]) -> Advice:
    seen = outcome.constructs
    if outcome.status == "failed":
        return "not yet"
    if not seen.seen and outcome.torch_free:
        return "nothing to do"
    if any(t.blocks and t.name in ties for t in TIES) or seen.converted * 100 < HALF * seen.seen:
        return "not yet"
    return "in part" if hands or ties or not outcome.torch_free else "now"


def _advise(files: Sequence[FileReadiness], extensions: Sequence[str]) -> tuple[Advice, str]:
    torch = [f for f in files if f.advice != "nothing to do"]
    if not torch:
        return "nothing to do", "no file uses torch"
    seen = sum((f.constructs for f in torch), Constructs())
    rate = 100 * seen.converted / seen.seen if seen.seen else 0.0
    blocked = [f for f in torch if f.advice == "not yet"]
    whole = sum(f.advice == "now" for f in torch)
    said = f"{whole} of {len(torch)} files with torch convert whole, {int(rate * 10) / 10:g} % of the constructs"
    if rate < HALF or 2 * len(blocked) > len(torch):
        return (
            "not yet",
            f"{said}; {len(blocked)} files are tied to PyTorch, do not parse, or convert by less than half",
        )
    if rate >= MOST and not blocked and not extensions:
        return "now", said
    first = "; begin with the files marked `now`" if whole else ""
    held = f"; {len(blocked)} files stay in PyTorch for now" if blocked else ""
    built = "; CUDA or C++ sources must be replaced" if extensions else ""
    return "in part", said + held + built + first
