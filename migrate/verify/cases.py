"""What to run: the little language of `# jaxmigrate: example Net(8)(f32[4, 8])`, and where cases are found.

An example is a call in Python's own syntax. `Net(8)(…)` builds a module and calls it, `Net(8).encode(…)` calls one of
its methods, `fn(…)` calls a function. An argument is a literal or an array: `f32[4, 8]` (normal), `i64[2] < 65`
(0 to 64), `1 <= i64[2] < 65`, `f32[3] in 0.1..0.9`, `bool[3]`, `f32[]` (no dimensions).
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

DTYPES = ("f16", "bf16", "f32", "f64", "i32", "i64", "u8", "bool")
OPTIMIZERS = ("sgd", "adam", "adamw")
_MARK = re.compile(r"#\s*jaxmigrate:\s*example\b:?(.*)", re.DOTALL)
_STRING = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
_NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
_SUGAR = re.compile(rf"({_STRING})|\b({'|'.join(DTYPES)})\[\s*\]|({_NUMBER})\.\.({_NUMBER})")


class CaseError(ValueError):
    """A case that cannot be understood. The text is one line that says what was expected."""


@dataclass(frozen=True)
class ArraySpec:
    """An array to draw: normal, or uniform in [low, high) (whole numbers for integer types)."""

    dtype: str
    shape: tuple[int, ...]
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Case:
    """One way to run a file.

    `build` is the expression that makes the module (None for a function), `target` the method of it or the function
    to call ("" is the module itself). `args` and `kwargs` hold literals, containers and ArraySpecs.
    The other fields override `VerifyOptions` where they are not None; `loss` names the output to train on.
    """

    text: str
    build: str | None
    target: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    steps: int | None = None
    lr: float | None = None
    optimizer: str | None = None
    loss: str | None = None
    seed: int | None = None
    tolerance: float | None = None

    @property
    def overrides(self) -> dict[str, Any]:
        return {k: v for k in _OVERRIDES if (v := getattr(self, k)) is not None}


_OVERRIDES: dict[str, type | tuple[type, ...]] = {
    "steps": int,
    "lr": (int, float),
    "optimizer": str,
    "loss": str,
    "seed": int,
    "tolerance": (int, float),
}


def parse_case(text: str, overrides: Mapping[str, Any] | None = None) -> Case:
    """Read one example. Raises CaseError."""
    text = " ".join(text.split())
    source = _SUGAR.sub(_desugar, text)
    try:
        tree = ast.parse(source, mode="eval").body
    except SyntaxError as error:
        raise CaseError(f"example `{text}`: not an expression ({error.msg}); expected Net(8)(f32[4, 8])") from None
    if not isinstance(tree, ast.Call):
        raise CaseError(f"example `{text}`: expected a call such as Net(8)(f32[4, 8]) or fn(f32[3])")
    build, target = _split(tree.func, text)
    args = tuple(_value(a, text) for a in tree.args)
    kwargs = []
    for keyword in tree.keywords:
        if keyword.arg is None:
            raise CaseError(f"example `{text}`: `**` is not possible here; write the arguments out")
        kwargs.append((keyword.arg, _value(keyword.value, text)))
    return replace(Case(text, build, target, args, tuple(kwargs)), **_checked(overrides or {}, text))


def case_from_options(build: str, inputs: Sequence[str]) -> Case:
    """The case for `--build "Net(8)" --input "f32[4, 8]" --input "targets=i64[4] < 3"`. Raises CaseError."""
    return parse_case(f"{build}({', '.join(inputs)})")


def find_cases(path: Path | str, text: str, extra_toml: Path | None = None) -> list[Case]:
    """Every case of a file: its comments, `[[tool.jaxmigrate.verify]]` of the nearest pyproject.toml, `extra_toml`.

    `text` is the source of the file at `path`. Raises CaseError; an empty list means that nothing says what to run.
    """
    path = Path(path)
    cases = [_located(f"{path}:{line}", example) for line, example in _comments(text)]
    for folder in path.resolve().parents:
        project = folder / "pyproject.toml"
        if project.is_file():
            cases += cases_from_toml(project, path, need_file=True)
            break
    if extra_toml is not None:
        cases += cases_from_toml(extra_toml, path)
    return cases


def cases_from_toml(toml: Path, path: Path | None = None, need_file: bool = False) -> list[Case]:
    """The cases in a TOML file, from `[[tool.jaxmigrate.verify]]` or `[[verify]]` tables.

    A table has `example`, or `build` and `inputs`; `file` (relative to the TOML file) binds it to one source file, and
    must be there when `need_file` (a project has many files). The keys steps, lr, optimizer, loss, seed and tolerance
    override the options. Raises CaseError.
    """
    try:
        data = tomllib.loads(toml.read_text(encoding="utf-8"))
    except OSError as error:
        raise CaseError(f"{toml}: {(error.strerror or str(error)).lower()}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CaseError(f"{toml}: {error}") from None
    tool = data.get("tool", {})
    own = tool.get("jaxmigrate", {}) if isinstance(tool, dict) else {}
    lists = [d["verify"] for d in (own, data) if isinstance(d, dict) and "verify" in d]
    tables = [table for entry in lists for table in (entry if isinstance(entry, list) else [entry])]
    if not all(isinstance(entry, list) for entry in lists) or not all(isinstance(t, dict) for t in tables):
        raise CaseError(f"{toml}: verify must be an array of tables: [[tool.jaxmigrate.verify]] or [[verify]]")
    cases = []
    for number, table in enumerate(tables, 1):
        if path is not None and "file" in table and (toml.parent / str(table["file"])).resolve() != path.resolve():
            continue
        if need_file and "file" not in table:
            raise CaseError(f'{toml}: verify table {number}: expected file = "path/of/the/source.py"')
        cases.append(_from_table(table, f"{toml}: verify table {number}"))
    return cases


def _from_table(table: Mapping[str, Any], where: str) -> Case:
    known = {"file", "example", "build", "inputs", *_OVERRIDES}
    if unknown := sorted(set(table) - known):
        raise CaseError(f"{where}: unknown key {unknown[0]!r}; known: {', '.join(sorted(known))}")
    inputs = table.get("inputs", [])
    inputs = [inputs] if isinstance(inputs, str) else inputs
    if not isinstance(inputs, list) or not all(isinstance(i, str) for i in inputs):
        raise CaseError(f'{where}: inputs must be a list of texts such as ["f32[4, 8]", "targets=i64[4] < 3"]')
    if ("example" in table) == ("build" in table):
        raise CaseError(f'{where}: expected either example = "Net(8)(f32[4, 8])" or build = "Net(8)" with inputs')
    text = str(table["example"]) if "example" in table else f"{table['build']}({', '.join(inputs)})"
    return _located(where, text, {k: v for k, v in table.items() if k in _OVERRIDES})


def _located(where: str, text: str, overrides: Mapping[str, Any] | None = None) -> Case:
    try:
        return parse_case(text, overrides)
    except CaseError as error:
        raise CaseError(f"{where}: {error}") from None


def _checked(overrides: Mapping[str, Any], text: str) -> dict[str, Any]:
    for key, value in overrides.items():
        if key not in _OVERRIDES:
            raise CaseError(f"example `{text}`: unknown setting {key!r}")
        if not isinstance(value, _OVERRIDES[key]) or isinstance(value, bool):
            raise CaseError(f"example `{text}`: {key} = {value!r} has the wrong type")
        if isinstance(value, (int, float)) and key != "seed" and value < 0:
            raise CaseError(f"example `{text}`: {key} = {value!r} must not be negative")
    if overrides.get("optimizer", "sgd") not in OPTIMIZERS:
        raise CaseError(f"example `{text}`: optimizer must be one of {', '.join(OPTIMIZERS)}")
    return dict(overrides)


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of each example comment; one that is not complete goes on in the comment lines below it."""
    comments = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                comments[token.start[0]] = token.string
    except (tokenize.TokenError, SyntaxError):
        return  # the converter reports a file that does not parse
    for line, comment in comments.items():
        if found := _MARK.match(comment):
            example = found[1].strip()
            below = line + 1
            while _is_open(example) and below in comments and not _MARK.match(comments[below]):
                example += " " + comments[below].lstrip("# ")
                below += 1
            yield line, example


def _is_open(example: str) -> bool:
    bare = re.sub(_STRING, "", example)
    return sum(bare.count(c) for c in "([{") > sum(bare.count(c) for c in ")]}")


def _desugar(found: re.Match[str]) -> str:
    string, empty, low, high = found.groups()
    return string or (f"{empty}[()]" if empty else f"({low}, {high})")


def _split(func: ast.expr, text: str) -> tuple[str | None, str]:
    """What is called: (how to build the module, method) or (None, name of the function)."""
    if isinstance(func, ast.Call):
        return ast.unparse(func), ""
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Call):
        return ast.unparse(func.value), func.attr
    name = func
    while isinstance(name, ast.Attribute):
        name = name.value
    if not isinstance(name, ast.Name):
        raise CaseError(f"example `{text}`: `{ast.unparse(func)}` is not a name that can be called")
    return None, ast.unparse(func)


def _value(node: ast.expr, text: str) -> Any:
    """A literal, a container of values, or an ArraySpec."""
    if isinstance(node, (ast.Subscript, ast.Compare)):
        return _array(node, text)
    if isinstance(node, ast.Tuple):
        return tuple(_value(e, text) for e in node.elts)
    if isinstance(node, ast.List):
        return [_value(e, text) for e in node.elts]
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {_value(k, text): _value(v, text) for k, v in zip(node.keys, node.values, strict=True) if k is not None}
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise CaseError(
            f"example `{text}`: `{ast.unparse(node)}`: expected a literal or an array such as f32[4, 8]"
        ) from None


def _array(node: ast.expr, text: str) -> ArraySpec:
    shown = ast.unparse(node)
    low: float | None = None
    high: float | None = None
    match node:
        case ast.Compare(left=ast.Subscript() as inner, ops=[ast.Lt()], comparators=[top]):
            low, high = 0, _number(top, text)
        case ast.Compare(left=bottom, ops=[ast.LtE(), ast.Lt()], comparators=[ast.Subscript() as inner, top]):
            low, high = _number(bottom, text), _number(top, text)
        case ast.Compare(left=ast.Subscript() as inner, ops=[ast.In()], comparators=[ast.Tuple(elts=[bottom, top])]):
            low, high = _number(bottom, text), _number(top, text)
        case ast.Subscript() as inner:
            pass
        case _:
            raise CaseError(f"example `{text}`: `{shown}`: expected f32[4, 8], i64[4] < 65 or i64[4] in 1..65")
    dtype = inner.value.id if isinstance(inner.value, ast.Name) else ""
    if dtype not in DTYPES:
        raise CaseError(f"example `{text}`: `{shown}`: expected one of the types {', '.join(DTYPES)}")
    try:
        shape = ast.literal_eval(inner.slice)
    except ValueError:
        shape = None
    shape = shape if isinstance(shape, tuple) else (shape,)
    if not all(type(n) is int and n >= 0 for n in shape):
        raise CaseError(f"example `{text}`: `{shown}`: expected whole numbers for the shape, as in {dtype}[4, 8]")
    if high is not None and (dtype == "bool" or not (low or 0) < high):
        raise CaseError(f"example `{text}`: `{shown}`: " + ("bool has no range" if dtype == "bool" else "empty range"))
    if dtype[0] in "iu" and any(isinstance(bound, float) for bound in (low, high)):
        raise CaseError(f"example `{text}`: `{shown}`: the bounds of {dtype} must be whole numbers")
    return ArraySpec(dtype, shape, low, high)


def _number(node: ast.expr, text: str) -> float:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        value = None
    if type(value) not in (int, float):
        raise CaseError(f"example `{text}`: `{ast.unparse(node)}`: expected a number as the bound of a range")
    return float(value) if isinstance(value, float) else int(value)
