"""STL-10 at 32 x 32, against the plain mean."""

import numpy as np
import pytest
from tiny_sets import RANDOM

from experiments.data import reduce_by_means, reduce_by_picking


def test_reductions_against_the_plain_mean():
    images = RANDOM.integers(0, 256, (5, 9, 12, 3), np.uint8)
    images[0] = 255
    blocks = images.reshape(5, 3, 3, 4, 3, 3).astype(np.float64)
    np.testing.assert_array_equal(reduce_by_means(images), np.rint(blocks.mean((2, 4))))
    np.testing.assert_array_equal(reduce_by_picking(images), blocks[:, :, 1, :, 1])


@pytest.mark.parametrize("reduce", [reduce_by_means, reduce_by_picking])
def test_sides_that_cannot_be_reduced(reduce):
    with pytest.raises(ValueError, match="Expected sides that are multiples of 3 but got 32 x 33"):
        reduce(np.zeros((1, 32, 33, 3), np.uint8))
