"""
Out-of-distribution detection
=============================

A classifier of handwritten digits that was trained only on 0 to 4 is given images of 5 to 9.
The entropy of its predictions should be larger there.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

import headstart as hs
from headstart import metrics

torch.manual_seed(0)
images, digits = load_digits(return_X_y=True)
images, digits = torch.tensor(images, dtype=torch.float32) / 8 - 1, torch.tensor(digits)
known = digits < 5
x, y, others = images[known], digits[known], images[~known]
x, y, x_test, y_test = x[:700], y[:700], x[700:], y[700:]

# %%
# Train on five digits.

model = hs.bayesianize(hs.models.create("mlp-2x100", 64, 5))
lik = hs.Categorical(num_classes=5)
hs.initialize_(model, "iblm", lik, (x, y), seed=0)
hs.fit(model, lik, (x, y), steps=300, progress=False, seed=0)

# %%
# The entropy for digits of the training classes, and for the others.

inside, outside = (hs.predict(model, lik, rows, seed=0) for rows in (x_test, others))
error = float(metrics.error(inside.probs, y_test))
auroc = float(metrics.auroc(inside.entropy, outside.entropy))
print(f"error on 0 to 4: {error:.3f}; AUROC of telling 5 to 9 by entropy: {auroc:.3f}")

figure, axis = plt.subplots(figsize=(7, 3.5), layout="constrained")
bins = torch.linspace(0, 1.61, 33).tolist()
axis.hist(inside.entropy.numpy(), bins, density=True, alpha=0.6, label="0 to 4, new images")
axis.hist(outside.entropy.numpy(), bins, density=True, alpha=0.6, label="5 to 9, never shown")
axis.set(xlabel="entropy of the prediction, nats", title=f"AUROC {auroc:.3f}")
axis.legend()
plt.show()

# %%
# Your own data
# -------------
# Choose the threshold on validation rows: the 95 % quantile of their entropy gives 5 % false
# alarms.
# ``pred.mutual_information`` is the epistemic part alone, and usually the better score if classes
# overlap.
# For regression use ``pred.epistemic_std`` of ``hs.condition(model, lik, (x, y)).predict(new)``, or
# :func:`headstart.leverage` of what ``hs.condition`` returns.
# For a table, ``headstart predict`` flags such rows (OOD, anomalies) in ``unlike_training``.
