"""Lightning: the module is watched by a callback."""

import lightning.pytorch as pl
import torch
from torch import nn

from dynagram.data import digits
from dynagram.integrations.lightning import WatchCallback

data = digits()
x = torch.tensor(data.x, dtype=torch.float32) / 8 - 1
y = torch.tensor(data.labels)


class Digits(pl.LightningModule):
    """Two layers."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch, _):
        """The loss of a batch."""
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        """Plain gradient descent."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


pl.seed_everything(0, verbose=False)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=64)
callback = WatchCallback((x[:128], y[:128]), every=50, module="net")
trainer = pl.Trainer(
    max_steps=100, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, callbacks=[callback],
)  # fmt: skip
trainer.fit(Digits(), loader)
print(callback.watcher)
