"""Symmetric matrices over samples as upper-triangular square tiles, which fused passes run over."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

Index = jax.Array | np.ndarray


@dataclass(frozen=True)
class Tiling:
    """Upper-triangular square tiles of an N × N matrix, padded with copies of the last sample."""

    samples: int
    tile: int

    @classmethod
    @functools.lru_cache(maxsize=64)
    def of(cls, samples: int) -> Tiling:
        """Small tiles for small matrices, so that little is padded."""
        return cls(samples, 16 if samples <= 16 else 32 if samples <= 256 else 64)

    @property
    def blocks(self) -> int:
        """Tiles along one side."""
        return -(-self.samples // self.tile)

    @functools.cached_property
    def rows(self) -> np.ndarray:
        """Block row of every tile."""
        return np.triu_indices(self.blocks)[0]

    @functools.cached_property
    def columns(self) -> np.ndarray:
        """Block column of every tile."""
        return np.triu_indices(self.blocks)[1]

    @functools.cached_property
    def places(self) -> tuple[jax.Array, jax.Array]:
        """Block rows and columns on the device, sent there once."""
        return jax.device_put(self.rows), jax.device_put(self.columns)

    def pad(self, vector: np.ndarray) -> np.ndarray:
        """(…, N) → (…, blocks·tile), repeating the last entry."""
        extra = self.blocks * self.tile - self.samples
        return np.concatenate([vector, np.repeat(vector[..., -1:], extra, axis=-1)], axis=-1)

    def blocks_of(self, x: Float[np.ndarray, "n features"]) -> np.ndarray:
        """The rows of x by block, (blocks, tile, features), the last repeated."""
        return self.pad(x.T).T.reshape(self.blocks, self.tile, -1)

    def gram(self, x: Float[np.ndarray, "n features"]) -> tuple[jax.Array, jax.Array]:
        """Tiles of x xᵀ and its padded diagonal, without forming the matrix."""
        return gram_of_blocks(self.blocks_of(x), *self.places)

    def write(self, matrix: np.ndarray, tiles: Index, diagonal: Index) -> None:
        """Fill a symmetric matrix with these upper tiles and this padded diagonal."""
        values, above = np.asarray(tiles), np.triu(np.ones((self.tile, self.tile), dtype=bool), 1)
        for index, (row, column) in enumerate(zip(self.rows, self.columns, strict=True)):
            tile, a, b = values[index], row * self.tile, column * self.tile
            height, width = min(self.tile, self.samples - a), min(self.tile, self.samples - b)
            tile = tile[:height, :width]
            if row == column:  # only entries above the diagonal are kept exact
                tile = np.where(above[:height, :width], tile, tile.T)
            else:
                matrix[b : b + width, a : a + height] = tile.T
            matrix[a : a + height, b : b + width] = tile
        np.fill_diagonal(matrix, np.asarray(diagonal)[: self.samples])


@jax.jit
def gram_of_blocks(x: Index, i: Index, j: Index) -> tuple[jax.Array, jax.Array]:
    """Tiles (i, j) of x xᵀ and its diagonal, for x by block."""
    tiles = jnp.einsum("tak,tbk->tab", x[i], x[j])
    return tiles, jnp.sum(jnp.square(x), axis=2).ravel()


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class KernelStep:
    """⟨σσ⟩ and ⟨σ'σ'⟩ of one layer: tiles off the diagonal, padded vectors on it."""

    value: jax.Array
    slope: jax.Array
    value_diagonal: Index
    slope_diagonal: Index
