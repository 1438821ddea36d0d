"""The studio: settings, formulas that are never run, a server that answers its own page only."""

import http.client
import json
import socket
import struct
import threading
import time
import tomllib
from contextlib import closing
from urllib.parse import urlencode, urlsplit

import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.config import parse_config
from dynagram.errors import InvalidValueError
from dynagram.studio import State, Studio, answer, parse_formula
from dynagram.studio._answers import PARTS
from dynagram.studio._widget import script


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("z * sigmoid(1.7 * z)", lambda z: z / (1 + np.exp(-1.7 * z))),
        ("max(z, 0) + 0.1 * min(z, 0)", lambda z: np.where(z > 0, z, 0.1 * z)),
        ("where(z > 0, z, exp(z) - 1)", lambda z: np.where(z > 0, z, np.exp(z) - 1)),
        ("-z^3 / (1 + z**2)", lambda z: -(z**3) / (1 + z**2)),
    ],
)
def test_a_formula_is_what_it_says(text, function):
    z = np.linspace(-3.0, 3.0, 11)
    np.testing.assert_allclose(parse_formula(text)(jnp.asarray(z)), function(z), rtol=1e-5)
    assert parse_formula(text) is parse_formula(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "z.real", "(lambda: z)()", "[z][0]", "z if z else 1",
        "open('x')", "z + 'a'", "exec(z)", "z := 1", "tanh(z, z)", "tanh(x=z)", "1.0", "",
        "9**9**9*z*1e7",
        "z" * 300, "(" * 100 + "z" + ")" * 100 + "+" + "-" * 60 + "z", "z;z", "True * z", "f'{z}'",
    ],
)  # fmt: skip
def test_nonsense_and_code_are_refused_in_one_line(text):
    with pytest.raises(InvalidValueError, match="formula") as raised:
        parse_formula(text)
    assert "\n" not in str(raised.value)


def test_a_state_is_checked_and_written_three_ways(tmp_path):
    state = State.of({"activation": "tanh", "C_W": "1.2", "width": "32", "depth": 3})
    assert (state.C_W, state.width, state.depth) == (1.2, 32, 3)
    tables = tomllib.loads(state.to_toml())
    assert tables["network"]["widths"] == [2, 32, 32, 1]
    problem = parse_config(state.to_toml(), tmp_path)  # complete: needs no other file
    assert problem.network == state.trained_network()
    np.testing.assert_allclose(problem.data.x, state.problem().x, atol=1e-6)
    own = State.of({"activation": "formula", "formula": "(z^2 *\n tanh(z))"}).to_toml()
    assert tomllib.loads(own)["network"]["activation"] == "my_module:sigma"
    assert "def sigma(z): return (z**2 * tanh(z))\n" in own
    assert tables["training"]["steps"] == state.steps
    assert "dynagram critical tanh --cb 0.1729 --cw 1.2" in state.to_command()
    scope = {}
    lines = state.to_python().splitlines()
    exec("\n".join(lines[:-2]), scope)  # all but the prediction and the training
    assert scope["network"] == state.trained_network()
    np.testing.assert_allclose(scope["data"].x, state.problem().x, rtol=1e-3)


@pytest.mark.parametrize(
    "values",
    [
        {"C_W": "nan"}, {"C_W": "-1"}, {"width": "1e9"}, {"depth": "x"}, {"data": "<b>"},
        {"nothing": "1"}, {"activation": "os:system"}, {"activation": "<script>"},
        {"activation": "formula", "formula": "import os"},
    ],
)  # fmt: skip
def test_nonsense_is_one_line_in_the_answer(values):
    result = answer("flow", values)
    assert result["error"]
    assert "\n" not in result["error"]


def test_every_part_of_a_network_with_closed_kernels():
    values = {"activation": "relu", "C_b": "0", "C_W": "2", "depth": "4", "width": "16"}
    flow = answer("flow", values)
    K = [row["K"] for row in flow["rows"]]
    np.testing.assert_allclose(K, 2.0, rtol=1e-12)  # (5.62): scale-invariant at C_W = 2
    np.testing.assert_allclose(
        [row["relative"] ** 2 for row in flow["rows"]], 5 / 16 * np.arange(4), rtol=1e-9
    )
    phase = answer("phase", values)
    assert phase["points"][0]["C_W"] == pytest.approx(2.0)
    trained = answer("trained", values | {"data": "two points", "eta": "0.02", "steps": "4000"})
    means = {round(row["x"], 3): row["mean"] for row in trained["rows"]}
    assert means[1.0] == pytest.approx(1.0, abs=0.05)
    table = answer("table", values)
    middle = len(table["values"]) // 2
    assert table["values"][middle + 64] == pytest.approx(1.0)
    assert table["values"][middle - 64] == 0.0
    assert "eta = 10" in answer("trained", values | {"eta": "10"})["error"]


@pytest.fixture
def server():
    with Studio() as studio:
        thread = threading.Thread(target=studio.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield studio
        studio.shutdown()


def get(studio, path, host=None):
    port = studio.server_address[1]
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", path, headers={} if host is None else {"Host": host})
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read().decode()


def test_the_page_needs_the_secret_and_the_right_host(server):
    home = urlsplit(server.address).path
    assert server.server_address[0] == "127.0.0.1"
    status, headers, page = get(server, home)
    assert status == 200
    assert "<script" in page
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe-eval" not in headers["Content-Security-Policy"]
    assert get(server, "/")[0] == 403
    assert get(server, f"/{'a' * 32}/")[0] == 403
    assert get(server, home, host="evil.example")[0] == 403
    assert get(server, f"{home}../../etc/passwd")[0] == 404
    assert get(server, f"{home}_server.py")[0] == 404
    for name in ("start.js", "studio.js", "vega.js", "style.css", "settings.json"):
        assert get(server, home + name)[0] == 200, name


def test_what_is_no_address_and_connections_that_break(server, capfd):
    with socket.create_connection(server.server_address) as connection:
        connection.sendall(b"GET http://[ HTTP/1.1\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.0 400")
    for text in (b"GE", f"GET {urlsplit(server.address).path}vega.js HTTP/1.1\r\n\r\n".encode()):
        with socket.create_connection(server.server_address) as connection:
            connection.sendall(text)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert get(server, urlsplit(server.address).path)[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_answers_and_overtaken_requests(server):
    home = urlsplit(server.address).path
    query = urlencode({"activation": "relu", "C_b": 0, "C_W": 2, "window": "a", "number": 5})
    status, _, text = get(server, f"{home}api/flow?{query}")
    assert status == 200
    assert json.loads(text)["rows"]
    assert get(server, f"{home}api/flow?{query.replace('=5', '=4')}")[0] == 409
    assert get(server, f"{home}api/flow?{query.replace('window=a', 'window=b')}")[0] == 200
    assert "error" in json.loads(get(server, f"{home}api/nothing?{query}")[2])
    assert get(server, f"{home}api/flow?{'x' * 5000}")[0] == 414


def test_trained_outputs_are_told_at_every_place_once_and_in_order():
    """Where kernels have no closed form few places are asked; training points are among them."""
    values = {"activation": "erf", "C_b": 0.1, "C_W": 1.2, "depth": 3, "width": 16, "eta": 0.01}
    places = [row["x"] for row in answer("trained", values)["rows"]]
    assert places == sorted(set(places))
    assert {-2.0, -1.2, -0.4, 0.4, 1.2, 2.0} <= set(places)
    assert len(State.of(values | {"activation": "tanh"}).problem().test_x) == 9
    assert len(answer("table", values)["grid"]) == 49


def test_a_slow_part_holds_up_no_other(server, monkeypatch):
    home, go_on = urlsplit(server.address).path, threading.Event()
    monkeypatch.setitem(PARTS, "trained", lambda _: {"waited": go_on.wait(60)})
    query, told = urlencode({"activation": "relu", "C_b": 0, "C_W": 2, "window": "a"}), []

    def ask(number):
        told.append((number, get(server, f"{home}api/trained?{query}&number={number}")))

    threads = [threading.Thread(target=ask, args=(number,)) for number in (1, 2, 3)]
    threads[0].start()
    while not server.working["trained"].locked():
        time.sleep(0.01)
    for thread in threads[1:]:
        thread.start()
    while server.newest.get(("a", "trained")) != 3:
        time.sleep(0.01)
    assert get(server, f"{home}api/flow?{query}&number=1")[0] == 200
    assert not told
    go_on.set()
    for thread in threads:
        thread.join()
    status = {number: answered[0] for number, answered in told}
    assert status == {1: 200, 2: 409, 3: 200}  # the second was overtaken while it waited


def test_the_widget_is_the_same_module():
    pytest.importorskip("anywidget")
    from dynagram.studio import widget

    text = script()
    assert text.count("export ") - text.split("const LABELS")[0].count("export ") == 1
    made, sent = widget(activation="relu", C_b=0, C_W=2), []
    made.send = sent.append
    made._handle_custom_msg({"part": "flow", "state": made.state, "number": 3}, [])
    assert sent[0]["number"] == 3
    assert sent[0]["rows"]
    with pytest.raises(InvalidValueError):
        widget(C_W=-1)
