"""The trainer of the experiments: rounds in turn, when to test, states to resume from."""

import numpy as np
import pytest
import torch

from experiments.runner.states import name_state
from experiments.training import Training, cycle, seed_round, train


class Walk(Training):
    """A random walk: two blocks of three steps per round."""

    def __init__(self, seed=0, rounds=4, path=None, every=2, log=None):
        super().__init__(torch.device("cpu"), rounds, path, every)
        self.seed, self.place = seed, torch.zeros(2)
        self.log = [] if log is None else log

    def draw(self, number):
        g = torch.Generator().manual_seed(seed_round(self.seed, number))
        for _ in range(2):
            yield {"by": torch.randn(3, 2, generator=g)}

    def take_steps(self, block):
        self.log.append((self.seed, self.done))
        for by in block["by"]:
            self.place += by + 0.1 * torch.randn(2)

    def test(self):
        self.log.append((self.seed, "test"))
        self.keep("places", self.place.clone())
        if self.is_due(2):
            self.keep("due", self.done)

    def tensors(self):
        return {"place": self.place}


class Seeded(Walk):
    """One whose steps draw too."""

    def take_steps(self, block):
        torch.manual_seed(seed_round(self.seed, self.done))
        super().take_steps(block)


def test_trainings_take_their_blocks_in_turn():
    log = []
    train([Walk(0, 2, log=log), Walk(1, 1, log=log)])
    tests = [(0, "test"), (1, "test")]
    assert log == [*tests, (0, 0), (1, 0), (0, 0), (1, 0), *tests, (0, 1), (0, 1), (0, "test")]
    train([])


def test_side_by_side_is_one_at_a_time_and_leaves_the_generator_alone():
    before = torch.get_rng_state()
    together = [Seeded(seed) for seed in (0, 1)]
    train(together)
    for each in together:
        alone = Seeded(each.seed)
        train([alone])
        assert alone.results() == each.results()
    assert not torch.equal(together[0].place, together[1].place)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("rounds", "times", "expected"),
    [(6, 2, [0, 3, 6]), (6, 3, [0, 2, 4, 6]), (5, 2, [0, 3, 5]), (2, 5, [0, 1, 2]), (1, 1, [0, 1])],
)
def test_what_is_due_is_done_evenly_and_at_the_end(rounds, times, expected):
    walk = Walk(rounds=rounds)
    found = []
    for walk.done in range(rounds + 1):
        if walk.is_due(times):
            found.append(walk.done)
    assert found == expected


def test_an_interrupted_training_resumes_from_its_last_state(tmp_path):
    whole = Seeded(rounds=5)
    train([whole])
    path = name_state(str(tmp_path), "walk", "facts")
    broken = Seeded(rounds=5, path=path)
    taken = broken.take_steps

    def break_off(block):
        if broken.done == 3:
            raise KeyboardInterrupt
        taken(block)

    broken.take_steps = break_off
    with pytest.raises(KeyboardInterrupt):
        train([broken])
    for rounds in ([2, 2, 3, 3, 4, 4], []):  # then there is a state of the end
        resumed = Seeded(rounds=5, path=path)
        train([resumed])
        assert [number for _, number in resumed.log if number != "test"] == rounds
        assert resumed.results() == whole.results()
        assert torch.equal(resumed.place, whole.place)


def test_states_are_read_without_executing_them(tmp_path):
    walk = Walk(path=tmp_path / "one.state.npz")
    walk.test()
    walk.save(walk.path)
    arrays = dict(np.load(walk.path))
    arrays["place"] = np.array([{"a": 1}], object)
    np.savez(walk.path, **arrays)
    with pytest.raises(ValueError, match="allow_pickle"):
        train([Walk(path=walk.path)])


def test_no_sample_is_its_own_negative_and_each_is_one():
    for n in (2, 3, 50):
        index = cycle(torch.rand(n))
        assert sorted(index.tolist()) == list(range(n))
        assert (index != torch.arange(n)).all()
