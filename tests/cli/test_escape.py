"""`dynagram escape`: the numbers of the library, and one line for what it refuses."""

import pytest

TANH = ["escape", "--activation", "tanh", "--depth", 4, "--width", 64]


def test_json_has_the_known_times(answer):
    data = answer(*TANH, "--scale", 0.02, "--json")
    assert (data["clock"], data["class"]) == ("reduced", "B_3")
    assert round(data["ode"], 5) == 257.68349
    assert round(data["leading"], 3) == 256.817
    assert round(data["next_to_leading"], 3) == 257.592
    assert round(data["K"], 6) == 4.845644
    assert data["scales"] == [0.02] * 4


def test_clocks_and_bottleneck(answer):
    matrix = answer(*TANH, "--scale", 0.02, "--clock", "matrix", "--json")
    steps = answer(*TANH, "--scale", 0.02, "--clock", "steps", "--lr", 0.5, "--json")
    assert matrix["ode"] == pytest.approx(64 * 257.68349, rel=1e-7)
    assert steps["ode"] == pytest.approx(128 * 257.68349, rel=1e-7)
    data = answer(*TANH, "--scale", 0.02, "--bottleneck", 3, "--rest", 0.5, "--json")
    assert data["scales"] == [0.02, 0.02, 0.02, 0.5]


def test_one_scale_per_layer_and_the_table(run):
    result = run(*TANH, "--scale", "0.03,0.05,0.07,0.09")
    assert result.exit_code == 0
    for words in ("tanh, class B_3", "leading", "next to leading", "29.49485", "exact"):
        assert words in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--scale", "0.02,0.02"], "one per layer: 4"),
        (["--scale", "small"], "a number, or one per layer"),
        (["--scale", 0.5], "must be above X_1"),
        (["--scale", 0.02, "--clock", "steps"], "--lr = None: needed with --clock steps"),
        (["--scale", 0.02, "--lr", 0.5], "--lr = 0.5: needed with --clock steps, and only there"),
        (["--scale", 0.02, "--clock", "hours"], "expected reduced, matrix or steps"),
        (["--scale", 0.02, "--bottleneck", 9], "at most the depth"),
    ],
)
def test_refusals(complaint, arguments, words):
    assert words in complaint(*TANH, *arguments)
