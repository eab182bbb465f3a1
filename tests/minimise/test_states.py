"""A state that does not fit is refused in one line, and changes nothing."""

import copy
import math

import pytest
import torch
from penalties import S, Z, make, samples

import mibounds as mb


def trained(name="club", **options):
    penalty = make(name, **options)
    for seed in range(2):
        penalty(*samples(seed))
    return penalty


def without(field):
    def change(state):
        del state["_extra_state"][field]

    return change


def replaced(*path, value):
    def change(state):
        *first, last = path
        for key in first:
            state = state[key]
        state[last] = value

    return change


def first_moment(state):
    for moments in state["_extra_state"]["optimizer"]["state"].values():
        moments["exp_avg"] = torch.zeros(1)


OTHERS = {
    "another estimator": (lambda: trained("mine"), "same estimator and settings"),
    "another size": (lambda: mb.MIPenalty(mb.CLUB(Z, S, 9)), r"shape \(8, 3\) in the state"),
    "another kind": (lambda: mb.MIPenalty(Z, S), "same estimator and settings"),
    "another optimiser": (
        lambda: trained(optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
        "the state of Adam with 4 parameters",
    ),
    "nothing to learn": (
        lambda: mb.MIPenalty(mb.CLUB(conditional=lambda x: None)),
        "same estimator and settings",
    ),
}
CHANGES = {
    **{
        field: (without(field), f"of a penalty with calls, .* but got none of {field}")
        for field in ("calls", "recent", "fits", "optimizer", "device", "generator")
    },
    "no state": (replaced("_extra_state", value=None), "same estimator and settings"),
    "no dictionary": (replaced("_extra_state", value=[1]), "but got none of calls, device"),
    "optimiser of None": (replaced("_extra_state", "optimizer", value=None), "state of Adam"),
    "optimiser of a list": (replaced("_extra_state", "optimizer", value=[]), "state of Adam"),
    "a moment": (first_moment, "the state of Adam with 4 parameters of the same shapes"),
    **{
        f"{field}: {odd}": (
            replaced("_extra_state", field, value=odd),
            f"one in which {field} is of another type",
        )
        for field, odd in (
            ("calls", 2.5),
            ("fits", {}),
            ("recent", 3),
            ("recent", [torch.ones(2)]),
            ("averages", 3),
            ("moving", math.inf),
            ("device", 3),
            ("generator", torch.tensor(math.nan)),
        )
    },
    "lost weights": (
        replaced("estimators.0.conditional.net.layers.2.bias", value=torch.full((4,), math.nan)),
        "Expected finite numbers in .*bias in the state of a penalty but got NaN or infinity; load",
    ),
    "a lost scale": (
        replaced("estimators.0.conditional.x_standard.variance", value=torch.full((Z,), math.inf)),
        "Expected finite numbers in .*variance in the state of a penalty but got NaN or infinity",
    ),
    "values": (replaced("values", value=torch.zeros(3)), r"Expected values of shape \(100,\)"),
}
DAMAGE = {
    "gate": replaced("_extra_state", "gate", "means", value=torch.zeros(3)),
    "numbers of the gate": replaced(
        "_extra_state", "gate", "means", value=torch.full((2,), math.nan)
    ),
    "part of the gate": lambda state: state["_extra_state"]["gate"].pop("seen"),
    "memory": replaced("_extra_state", "memory", value={}),
    "rows": replaced("_extra_state", "memory", "filled", value=torch.tensor(10**6)),
    "no gate": replaced("_extra_state", "gate", value=None),
}


def refuses(penalty, state, message):
    before = str(penalty.state_dict())
    with pytest.raises(ValueError, match=message):
        penalty.load_state_dict(state)
    holder = torch.nn.ModuleDict({"penalty": penalty})
    inside = {f"penalty.{key}": value for key, value in state.items()}
    with pytest.raises(ValueError, match=message):
        holder.load_state_dict(inside)
    assert str(penalty.state_dict()) == before
    penalty(*samples(9))


@pytest.mark.parametrize("name", OTHERS)
def test_the_state_of_another_penalty_is_refused(name):
    other, message = OTHERS[name]
    refuses(trained(), other().state_dict(), message)


@pytest.mark.parametrize("name", CHANGES)
def test_a_state_with_a_fault_is_refused(name):
    change, message = CHANGES[name]
    state = copy.deepcopy(trained().state_dict())
    change(state)
    refuses(trained(), state, message)


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_gate_or_memory_is_refused(name):
    state = copy.deepcopy(trained("default").state_dict())
    DAMAGE[name](state)
    refuses(
        trained("default"), state, "gate of two witnesses and a memory .* damaged; load another"
    )


def test_a_state_of_before_the_first_step_fits():
    penalty = trained()
    penalty.load_state_dict(make("club").state_dict())
    assert penalty.calls == 0
    default = trained("default")
    default.load_state_dict(make("default").state_dict())
    assert default.alternation.memory.sides == ()


def test_a_checkpoint_without_the_penalty_leaves_it_alone():
    penalty, model = trained(), torch.nn.Linear(2, 2)
    before = str(penalty.state_dict())
    both = torch.nn.ModuleDict({"model": model, "penalty": penalty})
    state = {f"model.{key}": value for key, value in torch.nn.Linear(2, 2).state_dict().items()}
    both.load_state_dict(state, strict=False)
    assert torch.equal(model.weight, state["model.weight"])
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: .*penalty"):
        both.load_state_dict(state)
    assert str(penalty.state_dict()) == before
