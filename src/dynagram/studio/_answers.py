"""What the studio shows for a state: numbers for its charts, each part on its own and timed.

Parts: "phase", "flow", "trained", "plateau", "table" (the activation as a table, for networks that
train in the browser), "copies". Everything is computed by the library; nothing here is theory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from dynagram._precision import float64
from dynagram.activations import Activation
from dynagram.errors import DynagramError, InvalidValueError
from dynagram.results._outputs import Outputs
from dynagram.studio._state import GRID, State, points_of
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.theory.criticality import (
    critical_points,
    criticality_curves,
    single_input,
    single_input_tangents,
)
from dynagram.theory.saddle import SymmetricNetwork, clock, escape_times
from dynagram.theory.skips import residual_flow

_K_STAR = np.geomspace(1e-4, 1e3, 120)
_TABLE_REACH, _TABLE_POINTS = 16.0, 2049
_THRESHOLD = 0.3
# Times grow as a power of 1/scale with the depth: more layers never leave.
_DEEPEST_PLATEAU = 5


def answer(part: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """One part for the settings `values`.

    **Arguments:**

    - `part`: one of `PARTS`.
    - `values`: of `State.of`.

    **Returns:** numbers by name in the types of JSON, with `ms`, the time it took; where the
    settings are refused or the library refuses them, `error` says why.
    """
    start = time.perf_counter()
    try:
        if part not in PARTS:
            raise InvalidValueError("part", part, f"expected one of {', '.join(PARTS)}")
        result = PARTS[part](State.of(values))
    except DynagramError as error:
        result = {"error": str(error)}
    return result | {"part": part, "ms": round(1e3 * (time.perf_counter() - start), 1)}


@lru_cache(maxsize=32)
def _curves(sigma: Activation) -> dict[str, Any]:
    """The lines of the phase plane and the critical points, once for an activation."""
    points = [
        {"C_W": p.C_W, "C_b": p.C_b, "name": p.kind}
        for p in critical_points(sigma)
        if math.isfinite(p.C_W) and p.C_W > 0
    ]
    rows: list[dict[str, Any]] = []
    if sigma.is_scale_invariant:
        at = points[0]["C_W"] if points else 2.0
        rows = [{"line": "both", "order": i, "C_W": at, "C_b": 4.0 * i} for i in range(2)]
    else:
        K = _K_STAR if sigma.growth == 0.0 else _K_STAR[10.0 / sigma.growth**2 > _K_STAR]
        found = criticality_curves(sigma, K)
        lines = (
            ("norms kept", found.parallel_C_W, found.parallel_C_b),
            ("directions kept", found.perpendicular_C_W, found.perpendicular_C_b),
        )
        for name, along, up in lines:
            inside = (along > 0.0) & (along < 25.0) & (np.abs(up) < 8.0)
            pairs = zip(along[inside], up[inside], strict=True)
            rows += [
                {"line": name, "order": i, "C_W": float(a), "C_b": float(b)}
                for i, (a, b) in enumerate(pairs)
            ]
    return {"lines": rows, "points": points}


def _phase(state: State) -> dict[str, Any]:
    return _curves(state.sigma)


def _flow(state: State) -> dict[str, Any]:
    """K with its spread between networks, layer by layer, for an input of mean square 1."""
    network, first = state.network(), state.C_b + state.C_W
    flow = residual_flow(network, first) if state.skip else single_input(network, first)
    K, V = (np.asarray(values, dtype=np.float64).reshape(-1) for values in (flow.K, flow.V))
    spread = np.sqrt(np.maximum(V, 0.0) / state.width)
    relative = spread / np.maximum(K, 1e-300)
    rows = [
        {"layer": i + 1, "K": k, "low": max(k - s, 0.0), "high": k + s, "relative": r}
        for i, (k, s, r) in enumerate(
            zip(K.tolist(), spread.tolist(), relative.tolist(), strict=True)
        )
    ]
    result: dict[str, Any] = {"rows": rows, "words": _flow_words(K, relative)}
    if not state.skip and not state.sigma.jumps:
        tangent = single_input_tangents(network, 1.0)
        Theta = float(tangent.Theta[-1])
        spread = float(np.sqrt(max(tangent.A[-1] + 2 * tangent.B[-1], 0.0) / state.width)) / Theta
        result |= {"Theta": Theta, "ntk_spread": spread, "largest_step": 2.0 / Theta}
    return result


def _flow_words(K: np.ndarray, relative: np.ndarray) -> str:
    ratio = float(K[-1] / K[0])
    signal = "keeps its size" if 0.5 < ratio < 2 else "dies out" if ratio < 1 else "blows up"
    trust = "small" if relative[-1] < 0.5 else "too large for an expansion in 1/n"
    return (
        f"The signal {signal} ({ratio:.3g} × over {len(K)} layers); two draws differ by "
        f"{100 * relative[-1]:.0f} %, which is {trust}."
    )


def _trained(state: State) -> dict[str, Any]:
    """Mean and spread of trained outputs at infinite width, on a grid."""
    outputs = predict_outputs(
        state.trained_network(), state.problem(), state.training(), order="infinite"
    )
    x, mean, std = _along(outputs.samples)
    rows = [
        {"x": a, "mean": m, "low": m - 2 * s, "high": m + 2 * s}
        for a, m, s in zip(x.tolist(), mean.tolist(), std.tolist(), strict=True)
    ]
    places, targets = points_of(state.data)
    points = [{"x": a, "y": b} for a, b in zip(places.tolist(), targets.tolist(), strict=True)]
    verdict = "" if outputs.regime is None else str(outputs.regime)
    finite = bool(np.all(np.isfinite(mean)) and np.abs(mean).max() < 1e6)
    if not finite:
        raise InvalidValueError("eta", state.eta, "training diverges: take a smaller step")
    return {"rows": rows, "points": points, "verdict": verdict}


def _along(outputs: Outputs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places in order, each once, with mean and spread there."""
    x, first = np.unique(outputs.inputs[:, 0].round(9), return_index=True)
    return x, outputs.mean[first, 0], outputs.std[first, 0]


def _plateau(state: State) -> dict[str, Any]:
    """The time that a small symmetric start of this depth stays on its plateau."""
    depth = min(state.depth, _DEEPEST_PLATEAU)
    network = SymmetricNetwork.balanced(
        state.sigma, depth=depth, width=state.width, scale=state.scale
    )
    found = escape_times(network, _THRESHOLD, clock("reduced", width=state.width))
    return {
        "depth": depth,
        "leading": _finite(found.leading),
        "next": _finite(found.next_to_leading),
        "ode": _finite(found.ode),
        "kind": found.activation_class.name,
    }


@lru_cache(maxsize=32)
def _tabulated(sigma: Activation) -> dict[str, Any]:
    z = np.linspace(-_TABLE_REACH, _TABLE_REACH, _TABLE_POINTS)
    values = np.asarray(float64(lambda: sigma.values(z))())
    slopes = np.gradient(values, z)
    return {
        "reach": _TABLE_REACH,
        "values": [round(v, 7) for v in values.tolist()],
        "slopes": [round(v, 7) for v in slopes.tolist()],
    }


def _table(state: State) -> dict[str, Any]:
    """σ and σ' on a grid, so that networks in the browser need no formula."""
    data = state.problem()
    return _tabulated(state.sigma) | {
        "x": data.x.tolist(),
        "y": data.y[:, 0].tolist(),
        "grid": np.stack([GRID, np.ones_like(GRID)], axis=1).tolist(),
    }


def _copies(state: State) -> dict[str, Any]:
    return {
        "python": state.to_python(),
        "command": state.to_command(),
        "toml": state.to_toml(),
    }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


PARTS: dict[str, Callable[[State], dict[str, Any]]] = {
    "phase": _phase,
    "flow": _flow,
    "trained": _trained,
    "plateau": _plateau,
    "table": _table,
    "copies": _copies,
}
