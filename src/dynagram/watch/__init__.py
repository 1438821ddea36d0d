"""One concrete model, the user's own, measured as it trains, beside what it should do.

The room is also its main function: `dynagram.watch(model, probe)` is `dynagram.watch.watch`.
"""

import sys
import types
from typing import TYPE_CHECKING, Any

from dynagram._lazy import load_on_demand

if TYPE_CHECKING:
    from dynagram.watch._band import Alert as Alert
    from dynagram.watch._band import Band as Band
    from dynagram.watch._history import History as History
    from dynagram.watch._history import read_watch as read_watch
    from dynagram.watch._record import Record as Record
    from dynagram.watch._registry import QUANTITIES as QUANTITIES
    from dynagram.watch._registry import Quantity as Quantity
    from dynagram.watch._run_folder import RunFolder as RunFolder
    from dynagram.watch._sinks import JsonLines as JsonLines
    from dynagram.watch._sinks import MLflow as MLflow
    from dynagram.watch._sinks import TensorBoard as TensorBoard
    from dynagram.watch._sinks import Tracker as Tracker
    from dynagram.watch._watch import watch as watch
    from dynagram.watch._watcher import Sink as Sink
    from dynagram.watch._watcher import Watcher as Watcher

_HOMES = {
    "Alert": "_band",
    "Band": "_band",
    "History": "_history",
    "JsonLines": "_sinks",
    "MLflow": "_sinks",
    "QUANTITIES": "_registry",
    "Quantity": "_registry",
    "Record": "_record",
    "RunFolder": "_run_folder",
    "Sink": "_watcher",
    "TensorBoard": "_sinks",
    "Tracker": "_sinks",
    "Watcher": "_watcher",
    "read_watch": "_history",
    "watch": "_watch",
}
__all__ = [*_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__, __dir__ = load_on_demand(__name__, _HOMES)


class _Room(types.ModuleType):
    """A package that can be called: the name `dynagram.watch` is a room and a verb."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.watch(*arguments, **options)


sys.modules[__name__].__class__ = _Room
