"""Writes numbers.json: the numbers that no change of an entrance may move.

They were computed at the commit before the rooms were renamed. To freeze new cases only:

    PYTHONPATH=tests python tests/frozen/record.py

which adds the names that numbers.json does not have and removes those no case computes. To move
numbers on purpose (a corrected formula, a new seed), name the cases, and say in the commit which
formula changed and why:

    PYTHONPATH=tests python tests/frozen/record.py bayes.evidence 'initial.tensors[tanh-3]'
"""

import json
import sys

import jax

from frozen.registry import NUMBERS, all_cases


def main(moved: list[str]) -> None:
    jax.config.update("jax_enable_x64", True)
    before = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    after = {}
    for case in all_cases():
        if case.name in before and case.name not in moved:
            after[case.name] = before[case.name]
        else:
            after[case.name] = case.numbers()
            print("recorded", case.name)
    lines = [f"{json.dumps(name)}: {json.dumps(after[name])}" for name in sorted(after)]
    NUMBERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
