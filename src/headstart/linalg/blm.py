"""The Bayesian linear model in closed form: its posterior, primal or dual, and its evidence.

Shapes: `N` rows, `D` weights of a unit (its bias included, as the last one), `U` units.
Everything is batched over units.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headstart.distributed.rows import LOCAL_ROWS, AllRows
from headstart.linalg.gaussians import Primal, UnitGaussian, factorized

MAX_PATTERNS = 64
"""How many distinct noise values per row share their Gram matrices."""
GRAM_BLOCK = 256
"""Columns of a Gram matrix summed at once."""
MIN_PRODUCT = 2**24
"""Multiply-adds of targets and inputs for which it is worth to look for equal targets."""
KEPT_BUDGET = 2**22
"""Numbers in the rows that wait to be summed together: few rows of each noise make slow sums."""
WEIGHTED_BUDGET = 2**25
"""Numbers in the rows weighted by the noise of several units at once."""


class Dual(UnitGaussian):
    """The same posterior solved in the N×N dual (Woodbury), for fewer rows than weights.

    With `Σ0 = diag(prior_var)` and `K = diag(v) + X Σ0 Xᵀ`:
    mean `m0 + Σ0 Xᵀ K⁻¹ (t − X m0)`, covariance `Σ0 − Σ0 Xᵀ K⁻¹ X Σ0`.

    Args:
        x: the rows, (N, D).
        t: the targets, (N, U).
        noise_var: v, (N, U) or (N, 1).
        prior_mean: m0, broadcastable to (D,).
        prior_var: the diagonal of Σ0, broadcastable to (D,).
    """

    def __init__(
        self, x: Tensor, t: Tensor, noise_var: Tensor, prior_mean: Tensor, prior_var: Tensor
    ) -> None:
        self.x, self.noise_var, self.prior_var = x, noise_var, prior_var
        # X Σ0 is (N, D) or (U, N, D), the kernel (U, N, N) or (1, N, N).
        scaled = x * prior_var
        kernel = scaled @ x.T + torch.diag_embed(noise_var.T)
        self.cholesky = factorized(kernel)
        self.scaled = scaled
        residual = t - x @ prior_mean.expand(t.shape[1], x.shape[1]).T
        if self.cholesky.shape[0] == 1:
            alpha = torch.cholesky_solve(residual, self.cholesky[0])
        else:
            alpha = torch.cholesky_solve(residual.T.unsqueeze(-1), self.cholesky).squeeze(-1).T
        self._mean = prior_mean + prior_var * (alpha.T @ x)

    @property
    def mean(self) -> Tensor:
        return self._mean

    def precision_diagonal(self) -> Tensor:
        return (1 / self.prior_var + (1 / self.noise_var.T) @ self.x.square()).expand_as(self._mean)

    def covariance_diagonal(self) -> Tensor:
        half = self._half()
        return (self.prior_var - half.square().sum(-2)).expand_as(self._mean)

    def precision(self) -> Tensor:
        prior = torch.diag_embed((1 / self.prior_var).expand(self.x.shape[1]))
        return prior + weighted_gram(self.x, self.noise_var)

    def covariance(self) -> Tensor:
        half = self._half()
        return torch.diag_embed(self.prior_var.expand(self.x.shape[1])) - half.mT @ half

    def _half(self) -> Tensor:
        """L_K⁻¹ X Σ0, (U|1, N, D)."""
        rhs = self.scaled.expand(*self.cholesky.shape[:-1], self.x.shape[1])
        return torch.linalg.solve_triangular(self.cholesky, rhs, upper=False)


class Statistics:
    """The sufficient statistics of each unit's Bayesian linear model, summed over batches.

    Fewer rows than weights are kept as they are, for the dual.
    More are summed into `Xᵀ diag(1/v_u) X` and `Xᵀ (t/v)`.
    Where the noise takes few values (one per class, say) one Gram matrix per value serves every
    unit.

    Args:
        rows: sums over all rows, of which `add` may be given a shard.

    Example:
        >>> x, t = torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [1.0]])
        >>> statistics = Statistics()
        >>> statistics.add(x, t, torch.full((2, 1), 0.5))
        >>> statistics.gram(), statistics.moment()
        (tensor([[[10.]]]), tensor([[6.]]))
    """

    def __init__(self, rows: AllRows = LOCAL_ROWS) -> None:
        self.rows = rows
        self.weight = 1.0
        """How often each row counts: the rows that were added may stand for more, or for fewer."""
        self.kept: list[tuple[Tensor, Tensor, Tensor]] = []
        self.count = self.size = 0
        self.by_noise: dict[tuple[float, ...], Tensor] = {}
        self.mixed: Tensor | None = None
        self.summed: Tensor | None = None
        self.given: Tensor | None = None

    def add(self, x: Tensor, t: Tensor, noise_var: Tensor) -> None:
        """Add rows.

        Args:
            x: the rows, (N, D).
            t: their targets, (N, U).
            noise_var: the variance of their noise, (N, U) or (N, 1).
        """
        self.kept.append((x, t, noise_var))
        self.count, self.size = self.count + len(x), x.shape[1]
        waiting = sum(rows.numel() for rows, _, _ in self.kept)
        if self.count >= self.size and waiting >= KEPT_BUDGET:
            self._sum()

    def gram(self) -> Tensor:
        """`Xᵀ diag(1/v_u) X`, (U, D, D), or (1, D, D) where the units share their noise."""
        self._sum()
        total = self.mixed
        if self.by_noise:
            grams = torch.stack(list(self.by_noise.values()))
            noise = torch.tensor(list(self.by_noise), dtype=grams.dtype, device=grams.device)
            shared = torch.einsum("ku,kde->ude", 1 / noise, grams)
            total = shared if total is None else total + shared
        assert total is not None, "no rows were added"
        return self.weight * self.rows.sum(total)

    def moment(self) -> Tensor:
        """`Xᵀ (t/v)`, (U, D)."""
        self._sum()
        assert self.summed is not None, "no rows were added"
        total = self.rows.sum(self.summed)
        return self.weight * (total if self.given is None else total + self.given)

    def add_moment(self, moment: Tensor) -> None:
        """Add to the moment what is known of all rows, without targets of their own.

        Args:
            moment: `Xᵀ (t/v)` over the rows of all processes, (U, D).
        """
        self.given = moment if self.given is None else self.given + moment

    def solve(self, prior_var: Tensor | float, prior_mean: Tensor | float = 0.0) -> UnitGaussian:
        """The posterior, in the dual where there are fewer rows than weights.

        Args:
            prior_var: the variances of the prior N(prior_mean, diag(prior_var)).
            prior_mean: its mean.
        """
        few = self.rows.total(self.count) < self.size
        # Where all rows together are few, nobody has summed a shard of them.
        if few and self.kept:
            x, t, noise_var = self.rows.gather(self._joined())
            mean, var = (torch.as_tensor(given).to(x) for given in (prior_mean, prior_var))
            return Dual(x, t, noise_var / self.weight, mean, var)
        gram = self.gram()
        prior = 1 / torch.as_tensor(prior_var, dtype=gram.dtype, device=gram.device).expand(
            gram.shape[-1]
        )
        return Primal(gram + torch.diag_embed(prior), self.moment() + prior * prior_mean)

    def _sum(self) -> None:
        if not self.kept:
            return
        x, t, noise_var = self._joined()
        self.kept = []
        moment = target_moment(t / noise_var, x)
        self.summed = moment if self.summed is None else self.summed + moment
        self._add_gram(x, noise_var)

    def _joined(self) -> list[Tensor]:
        """The rows that were kept, with their targets and noise."""
        if len(self.kept) == 1:
            return list(self.kept[0])
        return [torch.cat(parts) for parts in zip(*self.kept, strict=True)]

    def _add_gram(self, x: Tensor, noise_var: Tensor) -> None:
        # A shard may be empty.
        if not len(x):
            nothing = x.new_zeros(noise_var.shape[1], x.shape[1], x.shape[1])
            self.mixed = nothing if self.mixed is None else self.mixed
            return
        found = _patterns(noise_var)
        keys = [tuple(pattern.tolist()) for pattern in found[0]] if found else []
        # Noise of its own for every row.
        if not found or len(self.by_noise.keys() | set(keys)) > MAX_PATTERNS:
            chunks = noise_var.split(max(1, WEIGHTED_BUDGET // x.numel()), dim=1)
            gram = torch.cat([torch.einsum("nd,nu,ne->ude", x, 1 / v, x) for v in chunks])
            self.mixed = gram if self.mixed is None else self.mixed + gram
            return
        for k, key in enumerate(keys):
            if key not in self.by_noise:
                self.by_noise[key] = x.new_zeros(x.shape[1], x.shape[1])
            _add_gram_(self.by_noise[key], x if len(keys) == 1 else x[found[1] == k])


def _patterns(noise_var: Tensor) -> tuple[Tensor, Tensor] | None:
    """The distinct rows of (N, U), in order, and which of them each row is.

    None where there are more than `MAX_PATTERNS`.
    Column by column, the numbers told apart so far: many times faster than sorting whole rows.

    Example:
        >>> _patterns(torch.tensor([[2.0, 1.0], [1.0, 3.0], [2.0, 1.0]]))
        (tensor([[1., 3.],
                [2., 1.]]), tensor([1, 0, 1]))
    """
    which = torch.zeros(len(noise_var), dtype=torch.long, device=noise_var.device)
    count = 1
    for column in noise_var.T:
        if bool((column == column[0]).all()):
            continue
        values, place = column.unique(return_inverse=True)
        codes, which = (which * len(values) + place).unique(return_inverse=True)
        count = len(codes)
        if count > MAX_PATTERNS:
            return None
    first = torch.full((count,), len(noise_var), device=noise_var.device)
    first.scatter_reduce_(0, which, torch.arange(len(noise_var), device=noise_var.device), "amin")
    return noise_var[first], which


def target_moment(t: Tensor, x: Tensor) -> Tensor:
    """`tᵀ x`; where few rows of t differ, as those of classes, through the sums of equal ones.

    Args:
        t: the targets, (N, U).
        x: the rows, (N, D).
    """
    if t.numel() * x.shape[1] >= MIN_PRODUCT:
        values, which = t[:, 0].unique(return_inverse=True)
        if len(values) <= MAX_PATTERNS:
            some = torch.zeros(len(values), dtype=torch.long, device=t.device)
            # Any row of each kind.
            some[which] = torch.arange(len(t), device=t.device)
            if torch.equal(t[some][which], t):
                sums = x.new_zeros(len(values), x.shape[1]).index_add_(0, which, x)
                return t[some].T @ sums
    return t.T @ x


def _add_gram_(total: Tensor, x: Tensor) -> None:
    """`total += Xᵀ X`; of a large matrix the blocks up to the diagonal, the others are copies."""
    if x.shape[1] < 2 * GRAM_BLOCK or len(x) < GRAM_BLOCK:
        total.addmm_(x.T, x)
        return
    for start in range(0, x.shape[1], GRAM_BLOCK):
        end = min(start + GRAM_BLOCK, x.shape[1])
        total[start:end, :end].addmm_(x[:, start:end].T, x[:, :end])
        total[:start, start:end] = total[start:end, :start].T


def weighted_gram(x: Tensor, noise_var: Tensor) -> Tensor:
    """`Xᵀ diag(1/v_u) X` for each unit: x (N, D), noise_var (N, U) to (U, D, D)."""
    statistics = Statistics()
    statistics.add(x, torch.zeros_like(noise_var), noise_var)
    return statistics.gram()


def solve_blm(
    x: Tensor,
    t: Tensor,
    noise_var: Tensor,
    prior_var: Tensor | float,
    prior_mean: Tensor | float = 0.0,
) -> UnitGaussian:
    """The posterior of each unit's Bayesian linear model, in the dual where N < D.

    The model is `t_nu ~ N(x_nᵀ w_u, v_nu)`, `w_u ~ N(prior_mean, diag(prior_var))`.
    Its precision is `P = diag(1/prior_var) + Xᵀ diag(1/v) X`,
    its mean `P⁻¹ (prior_mean/prior_var + Xᵀ (t/v))`.

    Args:
        x: the rows, (N, D).
        t: the targets, (N, U).
        noise_var: v, (N, U) or (N, 1).
        prior_var: broadcastable to (D,).
        prior_mean: broadcastable to (D,).

    Returns:
        One Gaussian per unit.

    Example:
        >>> x, t = torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [1.0]])
        >>> g = solve_blm(x, t, noise_var=torch.full((2, 1), 0.5), prior_var=4.0)
        >>> g.precision()  # 1/4 + (1 + 4)/0.5
        tensor([[[10.2500]]])
    """
    statistics = Statistics()
    statistics.add(x, t, noise_var)
    return statistics.solve(prior_var, prior_mean)


def log_evidence(x: Tensor, t: Tensor, noise_var: Tensor, prior_var: float) -> Tensor:
    """`log N(t | 0, diag(v) + σp² X Xᵀ)` of each unit, (U,).

    Through the Cholesky factor of whichever side is smaller.

    Args:
        x: the rows, (N, D).
        t: the targets, (N, U).
        noise_var: v, (N, U).
        prior_var: σp².
    """
    rows, size = x.shape
    if rows < size:
        kernel = prior_var * x @ x.T + torch.diag_embed(noise_var.T)
        cholesky = torch.linalg.cholesky(kernel)
        white = torch.linalg.solve_triangular(cholesky, t.T.unsqueeze(-1), upper=False).squeeze(-1)
        quadratic, logdet = white.square().sum(-1), _logdet(cholesky)
    else:
        precision = (
            weighted_gram(x, noise_var)
            + torch.eye(size, dtype=x.dtype, device=x.device) / prior_var
        )
        cholesky = torch.linalg.cholesky(precision)
        b = (t / noise_var).T @ x
        white = torch.linalg.solve_triangular(cholesky, b.unsqueeze(-1), upper=False).squeeze(-1)
        quadratic = (t.square() / noise_var).sum(0) - white.square().sum(-1)
        logdet = noise_var.log().sum(0) + size * math.log(prior_var) + _logdet(cholesky)
    return -0.5 * (quadratic + logdet + rows * math.log(2 * math.pi))


def _logdet(cholesky: Tensor) -> Tensor:
    return 2 * cholesky.diagonal(dim1=-2, dim2=-1).log().sum(-1)
