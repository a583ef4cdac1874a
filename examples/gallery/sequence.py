"""
A sequence model
================

Each row is a sequence of ten letters, and its label says whether there are more a than b.
``Embedding`` and ``GRU`` are converted like any other layer, and each sample draws the weights once
for the whole sequence.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import headstart as hs

torch.manual_seed(0)
LETTERS, LENGTH = 6, 10


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, 8)
        self.rnn = nn.GRU(8, 16, batch_first=True)
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.rnn(self.letters(x))[0].mean(1))


x = torch.randint(LETTERS, (600, LENGTH))
margin = (x == 0).sum(1) - (x == 1).sum(1)
y = (margin > 0).long()
train, held_out = (x[:400], y[:400]), (x[400:], y[400:])

# %%
# Convert, initialize, train and predict as for any other net.

model, lik = hs.bayesianize(Reader()), hs.Categorical(num_classes=2)
hs.initialize_(model, "iblm", lik, train, seed=0)
hs.fit(model, lik, train, steps=150, samples=4, progress=False, seed=0)
error = hs.evaluate(model, lik, held_out, samples=32, seed=0)["error"]
print(f"error on held-out sentences: {error:.3f}")

# %%
# Predictions are least certain where a and b are nearly balanced.

pred = hs.predict(model, lik, held_out[0], samples=64, seed=0)
left = margin[400:]
margins = sorted(set(left.tolist()))
figure, axis = plt.subplots(figsize=(6, 3.5), layout="constrained")
axis.boxplot([pred.entropy[left == m].numpy() for m in margins], positions=margins)
axis.set(xlabel="number of a less number of b", ylabel="entropy, nats")
plt.show()

# %%
# Your own data
# -------------
# Pass sequences as one padded tensor, batch first (``Embedding(padding_idx=0)``); packed sequences
# are not supported.
# Batches of Hugging Face's tokenizers, dictionaries with ``labels``, work as they are.
# For a label at every position use ``hs.PerPosition``.
