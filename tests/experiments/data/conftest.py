"""Small forms in place of the real ones, a folder, a web and photographs for each test."""

import dataclasses
import io
import threading

import numpy as np
import pytest
from PIL import Image
from tiny_sets import RANDOM, Server, make_tiny

from experiments.data import DATASETS


@pytest.fixture(autouse=True)
def _cache(cache):
    """Every test has a cache of its own."""


@pytest.fixture
def tiny(monkeypatch):
    """Puts small forms of a data set in the place of the real ones."""

    def put(name, *ks, server=None):
        made = [make_tiny(name, k) for k in ks or range(len(DATASETS[name].forms))]
        forms = tuple(each.form for each in made)
        if server:
            forms = tuple(
                dataclasses.replace(
                    form,
                    files=tuple(
                        dataclasses.replace(file, urls=(f"{server.url}/{file.name}",))
                        for file in form.files
                    ),
                )
                for form in forms
            )
            server.files |= {n: data for each in made for n, data in each.files.items()}
        new = dataclasses.replace(DATASETS[name], forms=forms)
        monkeypatch.setitem(DATASETS, name, new)
        return made[0]

    return put


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    return path


def jpeg(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "JPEG")
    return file.getvalue()


@pytest.fixture
def photographs():
    shapes = [(40, 60, 3), (60, 40, 3), (28, 28, 3)]
    return {f"{k}.jpg": jpeg(RANDOM.integers(0, 256, s, np.uint8)) for k, s in enumerate(shapes)}


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
