"""`dynagram critical`: the answer for people and for machines."""

import json
import math

import jax
import numpy as np
import pytest

from dynagram.activations import registered
from dynagram.report.prose._initialisation import jax_lines, pytorch_lines

KEYS = [
    "activation",
    "class",
    "C_b",
    "C_W",
    "K_star",
    "chi_parallel",
    "chi_perp",
    "exponents",
    "notes",
]


def test_critical_json_has_exactly_these_keys(answer):
    data = answer("critical", "gelu", "--json")
    assert list(data) == KEYS
    assert data["activation"] == "gelu"
    assert data["class"] == "half-stable"
    assert data["C_b"] == pytest.approx(0.17292239075606735, rel=1e-10)
    assert data["C_W"] == pytest.approx(1.9830582574375471, rel=1e-12)
    assert data["K_star"] == pytest.approx((3 + math.sqrt(17)) / 2, rel=1e-12)
    assert data["chi_parallel"] == pytest.approx(1.0, abs=1e-12)
    assert data["chi_perp"] == pytest.approx(1.0, abs=1e-12)


def test_critical_json_says_null_where_nothing_is_defined(answer):
    relu = answer("critical", "relu", "--json")
    assert relu["K_star"] is None
    assert relu["C_W"] == 2.0
    sigmoid = answer("critical", "sigmoid", "--json")
    assert list(sigmoid) == KEYS
    assert [sigmoid[key] for key in KEYS[2:8]] == [None] * 6
    assert sigmoid["class"] == "none"
    assert "-4 < 0" in sigmoid["notes"][-1]
    assert "subtract a constant" in sigmoid["notes"][-1]


@pytest.mark.parametrize("name", registered())
def test_critical_answers_for_every_activation(answer, name):
    assert list(answer("critical", name, "--json")) == KEYS


def test_critical_options_add_their_keys_and_no_others(answer):
    data = answer("critical", "tanh", "--cb", 0.05, "--cw", 1.5, "--json")
    assert list(data) == [*KEYS, "given"]
    fixed = data["given"]["fixed_points"]
    assert [point["K"] for point in fixed] == pytest.approx([0.4180372005], rel=1e-9)
    assert fixed[0]["xi_perp"] == pytest.approx(15.790994, rel=1e-7)
    assert data["given"]["phase"] == "ordered"
    deep = answer("critical", "tanh", "--depth", 20, "--width", 100, "--json")
    assert list(deep) == [*KEYS, "at_depth"]
    assert deep["at_depth"]["K"] == pytest.approx(0.027286159536, rel=1e-9)
    expected = 0.008908290817 / 0.027286159536**2 / 100
    assert deep["at_depth"]["relative_fluctuation"] == pytest.approx(expected, rel=1e-8)
    assert deep["at_depth"]["renormalised_C_W"] == pytest.approx(1 + 2 / 300)


def test_one_variance_alone_takes_the_other_from_the_critical_point(answer):
    given = answer("critical", "gelu", "--cw", 1.9, "--json")["given"]
    assert given["C_b"] == pytest.approx(0.17292239075606735)
    assert given["C_W"] == 1.9


def test_infinite_lengths_are_null(run):
    text = run("critical", "relu", "--cb", 0, "--cw", 2, "--json").stdout
    assert json.loads(text)["given"]["fixed_points"][0]["xi_perp"] is None
    assert "Infinity" not in text


def test_critical_prints_what_a_person_needs(run):
    result = run("critical", "tanh", "--depth", 30, "--width", 100)
    assert result.exit_code == 0
    for piece in (
        "K*=0, stable",
        "neither explode nor die out",
        "V/(nK²)",
        "depth/width = 0.3",
        pytorch_lines(0.0, 1.0),
        jax_lines(0.0, 1.0),
    ):
        assert piece in result.stdout


def test_critical_without_criticality_says_why_and_what_to_do(run):
    result = run("critical", "sigmoid")
    assert result.exit_code == 0
    assert "no critical initialisation" in result.stdout
    assert "Choose an activation that has a critical point" in result.stdout.replace("\n", " ")
    assert "torch" not in result.stdout


def test_unstable_point_is_called_so(run, answer):
    assert "repels" in run("critical", "sinh").stdout
    assert answer("critical", "sinh", "--json")["class"] == "K*=0 unstable"


def test_own_activation_from_the_current_directory(answer, tmp_path, monkeypatch):
    (tmp_path / "my_module_of_activations.py").write_text(
        "import jax.numpy as jnp\n\ndef bent(z):\n    return jnp.tanh(z) + 0.1 * jnp.sin(z)\n"
    )
    monkeypatch.chdir(tmp_path)
    data = answer("critical", "my_module_of_activations:bent", "--json")
    assert data["class"] == "K*=0"
    assert data["C_W"] == pytest.approx(1 / 1.1**2, rel=1e-12)


@pytest.mark.slow
def test_line_of_critical_points(run, answer, tmp_path, monkeypatch):
    (tmp_path / "my_module_of_lines.py").write_text(
        "import jax.numpy as jnp\n\ndef late(z):\n    return jnp.maximum(z - 0.3, 0.0)\n"
    )
    monkeypatch.chdir(tmp_path)
    name = "my_module_of_lines:late"
    data = answer("critical", name, "--json")
    assert list(data) == [*KEYS, "line"]
    points = {point["K_star"]: point for point in data["line"]["points"]}
    assert points[1.0]["C_b"] == data["C_b"] == pytest.approx(0.2094497907, rel=1e-9)
    assert points[2.0]["C_W"] == pytest.approx(2.4038351, rel=1e-6)
    text = run("critical", name, "--cb", 0.3, "--cw", 2.4038351).stdout
    assert "A line of critical points, one for every K* > 0" in text
    assert "has this C_W at K* = 2, C_b = 0.307813" in " ".join(text.split())


@pytest.mark.parametrize("suffix", [".svg", ".png", ".html"])
def test_critical_plot(run, tmp_path, suffix):
    path = tmp_path / f"plane{suffix}"
    result = run("critical", "gelu", "--cw", 1.9, "--json", "--plot", path)
    assert result.exit_code == 0
    json.loads(result.stdout)  # the remark about the file is on stderr
    assert str(path) in result.stderr
    assert path.stat().st_size > 10_000
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["relu", "sigmoid", "cos", "exp", "step", "hardtanh"])
def test_critical_plot_of_odd_cases(run, tmp_path, name):
    path = tmp_path / "plane.svg"
    result = run("critical", name, "--plot", path)
    assert result.exit_code == 0 or "σ jumps" in result.stderr
    assert path.exists() == (result.exit_code == 0)


def test_jax_lines_give_these_variances():
    space = {"jax": jax}
    exec(jax_lines(0.25, 1.7), space)
    kernel = space["kernel_init"](jax.random.key(0), (400, 300))
    bias = space["bias_init"](jax.random.key(1), (40_000,))
    # Variances of a normal sample of size M have relative standard error √(2/M).
    assert float(kernel.var()) * 400 == pytest.approx(1.7, rel=4 * math.sqrt(2 / 120_000))
    assert float(bias.var()) == pytest.approx(0.25, rel=4 * math.sqrt(2 / 40_000))
    exec(jax_lines(0.0, 2.0), space)
    assert not np.any(space["bias_init"](jax.random.key(1), (5,)))


def test_pytorch_lines_are_code_with_these_standard_deviations():
    text = pytorch_lines(0.25, 1.7)
    compile(text, "lines", "exec")
    assert "std=(1.7 / layer.in_features) ** 0.5" in text
    assert "layer.bias, std=0.5)" in text
    assert "zeros_(layer.bias)" in pytorch_lines(0.0, 1.7)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tahn"], "did you mean tanh"),
        (["no.such.module:f"], "cannot be imported"),
        (["relu", "--cw", "-1", "--cb", "0"], "--cw = -1.0"),
        (["relu", "--cw", "2", "--cb", "-1"], "C_b = -1.0"),
        (["relu", "--cw", "nan", "--cb", "0"], "C_W = nan"),
        (["relu", "--cw", "two"], "'--cw'"),
        (["relu", "--depth", "0"], "--depth = 0"),
        (["relu", "--width", "0"], "--width = 0"),
        (["relu", "--width", "-3"], "--width = -3"),
        (["relu", "--cb", "0", "--cw", "4", "--depth", "3000"], "explodes"),
        (["exp", "--cb", "0", "--cw", "1", "--depth", "9"], "explodes"),
        (["sigmoid", "--depth", "3"], "no critical point"),
        (["sigmoid", "--cw", "3"], "no critical point"),
        (["relu", "--plot", "figure.pdf"], "must end in .svg, .png or .html"),
        (["relu", "--plot", "no/such/folder/figure.svg"], "its folder does not exist"),
        (["relu", "--nonsense"], "No such option"),
        ([], "needed, unless --arch"),
    ],
)
def test_critical_refuses(complaint, arguments, words):
    assert words in complaint("critical", *arguments)
