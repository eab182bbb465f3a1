"""Laws that hold for every entry of TASKS: what it samples, what it says, and that both agree."""

import copy
import math
import pickle
import subprocess
import sys

import pytest
import torch

from mibounds.tasks import TASKS, CorrelatedGaussian, JointGaussianMixture, Task, Transformed

N = 200_000
LOW = [name for name, task in TASKS.items() if 0 < task.mutual_information < 1.1]


def doubles(task: Task, n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A sample as callers get it, in the precision the truths are checked in."""
    x, y = task.sample(n, seed)
    return x.double(), y.double() if task.classes is None else y


def mean_and_error(values: torch.Tensor) -> tuple[float, float]:
    return values.mean().item(), values.std().item() / math.sqrt(values.numel())


@pytest.fixture(params=TASKS)
def task(request) -> Task:
    return TASKS[request.param]


def test_names_of_the_club_simulation():
    for level in (2, 4, 6, 8, 10):
        for family in ("gaussian", "cubic", "cubic-w"):
            task = TASKS[f"{family}-{level}"]
            assert (task.x_dim, task.y_dim) == (20, 20)
            assert task.mutual_information == pytest.approx(level, rel=1e-12)
    assert TASKS["independent"].mutual_information == 0.0
    assert math.copysign(1, TASKS["independent"].mutual_information) == 1  # prints as 0, not -0


def test_shapes_and_dtypes(task):
    x, y = task.sample(7, 0)
    assert x.shape == (7, task.x_dim)
    assert x.dtype == torch.get_default_dtype()
    if task.classes is None:
        assert y.shape == (7, task.y_dim)
        assert y.dtype == torch.get_default_dtype()
        assert task.sample(7, 0, torch.float64)[1].dtype == torch.float64
    else:
        assert y.shape == (7,)
        assert y.dtype == torch.int64
        assert task.y_dim == 0
        labels = task.sample(1000, 0)[1]
        assert (labels.min().item(), labels.max().item()) == (0, task.classes - 1)


def test_seeds(task):
    state = torch.get_rng_state()
    x, y = task.sample(9, 3)
    assert torch.equal(state, torch.get_rng_state())  # a seed leaves the global generator alone
    for again in (3, torch.Generator().manual_seed(3)):
        x_again, y_again = task.sample(9, again)
        assert torch.equal(x, x_again)
        assert torch.equal(y, y_again)
    assert not torch.equal(x, task.sample(9, 4)[0])
    generator = torch.Generator().manual_seed(3)
    task.sample(9, generator)
    assert not torch.equal(x, task.sample(9, generator)[0])  # a generator moves on


def test_a_seed_means_the_cpu_whatever_the_default_device(task):
    with torch.device("meta"):
        x, y = task.sample(3, 0)
    assert (x.device.type, y.device.type) == ("cpu", "cpu")
    assert torch.equal(x, task.sample(3, 0)[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_generator_sets_the_device():
    for task in TASKS.values():
        x, y = task.sample(50, torch.Generator("cuda").manual_seed(0))
        assert (x.device.type, y.device.type) == ("cuda", "cuda")
        got, log_prob = task.log_ratio(x, y), task.conditional(x).log_prob(y)
        assert (got.device.type, log_prob.device.type) == ("cuda", "cuda")
        torch.testing.assert_close(got.cpu(), task.log_ratio(x.cpu(), y.cpu()), rtol=0, atol=1e-2)


def test_none_is_the_global_generator(task):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        x, _ = task.sample(9)
        torch.manual_seed(5)
        assert torch.equal(x, task.sample(9)[0])
        assert not torch.equal(x, task.sample(9)[0])


def test_is_a_value(task):
    for twin in (copy.deepcopy(task), pickle.loads(pickle.dumps(task))):
        assert twin == task
        assert hash(twin) == hash(task)
        assert repr(twin) == repr(task)
        assert torch.equal(twin.sample(3, 0)[0], task.sample(3, 0)[0])
    with pytest.raises(AttributeError):
        task.x_dim = 3


def test_mean_log_ratio_is_the_mutual_information(task):
    mean, error = mean_and_error(task.log_ratio(*doubles(task, N, 1)))
    truth = task.mutual_information
    assert error < 0.01  # or the next line could hardly fail
    assert abs(mean - truth) <= 5 * (error + task.mutual_information_error) + 1e-12


def test_single_precision_suffices(task):
    x, y = task.sample(10_000, 2)
    single = task.log_ratio(x, y)
    exact = task.log_ratio(x.double(), y.double() if task.classes is None else y)
    assert single.dtype == torch.float32
    assert torch.isfinite(single).all()
    assert (single.mean() - exact.mean()).abs() < 1e-3


@pytest.mark.parametrize("name", LOW)
def test_ratio_is_normalised(name):
    task = TASKS[name]
    x, y = doubles(task, N, 2)
    mean, error = mean_and_error(task.log_ratio(x, y.roll(1, 0)).exp())
    assert error < 0.05
    assert abs(mean - 1) < 5 * error


def test_log_ratio_broadcasts_to_all_pairs(task):
    x, y = doubles(task, 6, 3)
    pairs = task.log_ratio(x[:, None], y[None])
    assert pairs.shape == (6, 6)
    for i in range(6):
        row = task.log_ratio(x[i].expand_as(x), y)
        torch.testing.assert_close(pairs[i], row, rtol=1e-9, atol=1e-9)


def test_conditional_over_ratio_is_the_marginal_of_y(task):
    """log p(y | x) - log_ratio(x, y) is log p(y), the same for every x that allows y."""
    x, y = doubles(task, 2000, 4)
    p = task.conditional(x)
    assert p.batch_shape == (2000,)
    assert p.event_shape == (() if task.classes else (task.y_dim,))
    marginal = p.log_prob(y) - task.log_ratio(x, y)
    x2 = x.roll(1, 0)
    other = task.conditional(x2).log_prob(y) - task.log_ratio(x2, y)
    both = torch.isfinite(other)
    assert torch.equal(both, torch.isfinite(task.log_ratio(x2, y)))
    assert torch.isfinite(marginal).all()
    assert both.sum() > 100
    torch.testing.assert_close(marginal[both], other[both], rtol=1e-6, atol=1e-6)


def test_conditional_samples_restore_the_joint(task):
    x, _ = doubles(task, 50_000, 5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        y = task.conditional(x).sample()
    mean, error = mean_and_error(task.log_ratio(x, y))
    assert abs(mean - task.mutual_information) <= (
        5 * (error + task.mutual_information_error) + 1e-12
    )


def test_import_draws_nothing_and_integrates_nothing():
    code = (
        "import numpy, torch\n"
        "before = torch.get_rng_state(), str(numpy.random.get_state())\n"
        "from mibounds.tasks import TASKS\n"
        "assert torch.equal(before[0], torch.get_rng_state())\n"
        "assert before[1] == str(numpy.random.get_state())\n"
        "assert '_value_and_error' not in vars(TASKS['mixture-cross'])\n"
        "assert 'matrix' not in vars(TASKS['cubic-w-2'].y_maps[0])\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_every_family_is_in_the_registry():
    families = {type(task) for task in TASKS.values()}
    ours = {c for c in Task.__subclasses__() if c.__module__.startswith("mibounds.")}
    assert families == ours
    assert {CorrelatedGaussian, JointGaussianMixture, Transformed} < families
    assert any(task.x_dim != task.y_dim for task in TASKS.values() if task.classes is None)
