"""The callbacks with the real packages: what they record is what a loop records."""

import importlib.util
import subprocess
import sys
import textwrap
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from dynagram.errors import InvalidValueError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

X = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def in_a_process(program):
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout


@pytest.mark.slow
def test_keras():
    if importlib.util.find_spec("keras") is None:  # importing it needs a backend to be chosen
        pytest.skip("keras is not installed")
    printed = in_a_process(
        """
        import os
        os.environ["KERAS_BACKEND"] = "jax"
        import keras, numpy as np
        from dynagram.integrations.keras import WatchCallback

        rng = np.random.default_rng(0)
        x = rng.normal(size=(64, 6)).astype("float32")
        y = (x[:, 0] > 0).astype("int32")
        keras.utils.set_random_seed(0)

        def fit(callbacks):
            keras.utils.set_random_seed(0)
            model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "relu"),
                                      keras.layers.Dropout(0.2), keras.layers.Dense(2)])
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.SGD(0.1), loss)
            model.fit(x, y, batch_size=16, epochs=3, verbose=0, callbacks=callbacks)
            return model

        callback = WatchCallback((x, y), every=4)
        model, plain = fit([callback]), fit([])
        watcher = callback.watcher
        assert watcher.failures == [], watcher.failures
        assert all(np.array_equal(a, b) for a, b in
                   zip(model.get_weights(), plain.get_weights(), strict=True))
        kernels = [w for w in model.get_weights() if w.ndim == 2]
        norms = [watcher.last.values["weight_norm", name] for name in watcher.layers]
        assert np.allclose(norms, [np.linalg.norm(w) for w in kernels], rtol=1e-5)
        assert all(watcher.last.values["update_norm", name] > 0 for name in watcher.layers)
        print(watcher.last.step)

        # Statistics of batch norms are those of now, and their arrays not those that are gone.
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "relu"),
                                  keras.layers.BatchNormalization(), keras.layers.Dense(2)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss)
        callback = WatchCallback((x, y), every=4, samples=64, rate=0.1, momentum=0.0)
        first = []

        class Begun(keras.callbacks.Callback):
            def on_train_begin(self, logs=None):
                first.append(("top_eigenvalue", "") in callback.watcher.last.bands)

        model.fit(x, y, batch_size=16, epochs=3, verbose=0, callbacks=[callback, Begun()])
        watcher = callback.watcher
        assert watcher.failures == [], watcher.failures
        assert np.isclose(watcher.last.values["loss", ""], loss(y, model(x)), rtol=1e-4)
        assert first == [False]  # no bound of the training's curvature
        """
    )
    assert printed.split() == ["12"]


@pytest.mark.slow
def test_lightning_logs_and_goes_on(tmp_path):
    pl = pytest.importorskip("lightning.pytorch")
    from dynagram.integrations.lightning import WatchCallback

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))

        def training_step(self, batch, _):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fit(callbacks, logger):
        pl.seed_everything(0, verbose=False)
        module = Module()
        trainer = pl.Trainer(
            max_steps=8, accelerator="cpu", logger=logger, callbacks=callbacks,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        data = torch.utils.data.TensorDataset(X, Y)
        trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=16, shuffle=True))
        return module

    from lightning.pytorch.loggers import CSVLogger

    logger = CSVLogger(tmp_path)
    callback = WatchCallback((X, Y), every=4, module="net", run=tmp_path / "run")
    watched, plain = fit([callback], logger), fit([], False)
    for one, other in zip(watched.parameters(), plain.parameters(), strict=True):
        assert torch.equal(one, other)
    assert callback.watcher.failures == []
    assert callback.watcher.last.step == 8
    assert (
        "dynagram/weight_norm/0"
        in (tmp_path / logger.name / "version_0" / "metrics.csv").read_text()
    )


@pytest.mark.slow
def test_transformers_trains_the_same(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from dynagram.integrations.transformers import WatchCallback

    ids = torch.randint(0, 31, (32, 8), generator=torch.Generator().manual_seed(1))

    def fit(callbacks, **more):
        torch.manual_seed(0)
        config = transformers.GPT2Config(
            vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2, bos_token_id=31,
            eos_token_id=31,
        )  # fmt: skip
        model = transformers.GPT2LMHeadModel(config)
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), max_steps=6, per_device_train_batch_size=8, report_to=[],
            disable_tqdm=True, save_strategy="no", logging_strategy="no", use_cpu=True,
            **more,
        )  # fmt: skip
        data = [{"input_ids": row, "labels": row} for row in ids]
        transformers.Trainer(
            model=model, args=arguments, train_dataset=data, callbacks=callbacks
        ).train()
        return model

    callback = WatchCallback({"input_ids": ids[:8], "labels": ids[:8]}, every=3)
    watched, plain = fit([callback]), fit([])
    for one, other in zip(watched.parameters(), plain.parameters(), strict=True):
        assert torch.equal(one, other)  # with dropout
    watcher = callback.watcher
    assert watcher.failures == []
    assert watcher.last.step == 6
    # GPT-2 keeps its matrices with the inputs first.
    attention = watched.transformer.h[0].attn.c_attn.weight
    name = next(layer for layer in watcher.layers if layer.endswith("c_attn"))
    assert watcher.last.values["weight_norm", name] == pytest.approx(
        float(attention.detach().norm())
    )
    assert ("gram_explained", name) in watcher.last.values
    shares = [v for (quantity, _), v in watcher.last.values.items() if quantity == "kernel_share"]
    assert np.sum(shares) == pytest.approx(1.0)

    callback = WatchCallback((ids[:8], ids[:8]), every=3)  # a pair, and autocast around `forward`
    watched, plain = fit([callback], bf16=True), fit([], bf16=True)
    for one, other in zip(watched.parameters(), plain.parameters(), strict=True):
        assert torch.equal(one, other)
    assert callback.watcher.failures == []
    assert ("kernel_share", name) in callback.watcher.last.values


def test_a_part_that_is_not_there_is_named():
    pl = pytest.importorskip("lightning.pytorch")
    from dynagram.integrations.lightning import WatchCallback

    callback = WatchCallback((X, Y), module="net")
    trainer = types.SimpleNamespace(is_global_zero=True, logger=None)
    with pytest.raises(InvalidValueError, match="module = 'net': the LightningModule has no part"):
        callback.on_train_start(trainer, pl.LightningModule())


def test_a_package_that_is_missing_is_one_line():
    """With the command that installs it."""
    names = ["lightning", "transformers", "keras"]
    printed = in_a_process(
        f"""
        import importlib, sys
        for package in ("lightning.pytorch", "pytorch_lightning", *{names!r}):
            sys.modules[package] = None
        for name in {names!r}:
            try:
                importlib.import_module("dynagram.integrations." + name)
            except Exception as error:
                print(error)
        """
    )
    lines = [f"{name} is not installed: run  pip install {name}" for name in names]
    assert printed.splitlines() == lines
