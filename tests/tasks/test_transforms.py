import pytest
import torch
from torch.distributions import TransformedDistribution
from torch.distributions.transforms import AffineTransform

from mibounds.tasks import (
    CorrelatedGaussian,
    JointGaussian,
    LabelledUniform,
    Mixing,
    NormalCDF,
    SignedPower,
    Spiral,
    SwissRoll,
    Transformed,
)

GAUSSIAN = JointGaussian.dense(3, 2, 0.5)


def test_samples_are_the_mapped_samples():
    task = Transformed(GAUSSIAN, (Spiral(1.0),), (Mixing(2), SignedPower(3.0)))
    (x, y), (a, b) = task.sample(10, 0, torch.float64), GAUSSIAN.sample(10, 0, torch.float64)
    torch.testing.assert_close(x, Spiral(1.0)(a))
    w = torch.from_numpy(Mixing(2).matrix)
    torch.testing.assert_close(y, (b @ w.T) ** 3)  # (W y)^3, not W y^3
    torch.testing.assert_close(task.log_ratio(x, y), GAUSSIAN.log_ratio(a, b))
    assert task.mutual_information == GAUSSIAN.mutual_information


def test_conditional_is_the_change_of_variables():
    f = (Mixing(2), SignedPower(3.0))
    task = Transformed(GAUSSIAN, (Spiral(1.0),), f)
    a, b = GAUSSIAN.sample(5, 0, torch.float64)
    x, y = Spiral(1.0)(a), f[1](f[0](b))
    p = task.conditional(x)
    assert isinstance(p, TransformedDistribution)
    jacobians = torch.stack([torch.func.jacrev(lambda v: f[1](f[0](v)))(v) for v in b])
    expected = GAUSSIAN.conditional(a).log_prob(b) - torch.linalg.slogdet(jacobians).logabsdet
    torch.testing.assert_close(p.log_prob(y), expected)


def test_maps_change_dimensions():
    task = Transformed(CorrelatedGaussian(1, 0.8), y_maps=(NormalCDF(), SwissRoll()))
    assert (task.x_dim, task.y_dim) == (1, 2)
    x, y = task.sample(50, 0, torch.float64)
    p = task.conditional(x)
    assert p.event_shape == (2,)
    assert p.sample().shape == (50, 2)
    # per unit of length, the density integrates to one along the roll
    u = torch.linspace(0, 1, 20_001, dtype=torch.float64)[1:-1, None]
    roll = SwissRoll()(u)
    length = (roll[1:] - roll[:-1]).norm(dim=-1)
    density = task.conditional(x[:1].expand(len(u), 1)).log_prob(roll).exp()
    assert (density[1:] * length).sum().item() == pytest.approx(1, abs=1e-3)
    torch.testing.assert_close(p.log_prob(y).isfinite(), torch.ones(50, dtype=torch.bool))


def test_without_maps_nothing_changes():
    task = Transformed(GAUSSIAN)
    x, y = task.sample(5, 0)
    assert torch.equal(x, GAUSSIAN.sample(5, 0)[0])
    assert torch.equal(task.conditional(x).log_prob(y), GAUSSIAN.conditional(x).log_prob(y))


def test_labels_and_transforms_of_torch():
    inner = LabelledUniform(3)
    task = Transformed(inner, x_maps=(AffineTransform(1.0, 2.0),))
    x, y = task.sample(20, 0)
    assert task.classes == 3
    assert (task.x_dim, task.y_dim) == (1, 0)
    torch.testing.assert_close(x, 1 + 2 * inner.sample(20, 0)[0])
    assert task.log_ratio(x, y).isfinite().all()
    assert task.conditional(x).probs.shape == (20, 3)


def test_nesting_equals_a_chain():
    chain = Transformed(GAUSSIAN, y_maps=(Mixing(2), SignedPower(3.0)))
    nest = Transformed(Transformed(GAUSSIAN, y_maps=(Mixing(2),)), y_maps=(SignedPower(3.0),))
    x, y = chain.sample(10, 0, torch.float64)
    torch.testing.assert_close(nest.sample(10, 0, torch.float64)[1], y)
    torch.testing.assert_close(nest.log_ratio(x, y), chain.log_ratio(x, y))
    torch.testing.assert_close(nest.conditional(x).log_prob(y), chain.conditional(x).log_prob(y))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Transformed(GAUSSIAN, SignedPower(3.0)),
            "Expected x_maps to be a tuple of Transforms but got SignedPower.*; write .SignedPower",
        ),
        (
            lambda: Transformed(GAUSSIAN, y_maps=(torch.exp,)),
            "Expected y_maps to be a tuple of Transforms but got",
        ),
        (
            lambda: Transformed(LabelledUniform(3), y_maps=(SignedPower(3.0),)),
            "Expected no y_maps where y is a label but got .*; map only x",
        ),
        (
            lambda: Transformed(GAUSSIAN, x_maps=(Mixing(2),)),
            "Expected 2 columns, as W has but got 3",
        ),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_map_that_is_not_one_to_one_is_refused():
    absolute = torch.distributions.AbsTransform()
    with pytest.raises(ValueError, match="Expected y_maps to be one-to-one"):
        Transformed(CorrelatedGaussian(1, 0.8), y_maps=(absolute,))
