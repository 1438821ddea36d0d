"""What every stage of a network should show: by theory where it applies, else by drawn networks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from dynagram.errors import DynagramError
from dynagram.live._bands import Band, band_of_draws, band_of_theory
from dynagram.live._stages import NUMBERS, draw_stages
from dynagram.live._walk import Place, matrices_of
from dynagram.networks import Chain
from dynagram.theory.chain import Birth, trace_birth

DRAWS = 100
_FEW_INPUTS = 64
_MOST_INDICES = 12  # samples times positions for which theory takes seconds
_MOST_PARAMETERS = 4_000_000  # of networks that are drawn a hundred times
_SMALL = 0.4  # a spread beyond it is not of order 1/n any more: deep networks that are narrow
_FEWEST = 16  # channels: a mean square over fewer is far from normal


def expect_stages(
    network: Chain,
    rows: np.ndarray,
    seed: int,
    uniform: Collection[Place] = (),
    *,
    theory: bool = True,
) -> tuple[dict[tuple[int, str], Band], Birth | None, str]:
    """Bands by (stage, quantity), the birth behind them, and why there is none.

    `uniform` are the places of weights that are drawn uniformly. Theory has normal ones; the
    difference is 1 over the fan-in, so that few inputs make its bands too wide. Without `theory`,
    which takes longest, all bands are those of drawn networks.
    """
    birth, reason = _birth(network, rows) if theory else (None, "it is not the declared network")
    bands: dict[tuple[int, str], Band] = {}
    small = [m for m in matrices_of(network) if m.place in uniform and 1 < m.fan_in < _FEW_INPUTS]
    drawable = network.number_of_parameters <= _MOST_PARAMETERS
    if small and drawable:
        reason = "uniform weights that read few inputs"
    elif birth is not None:
        for number, stage in enumerate(birth.stages):
            if stage.width < _FEWEST:
                continue
            if 1e-4 * stage.mean_square < stage.mean_square_std < _SMALL * stage.mean_square:
                std = float(np.hypot(stage.mean_square_std, stage.error))
                bands[number, NUMBERS[0]] = band_of_theory(stage.mean_square, std)
            if stage.similarity is not None and (stage.similarity_std or 0.0) > 1e-6:
                assert stage.similarity_std is not None
                bands[number, NUMBERS[1]] = band_of_theory(
                    stage.similarity, stage.similarity_std, signed=True
                )
    if drawable:
        for key, band in _drawn(network, rows, seed, uniform).items():
            bands.setdefault(key, band)
    return bands, birth, reason


def _birth(network: Chain, rows: np.ndarray) -> tuple[Birth | None, str]:
    positions = _most_positions(network)
    if len(rows) * positions > _MOST_INDICES:
        return None, f"{len(rows) * positions} samples times positions are too many for theory"
    # The spread of gradients costs a run for every block: networks drawn anew are quicker.
    try:
        return trace_birth(network, rows), ""
    except DynagramError as error:
        return None, str(error)


def _most_positions(network: Chain) -> int:
    shape, most = network.in_shape, network.in_shape.positions
    for block in network.blocks:
        shape = block.out_shape(shape)
        most = max(most, shape.positions)
    return most


def _drawn(
    network: Chain, rows: np.ndarray, seed: int, uniform: Collection[Place]
) -> dict[tuple[int, str], Band]:
    draws: Any = draw_stages(network, rows, DRAWS, seed, uniform)
    bands, shape = {}, network.in_shape
    for number, block in enumerate(network.blocks):
        shape = block.out_shape(shape)
        for name in NUMBERS:
            if shape.channels < _FEWEST and name in NUMBERS[:2]:
                continue
            values, signed = draws.numbers[name][:, number], name == NUMBERS[1]
            usual = float(np.mean(np.abs(values)))
            band = band_of_draws(values, signed=signed)
            if band is not None and np.std(values) > 1e-5 * usual:
                bands[number, name] = band
    return bands
