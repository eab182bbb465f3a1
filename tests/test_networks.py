import pytest
import torch

from mibounds.networks import MLP, Standardiser


def test_statistics_of_several_batches_are_those_of_all_samples():
    x = torch.randn(10, 32, 3, dtype=torch.float64) * 5 + torch.arange(10).view(-1, 1, 1)
    s = Standardiser(3).double()
    for batch in x:
        s.observe(batch)
    whole = x.flatten(0, 1)
    torch.testing.assert_close(s.mean, whole.mean(0))
    torch.testing.assert_close(s.variance, whole.var(0, correction=0))
    torch.testing.assert_close(s(whole).std(0, correction=0), torch.ones(3, dtype=torch.float64))


def test_later_they_follow_the_data():
    s = Standardiser(1, momentum=0.1)
    for _ in range(50):
        s.observe(torch.randn(64, 1))
    for _ in range(200):
        s.observe(1000 + 7 * torch.randn(64, 1))
    assert s.mean.item() == pytest.approx(1000, abs=2)
    assert s.scale.item() == pytest.approx(7, rel=0.2)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e12, -1e-12])
def test_a_constant_column_is_known_as_such_whatever_its_value(value):
    s = Standardiser(2)
    for _ in range(20):
        s.observe(torch.stack([torch.full((33,), value), torch.randn(33)], 1))
    assert s.varies.tolist() == [0, 1]
    assert s(torch.full((1, 2), value))[0, 0] == 0


def test_one_bad_batch_does_not_spoil_it():
    s = Standardiser(2)
    s.observe(torch.randn(8, 2))
    mean = s.mean
    s.observe(torch.tensor([[float("nan"), 1.0], [0.0, 2.0]]))
    assert s.mean[0] == mean[0]
    assert s.mean.isfinite().all()


def test_observing_replaces_and_never_alters():
    s = Standardiser(2)
    before = {name: b for name, b in s.named_buffers()}
    copies = {name: b.clone() for name, b in before.items()}
    x = torch.randn(8, 2, requires_grad=True)
    value = s(x).square().sum()
    s.observe(x)
    assert all((before[n] == copies[n]).all() for n in before)
    value.backward()
    assert set(s.state_dict()) == {"mean", "variance", "batches"}


def test_mlp_without_hidden_layers_is_linear_and_without_inputs_constant():
    linear = MLP(3, (), 2)
    x = torch.randn(5, 3)
    torch.testing.assert_close(linear(x) + linear(-x), 2 * linear.offset.expand(5, 2))
    constant = MLP(0, 8, 2)
    with torch.no_grad():
        constant.offset.copy_(torch.tensor([1.0, 2.0]))
    assert constant(torch.zeros(3, 0)).tolist() == [[1.0, 2.0]] * 3
