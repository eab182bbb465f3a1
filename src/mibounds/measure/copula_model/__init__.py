"""The default method: the closed form of the Gaussian copula, plus small learnt corrections.

With t the continuous columns of one side, s the other side and z the given columns,

    I(s; t | z) = E[log p(t|s, z)] - E[log p(t|z)].

Each density is a Gaussian around a linear regression times a correction. The Gaussian parts give
the closed form of the Gaussian copula (t and the continuous columns of s are normal scores), with
its bias subtracted. A correction is a mixture of Gaussians for the standardised residual, whose
parameters are functions of the conditioning columns. It is fitted by likelihood, stops by the
likelihood of held-out rows, is dropped where it never beats the Gaussian, and is evaluated only on
rows that it has not seen (cross-fitting). Where the Gaussian copula is the truth, the result is its
closed form; elsewhere each correction is a density relative to a Gaussian close to it.

Discrete columns d of t come first, by the chain rule I(s; d, c | z) = I(s; d | z) + I(s; c | d, z).
There a logistic regression replaces the Gaussian. Fitting its p weights to n rows costs p / 2n nats
on rows that it has not seen, and gains as much on those that it has: the mean of both has no bias
to that order. The correction is a classifier on top of it, dropped where it does not pay off. If a
classifier without the regression explains more than both, it is used instead.

gaussian_regressions   the linear part: closed form, residuals
label_regressions      the linear part for labels
student_copulas        heavy tails: extremes that come together
corrections            the networks: mixtures of residuals, classifiers of labels
cross_fitting          corrections that are evaluated on rows that they have not seen
models                 CopulaModel: facts, and I(x; y) from the parts
"""

from mibounds.measure.copula_model.cross_fitting import CopulaFit, Effort
from mibounds.measure.copula_model.models import CopulaModel

__all__ = ["CopulaFit", "CopulaModel", "Effort"]
