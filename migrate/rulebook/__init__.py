"""The rule book: rows of data, loaded, checked and indexed by torch name."""

from .load import RuleBook, load_rules
from .rows import Row, RuleError

__all__ = ["Row", "RuleBook", "RuleError", "load_rules"]
