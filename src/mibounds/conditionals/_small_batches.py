"""A diagonal Gaussian on a small batch, in few operations: on a CPU most of a step is their calls.

`Gaussian` gives the same by torch's Distribution; these give it in *standard units*, those of x and
y after standardisation, in which every difference of log-densities is the same. They do not work
everywhere (`works`), and then the estimators take the long way.

- `Units` keeps the statistics of x and y side by side, so that one operation does for both.
- `Loss` is the whole negative log-likelihood of a perceptron with one hidden layer, with its
  gradient written out: a tenth of the nodes that autograd would visit.
"""

from __future__ import annotations

import math
from operator import is_
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from jaxtyping import Float

    from mibounds.conditionals.base import Conditional
    from mibounds.networks import Standardiser

LIMIT = 15.0  # as mibounds.conditionals.base.LOG_VARIANCE_LIMIT
NAMES = ("mean", "variance", "batches")  # of the buffers of a standardiser, in their order
FEW = 2**18  # numbers in a batch up to which calling operations costs more than their work


def works(q: Conditional, x: Tensor, y: Tensor) -> bool:
    """Whether a batch is small, on a CPU, of the shape and precision of q, and plain tensors.

    Args:
        q: a diagonal Gaussian.
        x: samples.
        y: samples.
    """
    if torch.compiler.is_compiling() or not (isinstance(x, Tensor) and isinstance(y, Tensor)):
        return False
    if x.is_nested or y.is_nested or not (x.layout is y.layout is torch.strided):
        return False
    parts, shape, dtype = _layers(q), x.shape, x.dtype
    if parts is None or len(shape) != 2 or not x.is_cpu or not y.is_cpu:
        return False
    weight, n = parts[0]["weight"], shape[0]
    return (
        shape[1] == q.x_dim
        and y.shape == (n, q.y_dim)
        and 1 < n <= FEW // (q.x_dim + q.y_dim)
        and (dtype is torch.float32 or dtype is torch.float64)
        and y.dtype is dtype
        and weight.dtype is dtype
        and not weight.is_inference()
        and weight.is_cpu
        and not torch.is_autocast_enabled("cpu")
        and not is_functorch_wrapped_tensor(x)
        and not is_functorch_wrapped_tensor(weight)
        and not is_functorch_wrapped_tensor(q._modules["y_standard"]._buffers["mean"])  # pyright: ignore
    )


def _layers(q: Conditional) -> tuple[dict[str, Any], type, dict[str, Any]] | None:
    """Parameters of the two linear maps of a perceptron, and the unit between them."""
    layers = q._modules["net"].layers  # pyright: ignore[reportOptionalMemberAccess]
    if type(layers) is not nn.Sequential or len(layers._modules) != 3:
        return None
    first, unit, last = layers._modules.values()
    if type(first) is not nn.Linear or type(last) is not nn.Linear:
        return None
    if type(unit) not in (nn.ReLU, nn.SiLU):
        return None
    return first._parameters, type(unit), last._parameters


class Units:
    """Statistics of x and y side by side, of which the buffers of both standardisers are views.

    Args:
        x_standard: of x.
        y_standard: of y.
    """

    def __init__(self, x_standard: Standardiser, y_standard: Standardiser):
        sides: Any = (x_standard._buffers, y_standard._buffers)
        self.sizes = [len(side["mean"]) for side in sides]
        self.momentum = x_standard.momentum
        self.of_y = torch.cat(
            [torch.zeros_like(sides[0]["mean"]), torch.ones_like(sides[1]["mean"])]
        )
        self.seen = [side[name] for side in sides for name in NAMES]
        mean, variance, batches = (torch.cat([side[name] for side in sides]) for name in NAMES)
        low, high = (v.item() for v in variance.aminmax()) if len(variance) else (1.0, 1.0)
        counts = batches.aminmax()
        self.count = counts[0].item() if counts[0] == counts[1] else 0
        self._use(mean, variance, batches, low, high)

    def _use(
        self, mean: Tensor, variance: Tensor, batches: Tensor, low: float, high: float
    ) -> None:
        self.mean, self.variance, self.batches = mean, variance, batches
        self.varies = low > 0 and high < math.inf
        self.scale = variance.sqrt()
        self.log_scale: float | None = None
        self.versions = [v._version for v in self.seen]

    def hold(self, x_standard: Standardiser, y_standard: Standardiser) -> bool:
        """Whether these are the statistics of two standardisers, as they are now."""
        now = (*x_standard._buffers.values(), *y_standard._buffers.values())
        return all(map(is_, now, self.seen)) and [v._version for v in now] == self.versions  # pyright: ignore[reportOptionalMemberAccess]

    def observe(
        self, both: Float[Tensor, "n d"], x_standard: Standardiser, y_standard: Standardiser
    ) -> bool:
        """Update the statistics as `mibounds.networks.observe` does; False where that has to.

        With the mean m so far, δ = E[v - m] and the weight w of the batch: m + w δ, and
        (1 - w) s² + w (E[(v - m)²] - w δ²).

        Args:
            both: samples of x and y, side by side.
            x_standard: of x, which gets the new statistics.
            y_standard: of y.
        """
        if not self.count or not self.varies:  # m may be far from the samples
            return False
        weight = max(1 / (self.count + 1), self.momentum)
        rest = both - self.mean
        shift = rest.mean(0)
        square = rest.square_().mean(0).addcmul_(shift, shift, value=-weight)
        variance = torch.lerp(self.variance, square, weight)
        low, high = variance.aminmax()
        low, high = low.item(), high.item()
        if not (low > 0 and high < math.inf):
            return False
        mean, batches = torch.add(self.mean, shift, alpha=weight), self.batches + 1
        parts = [v.split_with_sizes(self.sizes) for v in (mean, variance, batches)]
        for i, standard in enumerate((x_standard, y_standard)):
            buffers = standard._buffers
            buffers["mean"], buffers["variance"], buffers["batches"] = (part[i] for part in parts)
        self.seen = [part[i] for i in (0, 1) for part in parts]
        self.count += 1
        self._use(mean, variance, batches, low, high)
        return True


KEPT: WeakKeyDictionary[Conditional, Units] = WeakKeyDictionary()  # only ever a shortcut


def units_of(q: Conditional) -> Units:
    """The units of a conditional, kept with it as long as its statistics stay as they are."""
    modules: Any = q._modules
    x_standard, y_standard = modules["x_standard"], modules["y_standard"]
    units = KEPT.get(q)
    if units is None or not units.hold(x_standard, y_standard):
        units = KEPT[q] = Units(x_standard, y_standard)
    return units


def negative_log_likelihood(q: Conditional, x: Tensor, y: Tensor, observe: bool) -> Tensor | None:
    """The mean of -log q(y_i|x_i); None where the long way has to be gone.

    Args:
        q: a diagonal Gaussian for which this `works`.
        x: samples.
        y: samples.
        observe: whether the statistics are updated first.
    """
    units = units_of(q)
    attached = x.requires_grad or y.requires_grad
    both = torch.cat([x, y], 1)
    both = both.detach() if attached else both
    if observe and not units.observe(both, q.x_standard, q.y_standard):
        return None
    if not units.varies:
        return None
    if units.log_scale is None:
        units.log_scale = torch.dot(units.scale.log(), units.of_y).item()
    constant = units.log_scale + 0.5 * math.log(2 * math.pi) * q.y_dim
    if attached:
        x, y = _standardise(units, x, y)
    else:
        both.sub_(units.mean).div_(units.scale)
        x, y = both.split_with_sizes(units.sizes, 1)
    parts = _layers(q)
    assert parts is not None
    first, unit, last = parts
    parameters = (first["weight"], first["bias"], last["weight"], last["bias"])
    return Loss.apply(x, y, *parameters, constant, unit is nn.SiLU)  # pyright: ignore[reportReturnType]


def _standardise(units: Units, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    mean, scale = units.mean.split(units.sizes), units.scale.split(units.sizes)
    return (x - mean[0]) / scale[0], (y - mean[1]) / scale[1]


def parameters_in_units(
    q: Conditional, x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Mean and precision of q(y|x), and y, in standard units; None where a column is constant.

    Args:
        q: a diagonal Gaussian for which this `works`.
        x: samples.
        y: samples.
    """
    units = units_of(q)
    if not units.varies:
        return None
    x, y = _standardise(units, x, y)
    loc, log_variance = q.net.layers(x).chunk(2, -1)  # pyright: ignore[reportCallIssue]
    return loc, (-LIMIT * (log_variance * (1 / LIMIT)).tanh()).exp(), y


def _plain(x, y, weight_1, bias_1, weight_2, bias_2, constant, smooth):
    """`Loss` by torch's operations: for second derivatives."""
    hidden = F.linear(x, weight_1, bias_1)
    hidden = F.silu(hidden) if smooth else hidden.relu()
    loc, log_variance = F.linear(hidden, weight_2, bias_2).chunk(2, -1)
    half = (0.5 * LIMIT) * (log_variance * (1 / LIMIT)).tanh()
    z = (y - loc) * (-half).exp()
    return torch.add(half, z.square(), alpha=0.5).sum() / len(y) + constant


_tanh_backward = torch.ops.aten.tanh_backward.default
_threshold_backward = torch.ops.aten.threshold_backward.default


class Loss(torch.autograd.Function):
    """Mean of -log N(y; μ(x), σ²(x)), where a perceptron gives μ and log σ²; see `_plain`.

    With z = (y - μ)/σ and log σ² = L tanh(s/L), the gradient with respect to μ is -z/σ, and with
    respect to s it is ½ (1 - z²) (1 - tanh²(s/L)).
    """

    @staticmethod
    def forward(ctx: Any, x, y, weight_1, bias_1, weight_2, bias_2, constant, smooth):
        before = F.linear(x, weight_1, bias_1)
        hidden = F.silu(before) if smooth else before.relu_()
        loc, log_variance = F.linear(hidden, weight_2, bias_2).chunk(2, 1)
        bend = log_variance.mul_(1 / LIMIT).tanh_()
        inverse = (bend * (-0.5 * LIMIT)).exp_()
        z = (y - loc).mul_(inverse)
        ctx.save_for_backward(x, y, weight_1, bias_1, weight_2, bias_2)
        ctx.kept, ctx.options = (before, hidden, bend, inverse, z), (constant, smooth)
        flat = z.view(-1)
        total = 0.5 * (LIMIT * bend.sum().item() + torch.dot(flat, flat).item())
        return y.new_full((), total / len(y) + constant)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, y, weight_1, bias_1, weight_2, bias_2 = ctx.saved_tensors
        needed = ctx.needs_input_grad[:6]
        if torch.is_grad_enabled():  # somebody wants second derivatives
            inputs = (x, y, weight_1, bias_1, weight_2, bias_2)
            wanted = [v for v, need in zip(inputs, needed, strict=True) if need]
            value = _plain(*inputs, *ctx.options)
            found = iter(torch.autograd.grad(value, wanted, gradients[0], create_graph=True))
            return (*(next(found) if need else None for need in needed), None, None)
        before, hidden, bend, inverse, z = ctx.kept
        factor = gradients[0].item() / len(y)
        of_loc = (inverse * z).mul_(-factor)
        half = y.new_full((), 0.5 * factor)
        of_bend = _tanh_backward(torch.addcmul(half, z, z, value=-0.5 * factor), bend)
        out = torch.cat([of_loc, of_bend], 1)
        of_hidden = out @ weight_2
        if ctx.options[1]:
            s = before.sigmoid()
            of_hidden.mul_(s.addcmul(s * before, 1 - s))
        else:
            of_hidden = _threshold_backward(of_hidden, hidden, 0)
        of_x = of_hidden @ weight_1 if needed[0] else None
        of_y = -of_loc if needed[1] else None
        if not any(needed[2:]):
            return of_x, of_y, None, None, None, None, None, None
        return (of_x, of_y, of_hidden.t() @ x, of_hidden.sum(0), out.t() @ hidden, out.sum(0),
                None, None)  # fmt: skip
