"""Sentences and code lines of reports."""

from typing import TYPE_CHECKING

from dynagram._lazy import load_on_demand

if TYPE_CHECKING:
    from dynagram.report.prose._measurement import describe_measurement as describe_measurement

__all__ = ["describe_measurement"]
__getattr__, __dir__ = load_on_demand(__name__, {"describe_measurement": "_measurement"})
