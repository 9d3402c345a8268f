"""Turn a plan into text: every byte that no decision touched is copied."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..read.source import hidden
from ..rulebook.precedence import ATOM, level_of, required
from .plan import Plan, Point


class Writer:
    """Renders nodes with all decisions inside them applied."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.tree = plan.unit.tree
        self._lift_before_elif()
        self.unfolded: dict[ast.stmt, str] = {}
        self.touched = self._touched()
        self.unfolded = self._unfolded()
        self.touched |= self._touched()

    def _lift_before_elif(self) -> None:
        """Statements that should come before an `elif` come before its `if`: nothing can stand between the two."""
        for stmt in list(self.plan.before):
            top, lines = stmt, [line for line in self.plan.before[stmt] if not line.startswith("#")]
            while lines and self._is_elif(top):
                top = self.tree.parents[top]  # type: ignore[assignment]
            if top is not stmt:
                self.plan.before[stmt] = [line for line in self.plan.before[stmt] if line.startswith("#")]
                self.plan.before.setdefault(top, []).extend(lines)

    def _unfolded(self) -> dict[ast.stmt, str]:
        """Statements that share a line (`if a: x = f(); g()`) and must get one of their own, with their indent:
        lines are to stand before, after or in place of one of them."""
        found: dict[ast.stmt, str] = {}
        plan, tree = self.plan, self.tree
        for stmt in [*plan.before, *plan.after, *plan.lines]:
            if plan.alone(stmt) and plan.alone_to_end(stmt):
                continue
            around = stmt in plan.before or stmt in plan.after
            if not around and stmt in plan.lines and len(plan.lines[stmt](self)) == 1:
                continue
            body, line = self._block(stmt), tree.position(tree.start(stmt))[0]
            owner = tree.parents[stmt]
            folded = not plan.alone(body[0])  # the block stands behind its header
            inner = (
                tree.indent(owner) + ("\t" if "\t" in tree.indent(owner) else "    ") if folded else tree.indent(stmt)
            )
            for other in body:
                if not plan.alone(other) and (folded or tree.position(tree.start(other))[0] == line):
                    found[other] = inner
        return found

    def _block(self, stmt: ast.stmt) -> list[ast.stmt]:
        """The statements of the block that `stmt` is one of."""
        owner = self.tree.parents[stmt]
        blocks = [getattr(owner, name, None) or [] for name in ("body", "orelse", "finalbody")]
        return next((b for b in blocks if stmt in b), [stmt])

    def _is_elif(self, stmt: ast.stmt) -> bool:
        up = self.tree.parents.get(stmt)
        if not (isinstance(stmt, ast.If) and isinstance(up, ast.If) and up.orelse == [stmt]):
            return False
        return self.tree.text.startswith("elif", self.tree.start(stmt))

    def _touched(self) -> set[ast.AST]:
        touched: set[ast.AST] = set()
        plan = self.plan
        for node in [*plan.whole, *plan.points, *plan.lines, *plan.before, *plan.after, *self.unfolded]:
            while node not in touched:
                touched.add(node)
                up = self.tree.parents.get(node)
                if up is None:
                    break
                node = up
        return touched

    def module(self) -> str:
        """The text of the whole file."""
        return self._splice(self.tree.root, 0, len(self.tree.text))

    def text(self, node: ast.AST) -> str:
        """The text of one node as it will be written, without parentheses around it."""
        whole = self.plan.whole.get(node)
        if whole is not None:
            return whole.build(self)
        if isinstance(node, ast.Constant) and "lineno" not in node.__dict__:  # not from the source
            return repr(node.value)
        if node not in self.touched:
            return self.tree.segment(node)
        return self._splice(node, self.tree.start(node), self.tree.end(node))

    def level(self, node: ast.AST) -> int:
        """How tightly `text(node)` binds."""
        whole = self.plan.whole.get(node)
        if whole is not None:
            return whole.level
        if isinstance(node, (ast.Tuple, ast.GeneratorExp)) and self.tree.text[self.tree.start(node)] == "(":
            return ATOM
        return level_of(node)

    def at_level(self, node: ast.AST, level: int, enclosed: bool = True) -> str:
        """`text(node)`, in parentheses when a place asks for more than it binds, or when its lines would break."""
        text = self.text(node)
        if isinstance(node, ast.Starred):
            return text
        if self.level(node) < level or (not enclosed and "\n" in text and self.level(node) != ATOM):
            return f"({text})"
        return text

    def splice_range(self, node: ast.AST, start: int, end: int, points: list[Point]) -> str:
        """The text between two offsets inside `node`, with `points` and everything decided below it applied."""
        return self._splice(node, start, end, points)

    def _splice(self, node: ast.AST, start: int, end: int, points: list[Point] | None = None) -> str:
        own = self.plan.points.get(node, ()) if points is None else points
        edits = [(p.start, p.end, p.text if isinstance(p.text, str) else p.text(self)) for p in own]
        for child in self._children(node):
            if child in self.touched:
                edits += self._edits(node, child)
        edits.sort(key=lambda e: (e[0], e[1] > e[0], -e[1]))  # insertions, then the widest: it holds the others
        out, at = [], start
        for first, last, text in edits:
            if first < at < last and not text:
                first = at  # two removals meet
            if first < at or last > end:
                continue
            out += [self.tree.text[at:first], text]
            at = last
        out.append(self.tree.text[at:end])
        return "".join(out)

    def _children(self, node: ast.AST) -> Iterator[ast.AST]:
        """Child nodes that have a place in the text; those without one are looked through."""
        for child in ast.iter_child_nodes(node):
            if hidden(child):
                continue
            if hasattr(child, "lineno"):
                yield child
            elif isinstance(child, (ast.arguments, ast.comprehension, ast.withitem, ast.match_case)):
                yield from self._children(child)

    def _edits(self, parent: ast.AST, child: ast.AST) -> list[tuple[int, int, str]]:
        if isinstance(child, ast.stmt):
            return self._statement(child)
        start, end = self.tree.start(child), self.tree.end(child)
        text = self.text(child)
        if child in self.plan.whole and isinstance(child, ast.expr):
            owner = self.tree.parents[child]
            tight = required(owner, child)
            if self.level(child) < tight and not self._in_parentheses(start, end, owner):
                text = f"({text})"
        return [(start, end, text)]

    def _in_parentheses(self, start: int, end: int, owner: ast.AST) -> bool:
        text = self.tree.text
        return not isinstance(owner, ast.Call) and text[start - 1 : start] == "(" and text[end : end + 1] == ")"

    def statement(self, stmt: ast.stmt) -> list[tuple[int, int, str]]:
        """A statement's edits: the text in its place, with what stands before and after it."""
        return self._statement(stmt)

    def _statement(self, stmt: ast.stmt) -> list[tuple[int, int, str]]:
        plan, tree = self.plan, self.tree
        start, end = tree.start(stmt), tree.end(stmt)
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and stmt.decorator_list:
            start = tree.text.rindex("@", 0, tree.start(stmt.decorator_list[0]))
        newline = tree.newline
        indent, lead = tree.indent(stmt), ""
        if stmt in self.unfolded:
            indent = self.unfolded[stmt]
            lead = newline + indent
            while tree.text[start - 1] in " \t;":
                start -= 1
        before = "".join(f"{line}{newline}{indent}" for line in plan.before.get(stmt, ()))
        after = "".join(f"{newline}{indent}{line}" for line in plan.after.get(stmt, ()))
        if stmt in plan.lines:
            lines = plan.lines[stmt](self)
            if not lines and not before and not after and not lead:
                return self._remove(stmt, start, end)
            text = (newline + indent).join(lines)
            if not lines:
                before, after = (
                    before.removesuffix(newline + indent),
                    after.removeprefix(newline + indent) if not before else after,
                )
        else:
            first = tree.start(stmt) if lead else start
            text = self._splice(stmt, first, end)
        if lead and not (before or text or after):
            text = "pass"
        return [(start, end, lead + before + text + after)]

    def _remove(self, stmt: ast.stmt, start: int, end: int) -> list[tuple[int, int, str]]:
        """Take a statement out with its line; a block that would become empty gets `pass`."""
        tree, plan = self.tree, self.plan
        owner = tree.parents[stmt]
        body = self._block(stmt)
        remaining = [s for s in body if not (s in plan.lines and s not in plan.before and not plan.lines[s](self))]
        if not remaining and stmt is body[0]:
            return [(start, end, "pass")]
        line = tree.line_starts[tree.position(start)[0] - 1]
        last = tree.position(end)[0]
        stop = tree.line_starts[last] if last < len(tree.line_starts) else len(tree.text)
        if not plan.alone(stmt):
            return [(start, end, "pass")]
        closes = tree.end(owner) == end if hasattr(owner, "end_lineno") else False
        if plan.alone_to_end(stmt):  # a last statement goes with the line end before it: its block ends where it ends
            return [(line - len(tree.newline), end, "")] if closes else [(line, stop, "")]
        rest = tree.text[end:stop]
        if rest.lstrip().startswith("#"):
            return [(start, end if closes else end + len(rest) - len(rest.lstrip()), "")]
        return [(start, end, "pass")]
