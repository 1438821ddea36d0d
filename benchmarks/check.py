"""How often `dynagram.check` is wrong: healthy networks it should pass, bugs it should name.

    python benchmarks/check.py               # 200 healthy networks and all bugs, ten minutes
    python benchmarks/check.py --seeds 2     # fewer of each kind
    python benchmarks/check.py --resume      # go on where a run was stopped
    python benchmarks/check.py --styles      # models in many styles besides, three of each

Writes benchmarks/results/check.json: the share of checks outside their 95 % bands for every kind of
network, the networks that were called wrong, and for every bug what was said about it. Nothing in
the library was set by these networks: bands come from theory and from draws of the same network.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from check_models import BUGS, FIRST_SEED, HEALTHY
from check_styles import MISTAKES, STYLES

import dynagram
from dynagram.live import check

_OF_STYLE = 3
RESULTS = Path(__file__).parent / "results" / "check.json"


def examine_healthy(seeds: int, name: str) -> dict[str, Any]:
    """One kind of healthy network `seeds` times."""
    make = {**HEALTHY, **STYLES}[name]
    outside = checks = 0
    wrong, start = [], time.process_time()
    for seed in range(seeds):
        torch.manual_seed(FIRST_SEED + seed)
        model, x, options = make()
        result = check(model, x, seed=FIRST_SEED + seed, **options)
        checks += len(result.checked)
        outside += sum(not reading.is_inside for reading in result.checked)
        if not result.is_fine:
            wrong.append({"seed": seed, "said": [c.message for c in result.causes]})
    print(f"{name:44} {outside:4} of {checks:5} outside, {len(wrong)} called wrong", flush=True)
    return {
        "networks": seeds, "checks": checks, "outside": outside, "wrong": wrong,
        "seconds": round(time.process_time() - start, 1),
    }  # fmt: skip


def examine_bug(name: str) -> dict[str, Any]:
    """One planted bug."""
    make, meant = {**BUGS, **MISTAKES}[name]
    torch.manual_seed(FIRST_SEED)
    model, x, options = make()
    result = check(model, x, **options)
    named = any(meant in cause.name for cause in result.causes)
    word = "named" if named else "MISSED" if result.is_fine else "found under another name"
    print(f"{name:56} {word}", flush=True)
    return {
        "found": not result.is_fine, "named": named, "meant": meant,
        "said": [cause.message for cause in result.causes],
    }  # fmt: skip


def count(healthy: dict[str, Any]) -> dict[str, Any]:
    """Networks, checks, the share outside and how many networks were called wrong."""
    checks, outside = (sum(kind[key] for kind in healthy.values()) for key in ("checks", "outside"))
    return {
        "networks": sum(kind["networks"] for kind in healthy.values()),
        "checks": checks, "share_outside": round(outside / max(checks, 1), 4),
        "called_wrong": sum(len(kind["wrong"]) for kind in healthy.values()),
    }  # fmt: skip


def summarise(known: dict[str, Any]) -> dict[str, Any]:
    """The numbers that matter."""
    bugs = known["bugs"]
    return {
        **count(known["healthy"]), "styles": count(known["styles"]),
        "bugs": len(bugs), "bugs_found": sum(bug["found"] for bug in bugs.values()),
        "bugs_named": sum(bug["named"] for bug in bugs.values()),
        "version": dynagram.__version__, "torch": torch.__version__,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="networks of every healthy kind")
    parser.add_argument("--again", help="repeat those whose names begin so, keep others")
    parser.add_argument("--styles", action="store_true", help="the models of check_styles.py too")
    parser.add_argument("--resume", action="store_true", help="leave out what is recorded")
    parser.add_argument("--output", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    beginning, known = chosen.again or "", {"bugs": {}, "healthy": {}, "styles": {}}
    if (chosen.again or chosen.resume) and chosen.output.exists():
        known |= json.loads(chosen.output.read_text(encoding="utf-8"))
    parts = [
        *(("bugs", name, examine_bug) for name in BUGS),
        *(("healthy", name, partial(examine_healthy, chosen.seeds)) for name in HEALTHY),
    ]
    if chosen.styles:
        parts += [("bugs", name, examine_bug) for name in MISTAKES]
        parts += [("styles", name, partial(examine_healthy, _OF_STYLE)) for name in STYLES]
    for part, name, examine in parts:
        if name.startswith(beginning) and not (chosen.resume and name in known[part]):
            known[part][name] = examine(name)
            written = {p: known[p] for p in ("healthy", "styles", "bugs")}
            text = json.dumps({"summary": summarise(known), **written}, indent=1)
            chosen.output.write_text(text + "\n", encoding="utf-8")
    print(json.dumps(summarise(known), indent=1))


if __name__ == "__main__":
    main()
