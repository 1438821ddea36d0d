"""Saddle escape: how long a network started at small scale stays on its plateau, and why.

`escape_times(SymmetricNetwork…)` gives leading, next-to-leading and exact times of a single mode;
`BlockNetwork` with `block_escape` the exact flow of several; `escape_homotopy` says which weights
shift an escape; `classify` where an activation stands.
"""

from dynagram.theory.saddle._block_law import leading_block_time as leading_block_time
from dynagram.theory.saddle._blocks import BlockNetwork as BlockNetwork
from dynagram.theory.saddle._blocks import block_escape as block_escape
from dynagram.theory.saddle._blocks import block_path as block_path
from dynagram.theory.saddle._blocks import block_velocity as block_velocity
from dynagram.theory.saddle._bounds import EscapeBounds as EscapeBounds
from dynagram.theory.saddle._bounds import escape_bounds as escape_bounds
from dynagram.theory.saddle._chain import Chain as Chain
from dynagram.theory.saddle._classes import classify as classify
from dynagram.theory.saddle._clocks import clock as clock
from dynagram.theory.saddle._degeneracy import path_degeneracy as path_degeneracy
from dynagram.theory.saddle._drift import balance_drift as balance_drift
from dynagram.theory.saddle._escape import escape_times as escape_times
from dynagram.theory.saddle._flow import Coordinates as Coordinates
from dynagram.theory.saddle._forecast import forecast as forecast
from dynagram.theory.saddle._forecast_record import Bounds as Bounds
from dynagram.theory.saddle._forecast_record import Counterfactual as Counterfactual
from dynagram.theory.saddle._forecast_record import Forecast as Forecast
from dynagram.theory.saddle._forecast_record import LaterStage as LaterStage
from dynagram.theory.saddle._homotopy import escape_homotopy as escape_homotopy
from dynagram.theory.saddle._laws import balanced_escape_time as balanced_escape_time
from dynagram.theory.saddle._laws import bottleneck as bottleneck
from dynagram.theory.saddle._laws import critical_depth_time as critical_depth_time
from dynagram.theory.saddle._laws import leading_escape_time as leading_escape_time
from dynagram.theory.saddle._laws import (
    next_to_leading_escape_time as next_to_leading_escape_time,
)
from dynagram.theory.saddle._moments import row_moments as row_moments
from dynagram.theory.saddle._moments import truncation_roots as truncation_roots
from dynagram.theory.saddle._normal_form import normal_form as normal_form
from dynagram.theory.saddle._potential import potential_series as potential_series
from dynagram.theory.saddle._profiles import chain_moment as chain_moment
from dynagram.theory.saddle._profiles import profile_escape_times as profile_escape_times
from dynagram.theory.saddle._reduced import reduced_escape_time as reduced_escape_time
from dynagram.theory.saddle._reduced import reduced_escape_times as reduced_escape_times
from dynagram.theory.saddle._reduced import reduced_path as reduced_path
from dynagram.theory.saddle._shells import escape_shells as escape_shells
from dynagram.theory.saddle._stability import fastest_growth as fastest_growth
from dynagram.theory.saddle._stability import loop_gain as loop_gain
from dynagram.theory.saddle._stage_functions import Stage as Stage
from dynagram.theory.saddle._stage_functions import stage_functions as stage_functions
from dynagram.theory.saddle._symmetric import SymmetricNetwork as SymmetricNetwork
from dynagram.theory.saddle._universality import escape_ratio as escape_ratio
from dynagram.theory.saddle._universality import first_correction as first_correction
from dynagram.theory.saddle._universality import universal_time as universal_time
