"""Numbers and verdicts in words, the same in every chapter.

± is always the error of the number before it: a standard error of what was measured, a numerical
error of what was predicted. How much networks differ from each other is called spread.
"""

from __future__ import annotations

from dynagram.results._regime import Regime

KIND = {"trust": "good", "careful": "warn", "do not use": "bad"}


def with_error(value: float, error: float) -> str:
    """A number to the digits that its error leaves.

    >>> with_error(0.123456, 0.0021), with_error(12.3, 0.0), with_error(-0.004, 0.02)
    ('0.1235 ± 0.0021', '12.3', '-0.004 ± 0.020')
    """
    if not error > 0.0:
        return f"{value:.4g}"
    digits = max(0, 1 - int(f"{error:e}".partition("e")[2]))
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def percent(fraction: float, error: float = 0.0) -> str:
    """A fraction in per cent, with its error; its sign is never alone on a line.

    >>> percent(0.1234), percent(0.1234, 0.011)
    ('12.3\\xa0%', '12.3 ± 1.1\\xa0%')
    """
    text = f"{100 * fraction:.1f} ± {100 * error:.1f}" if error > 0.0 else f"{100 * fraction:.3g}"
    return f"{text}\N{NO-BREAK SPACE}%"


def applies(regime: Regime | None) -> str:
    """The verdict of a prediction and the first thing that it rests on."""
    if regime is None:
        return "nothing was judged"
    return ": ".join([regime.verdict, *regime.reasons[:1]])


def other_reasons(regime: Regime | None) -> tuple[str, ...]:
    """What else a verdict rests on."""
    return () if regime is None else tuple(regime.reasons[1:])


def kind_of(regime: Regime | None) -> str:
    """The colour of a verdict."""
    return "warn" if regime is None else KIND[regime.verdict]
