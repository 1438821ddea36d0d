"""Models that write into tensors, and models with complex parameters."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import dynagram  # noqa: E402
from dynagram.live._torch_trace import trace_torch  # noqa: E402


class Writes(nn.Module):
    """Half of the units go through a matrix of their own, by one way of writing them back."""

    def __init__(self, way):
        super().__init__()
        self.first, self.part = nn.Linear(8, 32), nn.Linear(16, 16)
        self.last, self.way = nn.Linear(32, 1), way

    def forward(self, x):
        h = torch.relu(self.first(x))
        return self.last(self.way(h, self.part(h[:, :16])))


def into_zeros(h, made):
    z = torch.zeros(len(h), 32, dtype=h.dtype)
    z[:, :16] = made
    return z + h


def into_a_copy(h, made):
    z = h.clone()
    z[:, :16] = made
    return z


def by_a_view(h, made):
    z = torch.zeros_like(h)
    z[:, :16].add_(made)
    return z


def beside_a_view(h, made):
    z = h.clone()
    before, behind = z[:, :16], z[:, 16:]
    before += made
    return torch.cat([before, behind], 1) + z


def by_a_mask(h, made):
    z = torch.zeros(32, dtype=torch.bool)
    z[:16] = True
    chosen = torch.zeros(len(h), 32, dtype=h.dtype)
    chosen[:, z] = made
    return chosen + h


def by_out(h, made):
    z = torch.empty_like(made)
    torch.mul(made, 2.0, out=z)
    return torch.cat([z, h[:, 16:]], 1)


WAYS = [into_zeros, into_a_copy, by_a_view, beside_a_view, by_a_mask]


@pytest.mark.parametrize("way", WAYS)
def test_what_is_written_into_a_tensor_is_followed(way):
    torch.manual_seed(0)
    model, x = Writes(way), torch.randn(32, 8)
    graph, parameters = trace_torch(model, x)
    assert graph.used() == set(parameters)
    result = dynagram.check(model, x)
    assert result.is_fine, result.words
    assert not any("does not depend" in note for note in result.notes)


@pytest.mark.parametrize("way", [into_zeros, into_a_copy, by_a_mask, by_out])
def test_writes_are_replayed_on_other_numbers(way):
    """Into what the tensor held before, not into what the first pass has left there."""
    torch.manual_seed(0)
    model, x = Writes(way).double(), torch.randn(4, 8, dtype=torch.float64)
    graph, _ = trace_torch(model, x)
    made = graph.replay(0, graph.output, -3.0 * x.numpy())
    assert made is not None
    with torch.no_grad():
        np.testing.assert_allclose(made, model(-3.0 * x).numpy(), rtol=1e-12)


class Spectral(nn.Module):
    """A layer that multiplies Fourier components, as neural operators have."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16, 5, dtype=torch.cfloat) / 4)

    def forward(self, x):
        waves = torch.fft.rfft(x)
        out = torch.zeros(*waves.shape, dtype=torch.cfloat)
        out[..., :5] = torch.einsum("bix,iox->box", waves[..., :5], self.weight)
        return torch.fft.irfft(out, n=x.shape[-1])


def operator():
    return nn.Sequential(
        nn.Conv1d(2, 16, 1), Spectral(), nn.GELU(), Spectral(), nn.Conv1d(16, 1, 1)
    )


def test_complex_parameters_are_measured():
    torch.manual_seed(0)
    model, x = operator(), torch.randn(8, 2, 32)
    result = dynagram.check(model, x)
    assert result.is_fine, result.words
    assert {"1", "3"} <= {reading.layer for reading in result.readings}
    assert not any("does not depend" in note for note in result.notes)
    with torch.no_grad():
        model[1].weight.mul_(10.0)
    assert not dynagram.check(model, x, factory=operator).is_fine


def test_a_complex_layer_in_between():
    class Phases(nn.Module):
        def __init__(self):
            super().__init__()
            self.turn = nn.Linear(16, 16, dtype=torch.cfloat)  # first: inputs stay real
            self.first, self.last = nn.Linear(4, 16), nn.Linear(16, 1)

        def forward(self, x):
            return self.last(self.turn(self.first(x).to(torch.cfloat)).abs())

    torch.manual_seed(0)
    result = dynagram.check(Phases(), torch.randn(32, 4))
    assert result.is_fine, result.words
    assert "turn" in {reading.layer for reading in result.readings}
    assert any("a complex matrix" in note for note in result.notes)
