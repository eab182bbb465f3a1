"""The encoder of domain adaptation: its convolutions, batch statistics and noise."""

import pytest
import torch

from experiments.domain_adaptation.networks import (
    BatchNorm,
    ConvEncoder,
    Noise,
    collecting,
    forget_statistics,
)


def test_the_encoder_has_nine_convolutions():
    encoder = ConvEncoder((64, 64, 64))
    convolutions = [m for m in encoder.modules() if isinstance(m, torch.nn.Conv2d)]
    assert [c.out_channels for c in convolutions] == [64] * 9
    assert all(c.weight.is_contiguous(memory_format=torch.channels_last) for c in convolutions)
    kinds = [type(m).__name__ for m in encoder.layers]
    assert kinds.count("MaxPool2d") == kinds.count("Noise") == 2
    wide = [m for m in ConvEncoder((96, 192, 192)).modules() if isinstance(m, torch.nn.Conv2d)]
    assert [c.out_channels for c in wide] == [96] * 3 + [192] * 6
    x = torch.randn(2, 3, 32, 32)
    assert ConvEncoder((4, 4, 4), bf16=True)(x).dtype == torch.float32


def test_batch_statistics_joined_split_and_collected():
    x = torch.cat([torch.randn(8, 2, 4, 4), 5 + 2 * torch.randn(8, 2, 4, 4)])
    plain = torch.nn.BatchNorm2d(2)
    torch.testing.assert_close(BatchNorm(2)(x), plain(x))
    halves = torch.cat([plain(x[:8]), plain(x[8:])])
    torch.testing.assert_close(BatchNorm(2, split=True)(x), halves)
    encoder = ConvEncoder((4, 4, 4)).eval()
    x = torch.randn(10, 3, 8, 8)
    with collecting(encoder):
        together = encoder(x)
    torch.testing.assert_close(encoder(x[3:4]), together[3:4])
    forget_statistics(encoder)
    assert not torch.allclose(encoder(x[3:5]), together[3:5])


def test_noise():
    torch.manual_seed(0)
    x = torch.ones(20000)
    noisy = Noise(0.5, 1.0)(x)
    assert noisy.mean().item() == pytest.approx(1, abs=0.05)
    assert noisy.var().item() == pytest.approx(2, abs=0.1)
    assert torch.equal(Noise(0.5, 1.0).eval()(x), x)
