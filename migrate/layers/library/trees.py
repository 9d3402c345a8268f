"""Nested containers in torch's order (torch.utils._pytree): jax.tree sorts a dict's keys and takes None for empty."""

from collections import OrderedDict, defaultdict, deque


def _children(tree):
    """What a container holds and how to build it anew; None for a leaf."""
    if type(tree) in (list, tuple, deque):
        return list(tree), type(tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return list(tree), lambda values: type(tree)(*values)
    if type(tree) in (dict, OrderedDict):
        return list(tree.values()), lambda values: type(tree)(zip(tree, values, strict=True))
    if type(tree) is defaultdict:
        return list(tree.values()), lambda values: defaultdict(tree.default_factory, zip(tree, values, strict=True))
    return None


def tree_flatten(tree, is_leaf=None):
    """The leaves of nested lists, tuples and dicts, and what `tree_unflatten` needs to put others in their place."""
    held = None if is_leaf is not None and is_leaf(tree) else _children(tree)
    if held is None:
        return [tree], None
    children, build = held
    parts = [tree_flatten(child, is_leaf) for child in children]
    return [leaf for leaves, _ in parts for leaf in leaves], (build, [spec for _, spec in parts])


def tree_unflatten(leaves, treespec):
    """Containers of the structure that `tree_flatten` saw, with other leaves."""
    rest = iter(leaves)

    def build(spec):
        return next(rest) if spec is None else spec[0]([build(part) for part in spec[1]])

    return build(treespec)


def tree_map(func, tree, *rests, is_leaf=None):
    """The same containers with `func` of every leaf, and of those at the same places of `rests`."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [tree_flatten(other, is_leaf)[0] for other in rests]
    return tree_unflatten([func(*together) for together in zip(leaves, *others, strict=True)], spec)
