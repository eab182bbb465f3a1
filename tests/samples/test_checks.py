import math

import torch

from mibounds.samples.checks import seems_finite


def test_what_is_looked_at():
    largest = torch.full((4, 2), torch.finfo(torch.float32).max)
    assert seems_finite(largest)  # whose sum is not finite
    for value in (torch.tensor(math.nan), torch.zeros(3).long(), [math.nan], None):
        assert seems_finite(value)  # others speak of those
    bad = torch.full((4, 2), math.nan)
    assert not seems_finite(bad)
    assert not seems_finite(bad.half())
    assert seems_finite(bad.to("meta"))  # as on a GPU, which must not wait
    assert torch.vmap(lambda v: torch.tensor(seems_finite(v)))(bad).all()
    torch.compiler.reset()
    seen = torch.compile(lambda v: v if seems_finite(v) else v + 1, backend="eager", fullgraph=True)
    assert seen(bad).isnan().all()
