"""Names of parameters: the keys of the user's own position, in the user's own order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from tallchain.types import PyTree

Names = Mapping[str, tuple[str, ...]]


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """Return the leaves by name: the keys of a dict, the fields of a record, or "position" for a single array.

    The keys of a dict come in the order of the dict; JAX would sort them.
    """
    return _by_name(_walk(tree, ()))


def leaf_names(tree: PyTree) -> list[str]:
    """Return the names of the leaves, in the order in which JAX flattens the tree."""
    return list(_by_name(jax.tree_util.tree_leaves_with_path(tree)))


def _by_name(leaves: list[tuple[tuple[Any, ...], Any]]) -> dict[str, Any]:
    named = {jax.tree_util.keystr(path, simple=True, separator=".") or "position": leaf for path, leaf in leaves}
    if len(named) < len(leaves):  # as for {"a": {"b": ...}, "a.b": ...}
        named = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
    return named


def _walk(tree: PyTree, path: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], Any]]:
    children = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda node: node is not tree)
    if [key for key, _ in children] == [()]:
        return [(path, tree)]
    if type(tree) is dict:
        children = [((jax.tree_util.DictKey(key),), child) for key, child in tree.items()]
    return [leaf for key, child in children for leaf in _walk(child, path + key)]


def in_order_of(tree: PyTree, like: PyTree) -> PyTree:
    """Return the same tree with the keys of its dicts in the order of `like`."""
    if type(like) is dict:
        return {key: in_order_of(tree[key], like[key]) for key in like}
    children, structure = jax.tree.flatten(tree, is_leaf=lambda node: node is not tree)
    if len(children) == 1 and children[0] is tree:
        return tree
    likes = jax.tree.leaves(like, is_leaf=lambda node: node is not like)
    return jax.tree.unflatten(structure, [in_order_of(*pair) for pair in zip(children, likes, strict=True)])


def coordinates(name: str, shape: tuple[int, ...], names: Names) -> list[str]:
    """Return a name for every entry of a leaf: a label, if `names` has one for each entry of a vector."""
    labels = names.get(name, ())
    if labels and shape == (len(labels),):
        return list(labels) if name == "position" else [f"{name}[{label}]" for label in labels]
    return [name + (str(list(index)) if index else "") for index in np.ndindex(shape)]


def labels_of(posterior: Any, position: PyTree) -> dict[str, tuple[str, ...]]:
    """Return a posterior's labels for the entries of vectors; refuse labels that do not fit the position."""
    labels = dict(getattr(posterior, "names", ()))
    leaves = named_leaves(position)
    for name, of in labels.items():
        shape = np.shape(leaves[name]) if name in leaves else None
        if shape != (len(of),):
            what = f"a position of {', '.join(leaves)}" if shape is None else f"a position with shape {shape} there"
            raise ValueError(
                f'`Posterior(names=...)` must label vectors of the position: "{name}" has {len(of)} labels; got {what}.'
            )
    return labels


def all_coordinates(tree: PyTree, names: Names) -> tuple[list[str], list[str]]:
    """Name the coordinates of draws (chain, draw, ...): in JAX's order of a flattened position, and in the user's."""
    theirs = _by_name(jax.tree_util.tree_leaves_with_path(tree))
    orders = (theirs, named_leaves(tree))
    flat, own = (
        [label for name, leaf in of.items() for label in coordinates(name, np.shape(leaf)[2:], names)] for of in orders
    )
    return flat, own
