"""Where cells are computed: processes, GPUs, clusters that are not there."""

import os
import sys
from types import SimpleNamespace

import pytest
import torch

from experiments import Failed
from experiments.runner.workers import pick_device, set_queues


def test_what_takes_time_is_measured_alone(go, toy, monkeypatch):
    monkeypatch.setattr(toy, "serial", True)
    go(jobs=0)
    assert len(toy.computed) == 24  # in this process, one after the other


def test_rows_for_every_cell(go, toy, monkeypatch):
    monkeypatch.setattr(toy, "run", lambda config, cells: [])
    with pytest.raises(Failed, match="Expected rows for each of 1 cells but got 0"):
        go()


def test_without_the_extras(go, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install -e '\.\[dask\]'"):
        go(backend="dask", scheduler="tcp://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"--backend ray needs ray; install it with"):
        go(backend="ray")
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(ImportError, match=r"pip install -e '\.\[experiments\]'"):
        go()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(go):
    with pytest.raises(
        ValueError, match=r"Expected a GPU for --device cuda but .* none here; leave"
    ):
        go(device="cuda")


def test_a_ray_cluster_that_is_not_there(go, monkeypatch):
    def init(address, **_):
        raise ConnectionError(f"nobody at {address}")

    ray = SimpleNamespace(init=init)
    names = ("ray", "ray.util", "ray.util.joblib")
    for name, module in zip(names, (ray, ray, SimpleNamespace(register_ray=None)), strict=True):
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(ValueError, match=r"Expected a ray cluster at .* auto .* nobody at"):
        go(backend="ray")


def test_auto_is_the_gpu_where_there_is_one(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert pick_device("auto") == "cuda"
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert pick_device("auto") == "cpu"
    assert pick_device("cuda:1") == "cuda:1"


def test_processes_that_share_a_gpu_take_fewer_queues(monkeypatch):
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    for jobs, queues in ((0, "32"), (1, "32"), (4, "4")):
        monkeypatch.delenv(name, raising=False)
        set_queues(jobs)
        assert os.environ[name] == queues
    monkeypatch.setenv(name, "7")  # who sets it knows why
    set_queues(4)
    assert os.environ[name] == "7"
