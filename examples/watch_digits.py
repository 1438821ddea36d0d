"""Watch a network while it learns digits: one line more than the training itself."""

import torch
from torch import nn

import dynagram
from dynagram.data import digits

torch.manual_seed(0)
data = digits()
x = torch.tensor(data.x, dtype=torch.float32) / 8 - 1
y = torch.tensor(data.labels)
layers = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)]
model = nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

watcher = dynagram.watch(model, (x[:256], y[:256]), every=100)

for _ in range(600):
    rows = torch.randint(0, len(x), (64,))
    loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

watcher.close()
print(watcher, f"loss {watcher.last.values['loss', '']:.1f}", *watcher.alerts, sep="\n")
