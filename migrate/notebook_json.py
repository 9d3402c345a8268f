"""JSON with places: where each value stands in the text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

_BLANK = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_SCALAR = re.compile(r"[^\s,\]}]+")


@dataclass(frozen=True)
class Node:
    """The value at text[start:end]: `members` of an object, `items` of an array."""

    start: int
    end: int
    members: dict[str, Node] = field(default_factory=dict)
    items: tuple[Node, ...] = ()


def parse(text: str) -> Node:
    """The places of all values in a text that `json.loads` takes."""
    return _value(text, _skip(text, 0))


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _value(text: str, at: int) -> Node:
    head = text[at]
    if head == "{":
        return _object(text, at)
    if head == "[":
        return _array(text, at)
    match = (_STRING if head == '"' else _SCALAR).match(text, at)
    assert match is not None, "json.loads has taken the text"
    return Node(at, match.end())


def _object(text: str, start: int) -> Node:
    members: dict[str, Node] = {}
    at = _skip(text, start + 1)
    while text[at] != "}":
        key = _value(text, at)
        at = _skip(text, _skip(text, key.end) + 1)
        value = members[json.loads(text[key.start : key.end])] = _value(text, at)
        at = _skip(text, value.end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return Node(start, at + 1, members)


def _array(text: str, start: int) -> Node:
    items: list[Node] = []
    at = _skip(text, start + 1)
    while text[at] != "]":
        items.append(_value(text, at))
        at = _skip(text, items[-1].end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return Node(start, at + 1, items=tuple(items))
