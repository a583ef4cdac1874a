"""Matrix normal: a covariance over inputs and one over units; the weights have their product."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headstart.errors import HeadstartError
from headstart.kernels.noise import Noise, folded, fresh
from headstart.linalg.affine import affine, channel_axis, groups, split
from headstart.linalg.gaussians import UnitGaussian, precision_to_scale_tril
from headstart.linalg.precision import in_double
from headstart.posteriors.base import Posterior, Triangular, UnitCovariance, default_logvar


class MatrixNormal(Posterior):
    """q(W) = MN(mean, V, U): `Cov(w_oi, w_pj) = V_op U_ij`, V over units, U over inputs.

    Args:
        units: The number of output units.
        size: The number of weights of a unit, its bias included.
        factory: The `dtype` and `device` of the parameters.

    Example:
        >>> q = MatrixNormal(units=3, size=5)
        >>> q.sample(7).shape
        torch.Size([7, 3, 5])
    """

    name = "matrix_normal"
    is_kronecker = True
    unit_axes = None

    def __init__(self, units: int, size: int, **factory: Any) -> None:
        super().__init__(units, size, **factory)
        # U = L_U L_Uᵀ and V = L_V L_Vᵀ.
        self.inputs = Triangular(size, **factory)
        self.outputs = Triangular(units, **factory)
        torch.nn.init.constant_(self.inputs.log_diagonal, default_logvar(size) / 2)

    def supports(self, op: nn.Module) -> bool:
        """Whether all units of the layer see the same inputs, as one U over inputs needs.

        Args:
            op: A stock affine layer.
        """
        return groups(op) == 1

    def as_prior(self) -> UnitCovariance:
        """Refuse: a prior has independent units."""
        raise HeadstartError(
            "A matrix_normal posterior correlates units and cannot be inherited; "
            "choose another family."
        )

    def diagonal(self) -> None:
        return None

    def factors(self) -> Tensor:
        """The factors of each unit's own covariance V_oo U; between units see `correlate`."""
        return torch.einsum("dr,u->rud", self.inputs.matrix(), self._output_variance().sqrt())

    def variance(self) -> Tensor:
        return self._output_variance().unsqueeze(1) * self.inputs.matrix().square().sum(1)

    def logdet(self) -> Tensor:
        """`log|V ⊗ U| = size log|V| + units log|U|`."""
        return self.size * self.outputs.logdet() + self.units * self.inputs.logdet()

    def sample(self, samples: int, noise: Noise = fresh) -> Tensor:
        """Draws of all the weights, `mean + L_V E L_Uᵀ`.

        Args:
            samples: How many.
            noise: Where the noise E comes from.
        """
        drawn = folded(noise((samples, self.units, self.size), self.mean), 3)
        return self.mean + self.outputs.matrix() @ drawn @ self.inputs.matrix().T

    def local_variance(self, op: nn.Module, x: Tensor) -> Tensor:
        """The variance of the layer's output, `V_oo · x̃ᵀ U x̃`.

        The quadratic form is the same for all units: it is computed once, with the columns of L_U
        as units.

        Args:
            op: The layer.
            x: Its input.
        """
        axis = channel_axis(op)
        columns = affine(op, x, *split(op, self.inputs.matrix().T))
        quadratic = columns.square().sum(axis, keepdim=True)
        return quadratic * _along(self._output_variance(), columns.ndim, axis)

    def correlate(self, noise: Tensor, ndim: int, channel_axis: int) -> Tensor:
        """`L_V ε`, each unit scaled to variance 1.

        Args:
            noise: Independent noise ε of the layer's outputs.
            ndim: The number of axes of an output.
            channel_axis: The axis that counts the units.
        """
        correlation = self.outputs.matrix() / self._output_variance().sqrt().unsqueeze(1)
        units_last = folded(noise, ndim).movedim(channel_axis, -1) @ correlation.T
        return units_last.movedim(-1, channel_axis)

    def _output_variance(self) -> Tensor:
        return self.outputs.matrix().square().sum(1)

    @torch.no_grad()
    def precisions(self) -> tuple[Tensor, Tensor]:
        """`U⁻¹` and `V⁻¹`, in double precision."""
        inputs, outputs = (
            torch.cholesky_inverse(in_double(part.matrix())) for part in (self.inputs, self.outputs)
        )
        return inputs, outputs

    @torch.no_grad()
    def set_(self, inputs: Tensor, outputs: Tensor) -> None:
        """Take these scale factors: `U = inputs inputsᵀ`, `V = outputs outputsᵀ`.

        Args:
            inputs: L_U (size, size), lower triangular.
            outputs: L_V (units, units), lower triangular.
        """
        self.inputs.set_(inputs)
        self.outputs.set_(outputs)

    @torch.no_grad()
    def project_(self, gaussian: UnitGaussian, match: str = "kl_qp") -> None:
        """The nearest member in KL(q‖p).

        By the flip-flop `U = (mean_o v_o P_o)⁻¹, v_o = size / tr(P_o U)`.

        Args:
            gaussian: A Gaussian over the weights of each unit.
            match: Not used.
        """
        v = torch.ones_like(gaussian.mean[:, 0])
        for _ in range(100):
            tril = precision_to_scale_tril(gaussian.weighted_precision(v) / len(v))
            updated = self.size / gaussian.precision_traces(tril @ tril.T)
            change = (updated / v - 1).abs().max()
            v = updated
            if change < max(1e-12, 8 * torch.finfo(v.dtype).eps):
                break
        self.mean.copy_(gaussian.mean)
        self.set_(tril, torch.diag_embed(v.sqrt()))


def _along(vector: Tensor, ndim: int, axis: int) -> Tensor:
    """`vector` shaped to broadcast along one axis of an `ndim`-dimensional tensor."""
    shape = [1] * ndim
    shape[axis] = -1
    return vector.reshape(shape)
