"""The first sub-module, and the first statement, whose result differs although what it starts from agrees."""

from __future__ import annotations

from typing import Any

from .measure import Distance, distance, tolerance
from .record import Step
from .results import Divergence, Heat, Statement


def first_divergence(torch: Step, jax: Step, mode: str, override: float | None) -> Divergence | None:
    """Match the calls of both traces by path and number, in the order in which torch's calls end.

    Inner calls end before outer ones, so the first call with agreeing inputs and differing outputs is the innermost:
    a container is named only when each of its parts is right. None when there is no call that both sides made.
    """
    other = {(c["path"], c["call"]): c for c in jax.facts["calls"]}
    fallback: Divergence | None = None
    for call in torch.facts["calls"]:
        match = other.get((call["path"], call["call"]))
        if match is None:
            continue
        worst = _worst(torch, jax, call["outputs"], match["outputs"], override)
        if worst is None or worst.ok:
            continue
        given = _worst(torch, jax, call["inputs"], match["inputs"], override)
        if given is None or given.ok:
            return _told(call, mode, worst, "its inputs agree and its output differs")
        if fallback is None:
            fallback = _told(call, mode, worst, "the first whose output differs (its inputs could not be matched)")
    return fallback


def _worst(torch: Step, jax: Step, left: list[str], right: list[str], override: float | None) -> Distance | None:
    """The largest distance between arrays taken in order; None when there is none on either side."""
    if len(left) != len(right):
        return Distance("", 0.0, 0.0, 0.0, problem=f"{len(left)} arrays in torch, {len(right)} in JAX")
    found = []
    for number, (a, b) in enumerate(zip(left, right, strict=True)):
        t = torch.arrays[a]
        tol = tolerance(str(t.dtype), override)
        found.append(distance(f"output {number}" if len(left) > 1 else "output", t, jax.arrays[b], tol))
    return max(found, key=lambda d: (d.excess, d.absolute), default=None)


def _told(call: dict[str, Any], mode: str, worst: Distance, why: str) -> Divergence:
    path = call["path"] or "(the module itself)"
    again = f", call {call['call'] + 1}" if call["call"] else ""
    number = "" if worst.problem else f": largest error {worst.absolute:.3g} at"
    text = f"{path} ({call['kind']}{again}), {mode} mode: {why}{number} {worst}"
    return Divergence(call["path"], call["kind"], call["call"], mode, worst.absolute, str(worst), text)


def heat_of(torch: Step, jax: Step, override: float | None) -> tuple[Heat, ...]:
    """The errors of what each sub-module gets and gives, in the order in which torch's calls end."""
    other = {(c["path"], c["call"]): c for c in jax.facts["calls"]}
    found = []
    for call in torch.facts["calls"]:
        match = other.get((call["path"], call["call"]))
        given = made = None
        if match is not None:
            given = _worst(torch, jax, call["inputs"], match["inputs"], override)
            made = _worst(torch, jax, call["outputs"], match["outputs"], override)
        errors = [None if d is None else float("inf") if d.problem else d.relative for d in (given, made)]
        tol = made.tolerance if made is not None else 0.0
        found.append(Heat(call["path"], call["kind"], errors[0], errors[1], tol))
    return tuple(found)


def first_statement(torch: Step, jax: Step, override: float | None) -> Statement | None:
    """The first value of a local name, in torch's order, that differs from that of the same name in the same call.

    Only calls whose result differs are looked at, and there names that are given equally often and values of the same
    shape: programs may differ inside and still give the same.
    """
    ours, theirs = _by_name(torch), _by_name(jax)
    wrong = {call for call, name in ours if name.partition(".")[0] == "return" and _differs(torch, jax, call, name)}
    agreed = ""
    for event in torch.facts["statements"]:
        key = (event["call"], event["name"])
        left, right = ours[key], theirs.get(key, [])
        if len(left) != len(right):
            continue
        match = right[left.index(event)]
        t = torch.arrays[event["key"]]
        found = distance(event["name"], t, jax.arrays[match["key"]], tolerance(str(t.dtype), override))
        places = [f"{e['file']}:{e['line']}" for e in (event, match)]
        if found.ok:
            agreed = f"{places[0]} and {places[1]} ({event['name']})"
        elif event["call"] in wrong and not found.problem:
            return _statement(event, match, found, places, agreed)
    return None


def _differs(torch: Step, jax: Step, call: str, name: str) -> bool:
    ours, theirs = _by_name(torch)[call, name], _by_name(jax).get((call, name), [])
    if len(ours) != len(theirs):
        return False
    pairs = [(torch.arrays[a["key"]], jax.arrays[b["key"]]) for a, b in zip(ours, theirs, strict=True)]
    return not all(distance(name, t, j, tolerance(str(t.dtype), None)).ok for t, j in pairs)


def _statement(
    event: dict[str, Any], match: dict[str, Any], found: Distance, places: list[str], agreed: str
) -> Statement:
    function, _, call = event["call"].partition("#")
    again = f", call {int(call) + 1}" if call != "0" else ""
    before = f"; the last that agrees: {agreed}" if agreed else ""
    lines = f"{places[0]} `{event['source']}` and {places[1]} `{match['source']}`"
    text = f"{function}{again}: {event['name']} of {lines}: largest error {found.absolute:.3g} at {found}{before}"
    return Statement(function, event["name"], places[0], places[1], found.absolute, str(found), text)


def _by_name(step: Step) -> dict[tuple[str, str], list[dict[str, Any]]]:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for event in step.facts["statements"]:
        found.setdefault((event["call"], event["name"]), []).append(event)
    return found
