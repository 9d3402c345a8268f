"""The one list of findings that every report format and every figure is drawn from, and the table of its codes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["note", "warning", "error"]
Position = tuple[int, int]  # line from 1, column from 1 in characters


@dataclass(frozen=True)
class Code:
    """A kind of finding. `summary` is the one-line text, `help` what a user should do about it."""

    code: str
    severity: Severity
    summary: str
    help: str


@dataclass(frozen=True, order=True)
class Finding:
    """One statement about one place in a source file.

    `path` is the file as the user named it; `start` and `end` are positions in the *source* (line and column from 1).
    `name` is the torch name the finding is about (`torch.Tensor.view`), `rule` the rule that spoke (mostly the same).
    `before` is the source text of the place; `after` what it became (None when it was left). `cell` is the code cell of
    a notebook, from 1 among all cells: lines then count from the cell's first one. `accepted` says that a comment in the
    source accepts it.
    """

    path: str
    start: Position
    end: Position
    code: str
    name: str
    rule: str
    message: str
    advice: str = ""
    evidence: str = ""
    before: str = ""
    after: str | None = None
    cell: int = 0
    accepted: bool = False

    @property
    def place(self) -> tuple[str, int, Position]:
        """What findings are put in order by."""
        return self.path, self.cell, self.start

    @property
    def severity(self) -> Severity:
        return CODES[self.code].severity

    @property
    def fingerprint(self) -> str:
        """Identity that survives moved lines: path, code, name and the text without its blanks."""
        text = "\0".join((self.path, self.code, self.name, "".join(self.before.split())))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


# fmt: off
CODES: dict[str, Code] = {
    c.code: c
    for c in (
        Code("JM001", "note", "converted, same numbers", "Nothing to do."),
        Code("JM002", "note", "structure converted", "Nothing to do: a class, signature, import or loop took its JAX form."),
        Code("JM101", "warning", "converted with a stated difference", "Read the message: a detail of torch has no exact counterpart."),
        Code("JM111", "warning", "result type may differ", "JAX promotes types by other rules (0-dim arrays, half types, int64 and float64 without x64). Check the dtype."),
        Code("JM121", "warning", "random numbers come from another stream", "Same distribution, other draws: JAX keys cannot reproduce torch's generator."),
        Code("JM131", "warning", "gradient at a kink or at zero may differ", "The value is equal; where the function has no derivative torch and JAX choose different ones."),
        Code("JM141", "warning", "stays eager", "Correct without jit; under jit the named line would fail or be slow."),
        Code("JM142", "warning", "side effect", "Correct without jit; under jit it happens once, while the function is traced."),
        Code("JM143", "note", "a loop that jit unrolls", "Correct; for long loops jax.lax.scan compiles faster."),
        Code("JM151", "warning", "index out of range is not an error in JAX", "torch raises, JAX clamps reads and drops writes. Check indices where they are made."),
        Code("JM161", "warning", "changes its argument in torch, returns the new value in JAX", "JAX arrays cannot be changed: bind what the function returns."),
        Code("JM201", "warning", "receiver unknown: left as it is", "Annotate the value (`x: torch.Tensor`) or convert by hand."),
        Code("JM202", "warning", "argument without counterpart: left as it is", "Remove the argument if it does not matter, or convert by hand."),
        Code("JM203", "warning", "argument missing or not understood: left as it is", "Pass the argument in a plain form, or convert by hand."),
        Code("JM204", "warning", "a comment would be lost: left as it is", "Move the comment out of the expression and run again."),
        Code("JM205", "warning", "value of an in-place call is used: left as it is", "Put the in-place call on a line of its own."),
        Code("JM206", "warning", "in-place write under a live alias: left as it is", "Another name may see this write. Clone the tensor or restructure, then run again."),
        Code("JM207", "warning", "star-arguments: left as it is", "Spell the arguments out, or convert by hand."),
        Code("JM208", "warning", "training step not understood: left as it is", "The loop is not of the plain zero_grad / forward / backward / step form. Convert it by hand."),
        Code("JM209", "warning", "control flow depends on a tensor's value or on an index error: left as it is", "Correct only eagerly, or not at all: read the message."),
        Code("JM221", "note", "kept on request: left as it is", "Nothing to do: a comment `# jaxmigrate: keep` or a refused hunk of a review says so."),
        Code("JM222", "warning", "torch in a magic or shell line of a notebook: left as it is", "Convert the line by hand."),
        Code("JM301", "error", "no mapping, with advice", "Follow the advice."),
        Code("JM302", "error", "unknown torch name", "Write a rule (CONTRIBUTING.md) or convert by hand."),
        Code("JM303", "error", "package built on torch", "Replace the package, or keep this part in torch."),
        Code("JM304", "error", "dynamic use of torch", "The name is computed at run time (getattr, a string, a star import): write it out."),
        Code("JM401", "warning", "import of a file that was not converted", "Convert both files in one run."),
        Code("JM402", "warning", "both frameworks meet here", "Convert both sides, or move data over NumPy."),
        Code("JM411", "warning", "a suppression that suppresses nothing", "Remove the comment, or mend its code."),
        Code("JM901", "error", "the source does not parse", "Fix the syntax, or run with a Python that can read it."),
        Code("JM902", "error", "the output failed its check and was not written", "A fault of this tool: please report it."),
        Code("JM903", "error", "a rule failed", "A fault of this tool: please report it."),
    )
}
# fmt: on


Fate = Literal["exact", "stated", "left", "unmapped"]


def fate(code: str) -> Fate | None:
    """What became of a construct that ended in `code`; None for codes that are not about a construct (JM4xx, JM9xx)."""
    return {"0": "exact", "1": "stated", "2": "left", "3": "unmapped"}.get(code[2])  # type: ignore[return-value]


@dataclass(frozen=True)
class Constructs:
    """How many constructs a file holds, by what became of them. `seen` is always the sum."""

    exact: int = 0
    stated: int = 0
    left: int = 0
    unmapped: int = 0

    @property
    def seen(self) -> int:
        return self.exact + self.stated + self.left + self.unmapped

    @property
    def converted(self) -> int:
        return self.exact + self.stated

    def __add__(self, other: Constructs) -> Constructs:
        return Constructs(
            self.exact + other.exact, self.stated + other.stated, self.left + other.left, self.unmapped + other.unmapped
        )


Status = Literal["changed", "unchanged", "skipped", "failed"]


@dataclass(frozen=True)
class Outcome:
    """What became of one file.

    `before` and `after` are text (after decoding); `after == before` unless status is "changed". `skipped`: no torch in
    it. `failed`: a JM9xx finding says why. `layers` are the names it imports from the layer file. `torch_free` says
    that nothing in `after` leads to torch. `lines` are those of a notebook: (cell, line in it) to the line of `before`.
    """

    path: str
    status: Status
    before: str
    after: str
    findings: tuple[Finding, ...] = ()
    layers: frozenset[str] = frozenset()
    torch_free: bool = True
    encoding: str = "utf-8"
    bom: bool = False
    lines: Mapping[tuple[int, int], int] = field(default_factory=dict)

    def span(self, finding: Finding) -> tuple[int, int]:
        """The first and the last line of `before` that a finding is about."""
        first, last = finding.start[0], finding.end[0]
        if not finding.cell:
            return first, last
        return self.lines.get((finding.cell, first), 1), self.lines.get((finding.cell, last), 1)

    def encoded(self) -> bytes:
        """`after` in the bytes of the source file's encoding, with its byte order mark if it had one."""
        data = self.after.encode(self.encoding)
        return b"\xef\xbb\xbf" + data if self.bom else data

    @property
    def constructs(self) -> Constructs:
        count = Counter(fate(f.code) for f in self.findings)
        return Constructs(count["exact"], count["stated"], count["left"], count["unmapped"])


@dataclass(frozen=True)
class Run:
    """One run of the tool over some files: the outcomes in path order, the layer file's text ("" when none is used),
    and the fingerprint of the rule book ("sha256:…")."""

    outcomes: tuple[Outcome, ...]
    layer_file: str = ""
    rules: str = ""
    extra: tuple[Finding, ...] = field(default=())

    @property
    def findings(self) -> tuple[Finding, ...]:
        found: Iterable[Finding] = (f for o in self.outcomes for f in o.findings)
        return tuple(sorted([*found, *self.extra], key=lambda f: (f.place, f)))

    @property
    def constructs(self) -> Constructs:
        return sum((o.constructs for o in self.outcomes), Constructs())
