"""Student-t pairs: heavy tails, and dependence without correlation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributions import Chi2, Distribution, constraints

from mibounds.tasks.base import Task, expect
from mibounds.tasks.gaussians import JointGaussian

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True)
class JointStudentT(Task):
    """A multivariate Student-t: a Gaussian divided by one shared random scale.

        I(X; Y) = I_Gaussian + f(nu) + f(nu + m + n) - f(nu + m) - f(nu + n)
        f(t) = log Gamma(t / 2) - t / 2 digamma(t / 2)

    with m = x_dim and n = y_dim. The correction is positive even where the dispersion is the
    identity, because x and y share their scale: uncorrelated, but not independent. p(y | x) is a
    Student-t of nu + m degrees of freedom.

    Reference: Arellano-Valle et al. 2013; Czyz et al. 2023 (Beyond Normal); Ding 2016 for the
    conditional.

    Args:
        gaussian: the task whose covariance is the dispersion matrix.
        df: nu, the degrees of freedom; 1 is Cauchy, and large nu is the Gaussian itself.

    Example:
        >>> task = JointStudentT(JointGaussian.sparse(3, 2, correlation=0.0), df=1.0)
        >>> task.gaussian.mutual_information, round(task.mutual_information, 4)
        (0.0, 0.5)
    """

    gaussian: JointGaussian
    df: float

    def __post_init__(self) -> None:
        expect(
            isinstance(self.gaussian, JointGaussian),
            "gaussian to be a JointGaussian",
            repr(self.gaussian),
            "give one whose covariance is the dispersion matrix",
        )
        expect(
            0 < self.df <= 1e8,
            "df to be positive and at most 1e8",
            self.df,
            "for the limit of large df use the JointGaussian itself",
        )
        self.set_derived(x_dim=self.gaussian.x_dim, y_dim=self.gaussian.y_dim)

    @property
    def mutual_information(self) -> float:
        def f(t: float) -> float:
            digamma = torch.tensor(t / 2, dtype=torch.float64, device="cpu").digamma().item()
            return math.lgamma(t / 2) - t / 2 * digamma

        nu, m, n = self.df, self.x_dim, self.y_dim
        return self.gaussian.mutual_information + f(nu) + f(nu + m + n) - f(nu + m) - f(nu + n)

    def conditional(self, x: Float[Tensor, "*batch x_dim"]) -> MultivariateStudentT:
        loc, scale_tril = self.gaussian.regress(x)
        of_x = self.gaussian.squared_norms(x, torch.zeros_like(loc))[1]
        # An x far from 0 makes a large shared scale likely.
        spread = ((self.df + of_x) / (self.df + self.x_dim)).sqrt()
        return MultivariateStudentT(
            torch.full_like(of_x, self.df + self.x_dim), loc, spread[..., None, None] * scale_tril
        )

    def log_ratio(
        self, x: Float[Tensor, "*#batch x_dim"], y: Float[Tensor, "*#batch y_dim"]
    ) -> Float[Tensor, "*batch"]:
        nu, m, n = self.df, self.x_dim, self.y_dim
        of_pair, of_x, of_y = self.gaussian.squared_norms(x, y)

        def log_kernel(t: float, squared_norm: Tensor) -> Tensor:
            return math.lgamma(t / 2) - t / 2 * torch.log1p(squared_norm / nu)

        return (
            self.gaussian.mutual_information
            + math.lgamma(nu / 2)
            + log_kernel(nu + m + n, of_pair)
            - log_kernel(nu + m, of_x)
            - log_kernel(nu + n, of_y)
        )

    def draw(
        self, n: int, generator: torch.Generator | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        x, y = self.gaussian.draw(n, generator, dtype)
        # Chi2.sample takes no generator; the function that it calls does
        half_df = torch.full((n, 1), self.df / 2, dtype=dtype)
        chi2 = 2 * torch._standard_gamma(half_df, generator)  # pyright: ignore[reportPrivateImportUsage]
        scale = (self.df / chi2).sqrt()
        return scale * x, scale * y


class MultivariateStudentT(Distribution):
    """The multivariate Student-t as a torch distribution, which torch itself lacks.

        log p(y) = log Gamma((nu + d) / 2) - log Gamma(nu / 2) - d / 2 log(nu pi) - log det L
                   - (nu + d) / 2 log(1 + |L^-1 (y - mu)|^2 / nu)

    Reference: Kotz and Nadarajah 2004, equation 1.1.

    Args:
        df: nu, of the batch shape or broadcasting to it.
        loc: mu, of shape (..., d).
        scale_tril: L, lower triangular with a positive diagonal, of shape (..., d, d).

    Example:
        >>> p = MultivariateStudentT(torch.tensor(3.0), torch.zeros(5, 2), torch.eye(2))
        >>> p.log_prob(torch.zeros(2)).shape
        torch.Size([5])
    """

    # torch declares properties here, and overrides them with plain attributes as well
    arg_constraints = {  # noqa: RUF012  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
        "df": constraints.positive,
        "loc": constraints.real_vector,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    has_rsample = True

    def __init__(
        self, df: Tensor, loc: Tensor, scale_tril: Tensor, validate_args: bool | None = None
    ) -> None:
        batch = torch.broadcast_shapes(df.shape, loc.shape[:-1], scale_tril.shape[:-2])
        self.df = df.expand(batch)
        self.loc = loc.expand(*batch, -1)
        self.scale_tril = scale_tril.expand(*batch, -1, -1)
        super().__init__(batch, loc.shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape, _instance=None) -> MultivariateStudentT:
        batch = torch.Size(batch_shape)
        return MultivariateStudentT(
            self.df.expand(batch),
            self.loc.expand(*batch, -1),
            self.scale_tril.expand(*batch, -1, -1),
            validate_args=False,
        )

    @property
    def mean(self) -> Tensor:
        return torch.where(self.df[..., None] > 1, self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        df = self.df[..., None]
        finite = self.scale_tril.square().sum(-1) * df / (df - 2)
        return torch.where(df > 2, finite, torch.where(df > 1, math.inf, math.nan))

    def rsample(self, sample_shape=torch.Size()) -> Tensor:  # noqa: B008
        z = torch.randn(
            self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device
        )
        scale = (self.df / Chi2(self.df).rsample(sample_shape)).sqrt()
        return self.loc + scale[..., None] * (self.scale_tril @ z[..., None])[..., 0]

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        nu, d = self.df, self.event_shape[0]
        z = torch.linalg.solve_triangular(
            self.scale_tril, (value - self.loc)[..., None], upper=False
        )
        tail = torch.log1p(z.square().sum((-2, -1)) / nu)
        log_det = self.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        log_norm = torch.lgamma((nu + d) / 2) - torch.lgamma(nu / 2) - d / 2 * (nu * math.pi).log()
        return log_norm - log_det - (nu + d) / 2 * tail
