"""
Training with Lightning
=======================

``BayesianModule`` is a ``LightningModule`` that holds a Bayesian net and its likelihood, so that
Lightning's ``Trainer`` trains it with the callbacks, loggers and devices that you use already.
Here a callback stops training when the predictive density of validation rows no longer improves.
"""

import logging
import warnings

import lightning as L
import matplotlib.pyplot as plt
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import headstart as hs
from headstart.integrations import BayesianModule

# Lightning advises on loader workers and lists the devices; this page is shorter without.
warnings.filterwarnings("ignore", module="lightning")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

L.seed_everything(0, verbose=False)
x = 6 * torch.rand(1500, 1) - 3
y = (2 * x).sin() + 0.2 * torch.randn(1500, 1)
train, validation, test = (
    TensorDataset(x[rows], y[rows]) for rows in (slice(0, 800), slice(800, 1100), slice(1100, 1500))
)
train_batches = DataLoader(train, batch_size=100, shuffle=True)
validation_batches, test_batches = (DataLoader(rows, batch_size=200) for rows in (validation, test))

# %%
# Initialize the posterior before the ``Trainer`` takes over; I-BLM takes its rows from the loader.

net = nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 1))
model, lik = hs.bayesianize(net), hs.Gaussian()
hs.initialize_(model, "iblm", lik, train_batches, seed=0)
module = BayesianModule(model, lik, num_data=len(train), lr=3e-3)

# %%
# Lightning calls callbacks after every epoch; the module logs ``val_mnll``, the mean negative log
# predictive density of the validation rows.


class Curve(Callback):
    def __init__(self):
        self.values = []

    def on_validation_epoch_end(self, trainer, module):
        self.values.append(float(trainer.callback_metrics["val_mnll"]))


curve, stopping = Curve(), EarlyStopping("val_mnll", patience=10)
trainer = L.Trainer(
    max_epochs=200,
    accelerator="cpu",
    callbacks=[curve, stopping],
    num_sanity_val_steps=0,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.validate(module, validation_batches, verbose=False)  # epoch 0: the start
trainer.fit(module, train_batches, validation_batches)
print(f"stopped after {trainer.current_epoch} epochs")

# %%
# ``Trainer.predict`` returns draws of the outputs, and ``hs.Predictive`` turns them into means,
# standard deviations and intervals.

draws = torch.cat(trainer.predict(module, test_batches), 1)
pred = hs.Predictive(draws, lik.for_prediction())
x_test, y_test = test.tensors
scores = pred.evaluate(y_test)
print(f"test rows: RMSE {scores['rmse']:.3f} (the noise has 0.2)")
lower, upper = pred.interval(0.95)
covered = float(((lower <= y_test) & (y_test <= upper)).float().mean())
print(f"95 % intervals hold {covered:.0%} of the test rows")

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left.plot(curve.values, "o-", ms=3)
left.set(xlabel="epoch", ylabel="val_mnll, validation rows")
order = x_test[:, 0].argsort()
place = x_test[order, 0]
right.fill_between(place, lower[order, 0], upper[order, 0], alpha=0.25, lw=0, label="95 % interval")
right.plot(place, pred.mean[order, 0], label="mean")
right.plot(x_test, y_test, ".", color="black", ms=2, label="test rows")
right.set(xlabel="x", ylabel="y", ylim=(-1.7, 2.1))
right.legend(ncols=3, loc="upper center", frameon=False, columnspacing=1)
plt.show()

# %%
# Your own data
# -------------
# Put your loaders in the place of these, with batches ``(x, y)`` or dictionaries with ``labels``;
# ``num_data`` is the number of training rows, not of batches.
# Leave out the switches of ``Trainer`` that silence it, and monitor ``val_mnll`` in
# ``ModelCheckpoint`` too.
# Where intervals cover too much, as here, ``hs.refine_(model, lik, train_batches)`` after training
# solves the last layer again in closed form.
# Save the result with ``hs.save("model", model, lik)``: loading it does not need Lightning.
