"""How long the studio takes for a step of a slider: every part, median and worst, once it is warm.

    python benchmarks/studio.py

The first request of an activation compiles; it is printed apart.
"""

from __future__ import annotations

import numpy as np

from dynagram.studio import answer

STEPS = 12
PARTS = ("phase", "flow", "trained", "plateau", "table")
SETTINGS = {
    "relu": {"activation": "relu", "C_b": 0.0, "C_W": 2.0},
    "gelu": {"activation": "gelu"},
    "tanh": {"activation": "tanh", "C_b": 0.0, "C_W": 1.0},
    "gelu, skip": {"activation": "gelu", "C_b": 0.0, "C_W": 1.2, "skip": 0.5},
}


def main() -> None:
    print(f"{'setting':<12}{'part':<10}{'first':>9}{'median':>9}{'worst':>9}  ms")
    for name, values in SETTINGS.items():
        for part in PARTS:
            times = []
            for step in range(STEPS + 1):
                moved = values | {"C_W": values.get("C_W", 1.9) + 0.01 * step, "eta": 0.002}
                times.append(answer(part, moved)["ms"])
            first, later = times[0], np.array(times[1:])
            print(f"{name:<12}{part:<10}{first:9.1f}{np.median(later):9.1f}{later.max():9.1f}")


if __name__ == "__main__":
    main()
