"""How tightly expressions bind, so that text can be put into text without changing what it means.

Source of the order: the Python language reference, section 6.17 "Operator precedence".
"""

from __future__ import annotations

import ast

import libcst as cst

NONE, TERNARY, OR, AND, NOT, COMPARE, BITOR, BITXOR, BITAND, SHIFT, ARITH, TERM, UNARY, POWER, AWAIT, ATOM = range(16)
TUPLE, LAMBDA, NAMED = -1, 0, -2

_BINARY = {
    "Add": ARITH, "Sub": ARITH, "Mult": TERM, "Div": TERM, "FloorDiv": TERM, "Mod": TERM, "MatMult": TERM, "Pow": POWER,
    "LShift": SHIFT, "RShift": SHIFT, "BitOr": BITOR, "BitXor": BITXOR, "BitAnd": BITAND,
}  # fmt: skip
_CST_BINARY = {
    "Add": ARITH, "Subtract": ARITH, "Multiply": TERM, "Divide": TERM, "FloorDivide": TERM, "Modulo": TERM,
    "MatrixMultiply": TERM, "Power": POWER, "LeftShift": SHIFT, "RightShift": SHIFT, "BitOr": BITOR, "BitXor": BITXOR,
    "BitAnd": BITAND,
}  # fmt: skip
CST_LEVELS: dict[str, int] = {}


def level_of(node: ast.AST) -> int:
    """How tightly the expression `node` binds when written without parentheses."""
    if isinstance(node, ast.BinOp):
        return _BINARY[type(node.op).__name__]
    if isinstance(node, ast.UnaryOp):
        return NOT if isinstance(node.op, ast.Not) else UNARY
    if isinstance(node, ast.BoolOp):
        return OR if isinstance(node.op, ast.Or) else AND
    if isinstance(node, ast.Compare):
        return COMPARE
    if isinstance(node, ast.IfExp):
        return TERNARY
    if isinstance(node, ast.Lambda):
        return LAMBDA
    if isinstance(node, ast.NamedExpr):
        return NAMED
    if isinstance(node, ast.Await):
        return AWAIT
    if isinstance(node, (ast.Tuple, ast.Yield, ast.YieldFrom)):
        return TUPLE
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, (int, float, complex))
        and not isinstance(node.value, bool)
    ):
        return AWAIT  # `1.real` is no attribute access
    return ATOM


def level_of_text(text: str) -> int:
    """Like `level_of`, for an expression given as text."""
    if text.isidentifier():
        return ATOM
    try:
        return level_of(ast.parse(f"({text}\n)", mode="eval").body) if not _wrapped(text) else ATOM
    except SyntaxError:
        return NONE


def _wrapped(text: str) -> bool:
    """Whether one pair of parentheses encloses the whole text."""
    if not (text.startswith("(") and text.endswith(")")):
        return False
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return False
    return tree.col_offset > 0 or isinstance(tree, (ast.Tuple, ast.GeneratorExp))


def required(parent: ast.AST, child: ast.AST) -> int:
    """The least level that `child`'s place below `parent` (in a source tree) asks of its text."""
    if isinstance(parent, ast.BinOp):
        own = _BINARY[type(parent.op).__name__]
        if own == POWER:
            return AWAIT if child is parent.left else UNARY
        return own if child is parent.left else own + 1
    if isinstance(parent, ast.UnaryOp):
        return NOT if isinstance(parent.op, ast.Not) else UNARY
    if isinstance(parent, ast.BoolOp):
        return (OR if isinstance(parent.op, ast.Or) else AND) + 1
    if isinstance(parent, ast.Compare):
        return COMPARE + 1
    if isinstance(parent, ast.Attribute):
        return ATOM
    if isinstance(parent, ast.Subscript):
        return ATOM if child is parent.value else TUPLE
    if isinstance(parent, ast.Call):
        return ATOM if child is parent.func else NONE
    if isinstance(parent, ast.IfExp):
        return TERNARY if child is parent.orelse else OR
    if isinstance(parent, ast.Starred):
        return BITOR
    if isinstance(parent, ast.Await):
        return ATOM
    if isinstance(parent, ast.comprehension):
        return OR
    if isinstance(parent, (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.keyword, ast.Lambda, ast.arguments)):
        return NONE
    if isinstance(parent, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp, ast.withitem, ast.NamedExpr)):
        return TERNARY
    if isinstance(parent, (ast.AugAssign, ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)):
        return TUPLE
    return TERNARY


def needs(parent: cst.CSTNode, child: cst.CSTNode) -> int:
    """The least level that `child`'s place below `parent` (in a LibCST tree) asks of its text."""
    name = type(parent).__name__
    if isinstance(parent, cst.BinaryOperation):
        own = _CST_BINARY[type(parent.operator).__name__]
        if own == POWER:
            return AWAIT if child is parent.left else UNARY
        return own if child is parent.left else own + 1
    if isinstance(parent, cst.UnaryOperation):
        return NOT if isinstance(parent.operator, cst.Not) else UNARY
    if isinstance(parent, cst.BooleanOperation):
        return (OR if isinstance(parent.operator, cst.Or) else AND) + 1
    if name in ("Comparison", "ComparisonTarget"):
        return COMPARE + 1
    if isinstance(parent, cst.Attribute):
        return ATOM
    if isinstance(parent, cst.Subscript):
        return ATOM if child is parent.value else TUPLE
    if isinstance(parent, cst.Call):
        return ATOM
    if isinstance(parent, cst.IfExp):
        return TERNARY if child is parent.orelse else OR
    if name == "StarredElement":
        return BITOR
    if isinstance(parent, cst.Arg):
        return BITOR if parent.star else NONE
    if name in ("Index", "Slice"):
        return TERNARY
    if name == "Expr":
        return TUPLE
    return TERNARY


for _name, _level in {
    "UnaryOperation": UNARY, "BooleanOperation": OR, "Comparison": COMPARE, "IfExp": TERNARY, "Lambda": LAMBDA,
    "NamedExpr": NAMED, "Tuple": TUPLE, "Await": AWAIT, "Integer": AWAIT, "Float": AWAIT,
}.items():  # fmt: skip
    CST_LEVELS[_name] = _level


def cst_level(node: cst.BaseExpression) -> int:
    """How tightly a LibCST expression binds."""
    if node.lpar:
        return ATOM
    if isinstance(node, cst.BinaryOperation):
        return _CST_BINARY[type(node.operator).__name__]
    if isinstance(node, cst.BooleanOperation):
        return OR if isinstance(node.operator, cst.Or) else AND
    if isinstance(node, cst.UnaryOperation):
        return NOT if isinstance(node.operator, cst.Not) else UNARY
    return CST_LEVELS.get(type(node).__name__, ATOM)
