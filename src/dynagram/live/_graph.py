"""What a model computed on a batch, as a graph: operations with their values, from any framework.

A node that depends on the batch is data; what depends on parameters alone is a constant with the
names of those parameters. Values are float64, so that a reading of the graph can be verified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# Operations that are norms by name, and the axis of their channels.
NORMS = {"batch_norm": 1, "instance_norm": 1, "group_norm": 1, "layer_norm": -1, "rms_norm": -1}


@dataclass(frozen=True, eq=False)
class Constant:
    """An array that does not depend on the batch, and the parameters that it was made of."""

    value: np.ndarray
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Node:
    """One operation on the batch.

    **Arguments:**

    - `number`: its place in the graph; it only reads smaller ones.
    - `op`: "input", "linear", "conv", "embedding", "add", "multiply", "softmax", "attention",
        "multihead" or "other".
    - `inputs`: the nodes that it reads.
    - `constants`: what else it reads.
    - `value`: what comes out.
    - `options`: strides, padding, ε.
    - `again`: the operation as a function of what its inputs hold, where it can be asked again.
    """

    number: int
    op: str
    inputs: tuple[int, ...]
    constants: tuple[Constant, ...]
    value: np.ndarray
    options: Mapping[str, Any] = field(default_factory=dict)
    again: Callable[..., np.ndarray] | None = None

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters that it computes with."""
        return tuple(name for constant in self.constants for name in constant.parameters)


@dataclass(frozen=True, eq=False)
class Graph:
    """The nodes of one pass in order; the first is the batch.

    `again` calls the model itself on another batch, where it can be called. `beside` are products
    with what other inputs gave before anything of the batch came to it.
    """

    nodes: tuple[Node, ...]
    output: int
    again: Callable[[np.ndarray], np.ndarray] | None = None
    beside: tuple[Node, ...] = ()

    def replay(self, start: int, end: int, value: np.ndarray) -> np.ndarray | None:
        """What comes out of a node if another value stands at an earlier one; None if unknown."""
        values = {start: value}
        for number in self.between(start, end)[1:]:
            node = self.nodes[number]
            if node.again is None:
                return None
            inputs = (values.get(i, self.nodes[i].value) for i in node.inputs)
            try:
                values[number] = node.again(*inputs)
            except (RuntimeError, TypeError, ValueError):  # it cannot be run by itself
                return None
        return values[end]

    def between(self, start: int, end: int) -> list[int]:
        """The nodes on the ways from one to another, both included, in order."""
        reached = {start}
        for node in self.nodes[start + 1 : end + 1]:
            if reached.intersection(node.inputs):
                reached.add(node.number)
        wanted = {end}
        for node in reversed(self.nodes[start + 1 : end + 1]):
            if node.number in wanted:
                wanted.update(number for number in node.inputs if number >= start)
        return sorted(reached & wanted)

    def cuts(self, start: int, end: int) -> list[int]:
        """The nodes that every way from one to another goes through, both included, in order."""
        inside = self.between(start, end)
        members, farthest, passed = set(inside), start, []
        readers: dict[int, int] = {}
        for number in inside:
            for source in self.nodes[number].inputs:
                if source in members:
                    readers[source] = max(readers.get(source, 0), number)
        for number in inside:
            if farthest <= number:
                passed.append(number)
            farthest = max(farthest, readers.get(number, number))
        return passed

    def readers(self, *, everywhere: bool = False) -> dict[int, list[Node]]:
        """The operations on the way to the output, or all of them, that read every node."""
        listed: dict[int, list[Node]] = {}
        for number in range(len(self.nodes)) if everywhere else self.between(0, self.output):
            for source in dict.fromkeys(self.nodes[number].inputs):
                listed.setdefault(source, []).append(self.nodes[number])
        return listed

    def used(self) -> set[str]:
        """Names of the parameters on which the output depends."""
        inside = self.between(0, self.output)
        return {name for number in inside for name in self.nodes[number].parameters}

    def uses(self) -> dict[str, int]:
        """In how many operations every parameter takes part."""
        counts: dict[str, int] = {}
        for number in self.between(0, self.output):
            for name in set(self.nodes[number].parameters):
                counts[name] = counts.get(name, 0) + 1
        return counts
