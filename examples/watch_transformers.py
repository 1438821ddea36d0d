"""Hugging Face Trainer: a small GPT-2, not pretrained, is watched by a callback."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from dynagram.integrations.transformers import WatchCallback

torch.manual_seed(0)
config = GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=2, n_head=2)
model = GPT2LMHeadModel(config)
ids = (torch.arange(16) * 3 + torch.randint(0, 32, (64, 1))) % 32
data = [{"input_ids": row, "labels": row} for row in ids]
callback = WatchCallback({"input_ids": ids[:16], "labels": ids[:16]}, every=5)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder, max_steps=10, per_device_train_batch_size=8, report_to=[],
        disable_tqdm=True, save_strategy="no", logging_strategy="no", use_cpu=True,
    )  # fmt: skip
    Trainer(model=model, args=arguments, train_dataset=data, callbacks=[callback]).train()
print(callback.watcher)
