"""Any bytes in any file: what is read is used, what is not is refused in one line."""

import io
import json
import os
import shutil
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from dynagram import MLP, Data, GradientDescent, Training, train
from dynagram.config import read_config
from dynagram.data import load_array, load_arrays, load_data
from dynagram.ensembles.engine import read_job, resume_job, run_job
from dynagram.errors import DynagramError
from dynagram.networks import Chain, load_weights
from dynagram.networks._huggingface import load_config
from dynagram.networks._network import network_from_toml
from dynagram.networks.blocks import Activate, Dense
from dynagram.results import Tensors, load
from oracles.walks import DRIFT, Walks

CONFIG = """[network]
widths = [2, 4, 1]
activation = "tanh"
C_b = 0.0
C_W = [1.0, 0.5]
[data]
train_x = "x.npy"
train_y = "y.npy"
test_x = "x.npy"
[training]
algorithm = "gd"
eta = 0.1
steps = 20
record = [1, 10]
"""


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz(compressed=False, **arrays):
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)
    return buffer.getvalue()


def safetensors(kind="F32", shape=(3, 2), size=4):
    count = int(np.prod(shape)) * size
    header = {"W": {"dtype": kind, "shape": list(shape), "data_offsets": [0, count]}}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(count)


def state_dict():
    torch = pytest.importorskip("torch")
    buffer = io.BytesIO()
    torch.save({"W1": torch.ones(3, 2), "b1": torch.zeros(3)}, buffer)
    return buffer.getvalue()


def saved(tmp_path_factory):
    """Results of both kinds, as their `save` writes them."""
    folder = tmp_path_factory.mktemp("saved")
    network = MLP([2, 8, 1], "linear", C_b=0.0, C_W=1.0)
    tensors = Tensors(
        network, np.ones((1, 2)), "∞", {"K": np.ones((2, 1, 1))}, {}, {"K": (1, 2)}, None
    )
    data = Data(np.eye(2), [1.0, 0.0], test_x=[[1.0, 1.0]])
    outputs = train(network, data, Training(GradientDescent(0.1), steps=2), members=3)
    return [
        result.save(folder / f"{n}.npz").read_bytes() for n, result in enumerate((tensors, outputs))
    ]


CHAIN = Chain([Dense(4, C_W=1.0), Activate("tanh"), Dense(1, C_W=1.0)], (1, 3))
MODELS = [
    {"model_type": "gpt2", "n_embd": 8, "n_layer": 2, "n_head": 2, "vocab_size": 9, "n_inner": None}
]
MODELS += [
    {"model_type": kind, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    | {"vocab_size": 9, "intermediate_size": 16, "initializer_range": 0.02}
    for kind in ("llama", "vit")
]
W, B = np.ones((3, 2)), np.zeros(3)
# Suffix, reader and files that it reads.
ARRAYS = [
    npy(np.eye(2)),
    npy(np.ones(3, np.float32)),
    npy(np.array(["a"])),
    npy(np.array(1.0)),
    b"1,2\n3,4\n",
    b"step loss\n0 1.5\n",
]
ARCHIVES = [
    npz(x=np.eye(2), y=np.ones(2)),
    npz(True, x=np.eye(2), y=np.array([0, 1])),
    npz(W1=W, b1=B),
]


@st.composite
def mutated(draw, originals):
    """One of the originals with some bytes changed, cut, repeated or put in."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        kind = draw(st.sampled_from(("set", "cut", "drop", "put", "digits", "repeat")))
        if kind == "set" and data:
            data[place] = draw(st.integers(0, 255))
        elif kind == "cut":
            del data[place:]
        elif kind == "drop":
            del data[place : place + draw(st.integers(1, 8))]
        elif kind == "put":
            data[place:place] = draw(st.binary(max_size=8))
        elif kind == "digits":
            digits = [i for i, byte in enumerate(data) if byte in b"0123456789"]
            if digits:
                number = draw(st.sampled_from((b"9" * 12, b"-1", b"0", b"1e999", b"9" * 5000)))
                chosen = draw(st.sampled_from(digits))
                data[chosen : chosen + 1] = number
        else:
            data[place:place] = data[place : place + 16] * draw(st.integers(1, 50))
    return bytes(data)


def survives(function, *arguments):
    """It returns, or refuses in one line of a length that can be read."""
    words = refusal(function, *arguments)
    assert len(words) < 2000
    assert "\n" not in words


def refusal(function, *arguments):
    """What is said about the arguments; nothing where they are taken."""
    try:
        function(*arguments)
    except DynagramError as error:
        return str(error)
    return ""


def reader_of(kind, tmp_path_factory):
    """What reads files of a kind, and some that it reads."""
    if kind == "npy":
        return load_array, ARRAYS
    if kind == "npz":
        return read_archive, ARCHIVES
    if kind == "results":
        return load, saved(tmp_path_factory)
    if kind == "toml":
        return read_config, [CONFIG.encode(), CONFIG.replace("gd", "flow").encode()]
    if kind == "chain":
        return read_chain, [CHAIN.to_toml().encode()]
    if kind == "json":
        return read_model, [json.dumps(model).encode() for model in MODELS]
    if kind == "pt":
        return read_weights, [state_dict()]
    shapes = (("F32", (3, 2), 4), ("BF16", (2, 2), 2), ("F8_E4M3", (2, 2), 1), ("I64", (2,), 8))
    return read_weights, [safetensors(*shape) for shape in shapes]


def read_weights(path):
    load_weights(path, "relu")


def read_chain(path):
    """The table of a network as a file has it, whose text is no TOML, perhaps."""
    network_from_toml(path.read_bytes().decode(errors="replace"))


def read_model(path):
    load_config(path, positions=4)


def read_archive(path):
    for reader in (load_arrays, load_data, read_weights):
        survives(reader, path)


SUFFIX = {"results": "npz"}
CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]

SIZE = int(os.environ.get("DYNAGRAM_FUZZ", "25"))  # per cent of 10 400 files, 500 folders
SEED = int(os.environ.get("DYNAGRAM_FUZZ_SEED", "0"))  # of the draws: another one, other cases


def fuzz(kind, examples, tmp_path, tmp_path_factory):
    reader, originals = reader_of(kind, tmp_path_factory)
    np.save(tmp_path / "x.npy", np.eye(2))
    np.save(tmp_path / "y.npy", np.ones((2, 1)))
    path = tmp_path / f"file.{SUFFIX.get(kind, kind)}"

    @seed(SEED)
    @settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=CHECKS,
        database=None,
    )
    @given(mutated(originals))
    def check(contents):
        path.write_bytes(contents)
        survives(reader, path)

    check()


KINDS = ("npy", "npz", "safetensors", "pt", "results", "toml", "chain", "json")


@pytest.mark.parametrize("kind", KINDS)
def test_some_files(kind, tmp_path, tmp_path_factory):
    fuzz(kind, 60, tmp_path, tmp_path_factory)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_files(kind, tmp_path, tmp_path_factory):
    fuzz(kind, 13 * SIZE, tmp_path, tmp_path_factory)


# --- run folders ------------------------------------------------------------------------------


def fuzz_runs(examples, tmp_path):
    run_job(Walks(DRIFT, chunk_members=32), members=64, folder=tmp_path / "whole")
    names = [
        p.relative_to(tmp_path / "whole")
        for p in sorted((tmp_path / "whole").rglob("*"))
        if p.is_file()
    ]

    @seed(SEED)
    @settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=CHECKS,
        database=None,
    )
    @given(st.data())
    def check(data):
        name = data.draw(st.sampled_from(names))
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        shutil.copytree(tmp_path / "whole", tmp_path / "run")
        original = (tmp_path / "whole" / name).read_bytes()
        (tmp_path / "run" / name).write_bytes(data.draw(mutated([original])))
        survives(lambda: read_job(tmp_path / "run", job_class=Walks))
        survives(lambda: resume_job(tmp_path / "run", job_class=Walks))

    check()


def test_some_run_folders(tmp_path):
    fuzz_runs(25, tmp_path)


@pytest.mark.slow
def test_many_run_folders(tmp_path):
    fuzz_runs(5 * SIZE, tmp_path)


# --- files that a fuzzer does not find --------------------------------------------------------


def bomb(path, size):
    """An archive of a few bytes whose one member would be `size` zeros."""
    header = npy(np.zeros(0))[:128].replace(b"(0,)", b"(%d,)" % (size // 8))
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as file,
    ):
        file.write(header)
        for _ in range(size // 2**20):
            file.write(bytes(2**20))


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    import dynagram.data._files as files_module

    bomb(tmp_path / "bomb.npz", 2**26)
    assert (tmp_path / "bomb.npz").stat().st_size < 2**17
    assert load_arrays(tmp_path / "bomb.npz")  # small enough to be an honest array of zeros
    monkeypatch.setattr(files_module, "EXPANDED", 2**24)
    with pytest.raises(DynagramError, match="bytes would expand to 67108.*: save it without"):
        load_arrays(tmp_path / "bomb.npz")


@pytest.mark.parametrize(
    ("name", "contents", "words"),
    [
        ("a.npy", npy(np.zeros(9)).replace(b"(9,), }     ", b"(9999999,), }"), "not an array"),
        ("a.npy", npy(np.zeros(2)).replace(b"'<f8'", b"'|O '"), "not an array"),
        ("a.npy", npy(np.array(["text"])), "expected real numbers"),
        ("a.safetensors", safetensors("F8_E4M3", (2, 2), 1), "numbers of the type 'float8_e4m3fn'"),
        ("a.safetensors", struct.pack("<Q", 2**62) + b"{}", "not a safetensors file"),
        ("a.safetensors", struct.pack("<Q", 40_000) + b"[" * 40_000, "not a safetensors file"),
        ("a.npz", npz(**{"W" + "9" * 5000: W, "W1": W.T}), ""),
        ("a.toml", b"a = " + b"[" * 50_000, "not a TOML file"),
        ("a.toml", b"a = " + b"9" * 5000, "not a TOML file"),
        ("a.toml", b"[network]\nwidths = [1, 1]", "the table [data] must be given"),
    ],
)  # fmt: skip
def test_known_troublemakers(tmp_path, name, contents, words):
    path = tmp_path / name
    path.write_bytes(contents)
    reader = {".npy": load_array, ".toml": read_config}.get(path.suffix, read_weights)
    said = refusal(reader, path)
    assert words in said
    assert "\n" not in said
