"""Activations typed as a formula: parsed, checked piece by piece, never evaluated as code.

The text becomes a tree of Python's grammar, of which only numbers, z, + − × / **, comparisons
inside `where`, and a list of functions are allowed; that tree is then walked with `jax.numpy`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from dynagram.activations import Activation, activation
from dynagram.errors import InvalidValueError

_LONGEST = 200
_DEEPEST = 40
_LARGEST = 1e6
_CONSTANTS = {"pi": 3.141592653589793, "e": 2.718281828459045}
_FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {
    "abs": (jnp.abs, 1), "atan": (jnp.arctan, 1), "cos": (jnp.cos, 1), "cosh": (jnp.cosh, 1),
    "erf": (jax.scipy.special.erf, 1), "exp": (jnp.exp, 1), "log": (jnp.log, 1),
    "log1p": (jnp.log1p, 1), "max": (jnp.maximum, 2), "min": (jnp.minimum, 2),
    "relu": (jax.nn.relu, 1), "sigmoid": (jax.nn.sigmoid, 1), "sign": (jnp.sign, 1),
    "sin": (jnp.sin, 1), "sinh": (jnp.sinh, 1), "softplus": (jax.nn.softplus, 1),
    "sqrt": (jnp.sqrt, 1), "tanh": (jnp.tanh, 1), "where": (jnp.where, 3),
}  # fmt: skip
_OPERATIONS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.Pow: operator.pow,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_ALLOWED = f"numbers, z, + - * / **, {', '.join(sorted(_FUNCTIONS))}, pi, e"


@lru_cache(maxsize=64)
def parse_formula(text: str) -> Activation:
    """The activation that a formula in z describes.

    **Arguments:**

    - `text`: such as "z * sigmoid(1.7 * z)"; `^` is read as `**`.

    **Returns:** an `Activation`, found once for every text. Nothing in the text is run as Python.

    >>> parse_formula("max(z, 0.1 * z)").is_scale_invariant
    True
    >>> try:
    ...     parse_formula("__import__('os')")
    ... except InvalidValueError as error:
    ...     print(str(error)[:66])
    formula = "__import__('os')": __import__ is not known; allowed: nu
    """
    tree = _tree(text)

    def sigma(z: Any) -> Any:
        return _walk(tree, z)

    return activation(sigma)


def _tree(text: str) -> ast.expr:
    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
        allowed = f"expected a formula in z of at most {_LONGEST} characters"
        raise InvalidValueError("formula", text, allowed)
    try:
        tree = ast.parse(text.strip().replace("^", "**"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidValueError("formula", text, "cannot be read as a formula") from error
    _check(tree, text, 0)
    if not any(isinstance(node, ast.Name) and node.id == "z" for node in ast.walk(tree)):
        raise InvalidValueError("formula", text, "does not depend on z")
    return tree


def _check(node: ast.AST, text: str, depth: int) -> None:
    """Refuse everything that is not on the list."""

    def refuse(words: str) -> None:
        raise InvalidValueError("formula", text, f"{words}; allowed: {_ALLOWED}")

    if depth > _DEEPEST:
        refuse("too deep")
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            refuse(f"{node.value!r} is no number")
        elif abs(node.value) > _LARGEST:
            refuse(f"{node.value!r} is too large")
        return
    if isinstance(node, ast.Name):
        if node.id != "z" and node.id not in _CONSTANTS:
            refuse(f"{node.id} is not known")
        return
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        _check(node.operand, text, depth + 1)
        return
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        _check(node.left, text, depth + 1)
        _check(node.right, text, depth + 1)
        return
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPERATIONS:
        _check(node.left, text, depth + 1)
        _check(node.comparators[0], text, depth + 1)
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        name = node.func.id
        if name not in _FUNCTIONS:
            refuse(f"{name} is not known")
        elif len(node.args) != _FUNCTIONS[name][1]:
            refuse(f"{name} takes {_FUNCTIONS[name][1]}")
        for part in node.args:
            _check(part, text, depth + 1)
        return
    refuse(f"{type(node).__name__.lower()} is not understood")


def _walk(node: ast.AST, z: Any) -> Any:
    if isinstance(node, ast.Constant):
        return float(node.value)  # pyright: ignore[reportArgumentType]
    if isinstance(node, ast.Name):
        return z if node.id == "z" else _CONSTANTS[node.id]
    if isinstance(node, ast.UnaryOp):
        value = _walk(node.operand, z)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        exponent = _whole_exponent(node)
        if exponent is not None:
            return _walk(node.left, z) ** exponent
        return _OPERATIONS[type(node.op)](_walk(node.left, z), _walk(node.right, z))
    if isinstance(node, ast.Compare):
        left, right = _walk(node.left, z), _walk(node.comparators[0], z)
        return _OPERATIONS[type(node.ops[0])](left, right)
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    return _FUNCTIONS[node.func.id][0](*(_walk(part, z) for part in node.args))


def _whole_exponent(node: ast.BinOp) -> int | None:
    """Whole powers are products, which negative z have and roots have not."""
    right = node.right
    if isinstance(node.op, ast.Pow) and isinstance(right, ast.Constant):
        value = right.value
        if isinstance(value, int | float) and float(value).is_integer() and abs(value) < 100:
            return int(value)
    return None
