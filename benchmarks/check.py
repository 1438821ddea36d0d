"""How often `dynagram.check` is wrong: healthy networks it should pass, bugs it should name.

    python benchmarks/check.py               # 200 healthy networks and all bugs, ten minutes
    python benchmarks/check.py --seeds 2     # fewer of each kind

Writes benchmarks/results/check.json: the share of checks outside their 95 % bands for every kind of
network, the networks that were called wrong, and for every bug what was said about it. Nothing in
the library was set by these networks: bands come from theory and from draws of the same network.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from check_models import BUGS, FIRST_SEED, HEALTHY

import dynagram
from dynagram.live import check

RESULTS = Path(__file__).parent / "results" / "check.json"


def examine_healthy(seeds: int, beginning: str) -> dict[str, dict[str, Any]]:
    """Every kind of healthy network `seeds` times."""
    made = {}
    for name, make in HEALTHY.items():
        if not name.startswith(beginning):
            continue
        outside = checks = 0
        wrong, start = [], time.perf_counter()
        for seed in range(seeds):
            torch.manual_seed(FIRST_SEED + seed)
            model, x, options = make()
            result = check(model, x, seed=FIRST_SEED + seed, **options)
            checks += len(result.checked)
            outside += sum(not reading.is_inside for reading in result.checked)
            if not result.is_fine:
                wrong.append({"seed": seed, "said": [c.message for c in result.causes]})
        made[name] = {
            "networks": seeds, "checks": checks, "outside": outside, "wrong": wrong,
            "seconds": round(time.perf_counter() - start, 1),
        }  # fmt: skip
        print(f"{name:44} {outside:4} of {checks:5} outside, {len(wrong)} called wrong", flush=True)
    return made


def examine_bugs(beginning: str) -> dict[str, dict[str, Any]]:
    """Every planted bug once."""
    made = {}
    for name, (make, meant) in BUGS.items():
        if not name.startswith(beginning):
            continue
        torch.manual_seed(FIRST_SEED)
        model, x, options = make()
        result = check(model, x, **options)
        named = any(meant in cause.name for cause in result.causes)
        made[name] = {
            "found": not result.is_fine, "named": named, "meant": meant,
            "said": [cause.message for cause in result.causes],
        }  # fmt: skip
        print(f"{name:52} {'named' if named else 'FOUND' if not result.is_fine else 'MISSED'}",
              flush=True)  # fmt: skip
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="networks of every healthy kind")
    parser.add_argument("--again", help="repeat those whose names begin so, keep others")
    parser.add_argument("--output", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    bugs = examine_bugs(chosen.again or "")
    healthy = examine_healthy(chosen.seeds, chosen.again or "")
    if chosen.again:
        known = json.loads(chosen.output.read_text(encoding="utf-8"))
        bugs, healthy = known["bugs"] | bugs, known["healthy"] | healthy
    checks, outside = (sum(kind[key] for kind in healthy.values()) for key in ("checks", "outside"))
    summary = {
        "networks": sum(kind["networks"] for kind in healthy.values()),
        "checks": checks, "share_outside": round(outside / checks, 4),
        "called_wrong": sum(len(kind["wrong"]) for kind in healthy.values()),
        "bugs": len(bugs), "bugs_found": sum(bug["found"] for bug in bugs.values()),
        "bugs_named": sum(bug["named"] for bug in bugs.values()),
        "version": dynagram.__version__, "torch": torch.__version__,
    }  # fmt: skip
    print(json.dumps(summary, indent=1))
    text = json.dumps({"summary": summary, "healthy": healthy, "bugs": bugs}, indent=1)
    chosen.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
