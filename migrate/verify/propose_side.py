"""The worker process of `--propose`: builds each class, tries arrays, and records what works under torch."""

from __future__ import annotations

import copy
import inspect
import itertools
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .cases import ArraySpec
from .confine import settle
from .guess_build import Guess, Impossible, guesses, smaller
from .guess_inputs import Trial, resized, trials, uneven
from .leaves import flatten
from .loading import explain, forget, load, namespace, root
from .roots import Built, read_roots
from .torch_operators import tolerate_missing_operators
from .worker import Item, Result, perform, read_job

_LARGE = 4_000_000  # parameters beyond which a smaller model is tried first
_TRIES = 400  # combinations of arrays for one way of building


def work(job: Path) -> None:
    """Do every item of a job file; the target of an item's case is the name of the class."""
    tolerate_missing_operators()
    items, options = read_job(job)
    for item in items:
        settle(job.parent, item.file.parent)
        perform(item, Proposal(item, time.monotonic() + 0.7 * options.timeout).steps())
        forget(root(item.file))


class Proposal:
    """The search for one class."""

    def __init__(self, item: Item, deadline: float) -> None:
        self.item, self.name, self.deadline = item, item.case.target, deadline
        self.names: dict[str, Any] = {}

    def steps(self) -> Iterator[tuple[str, Callable[[], Result]]]:
        yield "load", self.load
        yield "propose", self.propose

    def load(self) -> Result:
        self.names = namespace(load(self.item.file))
        return {}, {}

    def propose(self) -> Result:
        """The facts of a proposal; or `nothing`, the reason why there is none; or `other`: it is not a module."""
        cls = self.names.get(self.name)
        if not isinstance(cls, type) or not issubclass(cls, nn.Module):
            return {}, {"other": True}
        if cls.forward is nn.Module.forward:
            return {}, {"nothing": "it has no forward"}
        failed = ""
        try:
            for guess in self.builds(cls):
                if time.monotonic() > self.deadline:
                    failed = f"the time was used up; {failed}"
                    break
                try:
                    module = self.build(guess.text)
                except Exception as error:
                    failed = failed or f"{guess.text}: {explain(error, self.item.file.parent)}"
                    continue
                search = Search(module, [*map(int, re.findall(r"\b\d+\b", guess.text)), *_defaults(cls)], self)
                if facts := search.run():
                    return {}, {"build": guess.text, "how": guess.how, **facts}
                if " builds, but " not in failed:
                    failed = f"{guess.text} builds, but {search.failed}"
        except Impossible as error:
            failed = failed or str(error)
        return {}, {"nothing": failed or "no way to build it was found"}

    def build(self, text: str) -> nn.Module:
        torch.manual_seed(0)
        module = eval(text, self.names)
        assert isinstance(module, nn.Module)
        return module

    def builds(self, cls: type) -> Iterator[Guess]:
        """Ways to build the class: as the file does, by guesses; a smaller one before one that is large."""
        text = self.item.file.read_text(encoding="utf-8", errors="replace")
        calls: Sequence[Built] = read_roots(text).built.get(self.name, ())
        written = [Guess(b.text, f"as line {b.line} of the file builds it") for b in calls]
        for guess in itertools.chain(written, guesses(cls, self.names)):
            if self.large(guess.text):
                for less in smaller(guess.text, cls, self.names):
                    yield Guess(less.text, f"{guess.how}; {less.how}")
            yield guess

    def large(self, text: str) -> bool:
        try:
            return sum(p.numel() for p in self.build(text).parameters()) > _LARGE
        except Exception:
            return False


def _defaults(cls: type) -> list[int]:
    return [p.default for p in inspect.signature(cls).parameters.values() if type(p.default) is int and p.default > 4]


class Search:
    """The search for the arguments of one module that has been built."""

    def __init__(self, module: nn.Module, sizes: Sequence[int], proposal: Proposal) -> None:
        self.module, self.sizes, self.proposal = module, list(dict.fromkeys(sizes)), proposal
        self.failed = self.first_error = ""
        self.arguments: list[Any] = []
        self.stack: list[tuple[nn.Module, Any]] = []
        self.looked_up: list[tuple[torch.Tensor, int]] = []

    def run(self) -> dict[str, Any] | None:
        """Inputs and how they were found; None when nothing works (`failed` says what went wrong)."""
        parameters = inspect.signature(self.module.forward).parameters.values()
        needed = [
            p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
            self.failed = "its forward needs arguments by keyword"
            return None
        if not needed:
            needed = [p for p in parameters if p.kind is p.VAR_POSITIONAL][:1]
        found = self.fitting([trials(p, self.module, self.sizes) for p in needed])
        if found is None:
            return None
        found = self.refined(found)
        if not self.works(found, "train"):
            self.failed = f"in train mode: {self.failed}"
            return None
        how = [f"{p.name}: {t.how}" for p, t in zip(needed, found, strict=True)]
        facts: dict[str, Any] = {"inputs": [t.text for t in found], "inputs_how": how}
        return {**facts, **self.optional(found, parameters)}

    def fitting(self, options: list[list[Trial]]) -> list[Trial] | None:
        """The first combination that runs; a shape that fails at a later layer is tried in the size that fits there."""
        tried: set[str] = set()
        todo = _combinations(options)
        while len(tried) < _TRIES and time.monotonic() < self.proposal.deadline:
            given = next(todo, None)
            if given is None:
                break
            key = ", ".join(t.text for t in given)
            if key in tried:
                continue
            tried.add(key)
            if self.works(given, "eval"):
                return given
            if (factor := self.factor()) and (other := resized(given[0], factor)):
                todo = itertools.chain([[other, *given[1:]]], todo)
        self.failed = f"none of {len(tried)} combinations of inputs runs; the first: {self.first_error}"
        return None

    def works(self, given: Sequence[Trial], mode: str) -> bool:
        """Whether a call runs and gives an array. A copy is called, so that no state is carried over."""
        self.stack.clear()
        self.looked_up.clear()
        try:
            self.call(given, mode)
        except Exception as error:
            self.failed = explain(error, self.proposal.item.file.parent)
            self.first_error = self.first_error or f"{', '.join(t.text for t in given)}: {self.failed}"
            return False
        return True

    def call(self, given: Sequence[Trial], mode: str, extra: dict[str, Any] | None = None) -> Any:
        module = copy.deepcopy(self.module).train(mode == "train")
        for layer in module.modules():
            layer.register_forward_pre_hook(self.enter)
            layer.register_forward_hook(self.leave)
        torch.manual_seed(1)
        self.arguments = [_drawn(t) for t in given]
        with torch.no_grad():
            result = module(*self.arguments, **(extra or {}))
        if not any(isinstance(leaf, torch.Tensor) for _, leaf in flatten(result)):
            raise TypeError(f"it returns {type(result).__name__} without an array")
        return result

    def enter(self, layer: nn.Module, given: Any) -> None:
        self.stack.append((layer, given))
        if isinstance(layer, nn.Embedding) and given and isinstance(given[0], torch.Tensor):
            self.looked_up.append((given[0], layer.num_embeddings))

    def leave(self, layer: nn.Module, given: Any, result: Any) -> None:
        if self.stack:
            self.stack.pop()

    def factor(self) -> float:
        """How many times as many numbers the layer that failed wants, a Linear behind flattened channels; else 0."""
        if not self.stack:
            return 0.0
        layer, given = self.stack[-1]
        if not (isinstance(layer, nn.Linear) and given and isinstance(given[0], torch.Tensor) and given[0].ndim):
            return 0.0
        got = given[0].shape[-1]
        return layer.in_features / got if got and got != layer.in_features else 0.0

    def refined(self, given: list[Trial]) -> list[Trial]:
        """Uneven sides where they fit, and the range of whole numbers."""
        for place, trial in enumerate(given):
            other = uneven(trial)
            if other is not None:
                changed = [*given[:place], other, *given[place + 1 :]]
                if self.works(changed, "eval"):
                    given = changed
        for place, trial in enumerate(given):
            if trial.spec is not None and trial.spec.dtype == "i64":
                given = [*given[:place], self.ranged(given, place), *given[place + 1 :]]
        return given

    def ranged(self, given: list[Trial], place: int) -> Trial:
        """The range of an argument of whole numbers: of the table that it is looked up in, or the largest that runs."""
        trial = given[place]
        assert trial.spec is not None
        if not self.works(given, "eval"):
            return trial
        mine = self.arguments[place]
        tables = [n for t, n in self.looked_up if t.untyped_storage().data_ptr() == mine.untyped_storage().data_ptr()]
        if tables:
            how = f"whole numbers below the {min(tables)} rows of the table that they are looked up in"
            return Trial(replace(trial.spec, high=min(tables)), how)
        sizes = {int(getattr(m, a)) for m in self.module.modules() for a in ("num_embeddings", "out_features")
                 if isinstance(getattr(m, a, None), int)}  # fmt: skip
        for size in sorted(sizes, reverse=True):
            tried = Trial(replace(trial.spec, high=size), f"{trial.how}; the largest size of a layer that runs: {size}")
            if self.works([*given[:place], tried, *given[place + 1 :]], "eval"):
                return tried
        return trial

    def optional(self, given: list[Trial], parameters: Any) -> dict[str, Any]:
        """Targets that may be given as well, where they change what comes out: `targets=i64[2, 8] < 65`."""
        whole = next((t for t in given if t.spec is not None and t.spec.dtype == "i64"), None)
        for parameter in parameters:
            if parameter.default is not None or not re.fullmatch(r"targets?|labels?", parameter.name):
                continue
            first = given[0].spec
            shapes = [whole.spec.shape] if whole and whole.spec else [(first.shape[0],)] if first else []
            for shape, size in itertools.product(shapes, self.classes()):
                spec = ArraySpec("i64", shape, 0, size)
                value = _drawn(Trial(spec, ""))
                try:
                    before, after = self.call(given, "eval"), self.call(given, "train", {parameter.name: value})
                except Exception:
                    continue
                if json.dumps(_form(before)) != json.dumps(_form(after)):
                    return {"optional": f"{parameter.name}={Trial(spec, '').text}"}
        return {}

    def classes(self) -> list[int]:
        last = [m.out_features for m in self.module.modules() if isinstance(m, nn.Linear)]
        return [last[-1]] if last else []


def _form(result: Any) -> list[Any]:
    return [[p, list(v.shape)] if isinstance(v, torch.Tensor) else [p, type(v).__name__] for p, v in flatten(result)]


def _drawn(trial: Trial) -> Any:
    """The value of a trial; the largest whole number is among the drawn ones."""
    spec = trial.spec
    if spec is None:
        return eval(trial.literal, {})
    if spec.dtype == "bool":
        return torch.rand(spec.shape) < 0.5
    if spec.dtype == "i64":
        drawn = torch.randint(int(spec.low or 0), int(spec.high or 2), spec.shape)
        if drawn.numel():
            drawn.view(-1)[-1] = int(spec.high or 2) - 1
        return drawn
    return torch.randn(spec.shape)


def _combinations(options: list[list[Trial]]) -> Iterator[list[Trial]]:
    """Combinations, the likeliest first; a further argument is first tried with the shape of the first one."""
    if len(options) == 1:
        yield from ([t] for t in options[0])
        return
    if not options:
        yield []
        return
    same = [[None, *o] for o in options[1:]]
    indices = sorted(
        itertools.product(range(min(len(options[0]), 24)), *(range(min(len(o), 14)) for o in same)),
        key=lambda i: (sum(i), i),
    )
    for first, *others in indices:
        given = [options[0][first]]
        for choice, number in zip(same, others, strict=True):
            given.append(choice[number] or replace(given[0], how="the same shape as the first input"))
        yield given
