"""Named experiments of the literature, each of which checks what was claimed and says pass or fail.

An experiment is a folder that holds `EXPERIMENT`, named among the entry points
"dynagram.experiments" of the distribution: "fields-closure" is `fields/closure`.
`dynagram reproduce` finds it there, prints its statements with the measured numbers and writes its
tables and figures. Another distribution may bring experiments of its own in the same way.
"""

from dynagram_experiments._records import Experiment as Experiment
from dynagram_experiments._records import Result as Result
from dynagram_experiments._records import Settings as Settings
from dynagram_experiments._records import Statement as Statement

__all__ = ["Experiment", "Result", "Settings", "Statement"]
