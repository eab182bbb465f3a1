"""Names and splits of data sets, and what is missing without the extra."""

import sys

import pytest

from experiments.data import caches, load, mnist_m, parsers


def test_names():
    with pytest.raises(ValueError, match="but got 'minst'; did you mean 'mnist'"):
        load("minst")
    with pytest.raises(ValueError, match=r"Expected a data set among mnist, usps.* but got 'x'"):
        load("x")


def test_splits(unchecked):
    with pytest.raises(ValueError, match="Expected split to be 'train' or 'test' but got 'val'"):
        load("mnist", "val")


def test_without_the_extra(tiny, folder, photographs, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r"pooch; .*pip install -e '\.\[experiments\]'"):
        load("usps")
    monkeypatch.delenv("MIBOUNDS_CACHE")
    with pytest.raises(ImportError, match=r"pooch; .*pip install -e '\.\[experiments\]'"):
        caches.find_cache()
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(ImportError, match=r"need scipy; .*pip install -e '\.\[experiments\]'"):
        parsers.parse_mat(b"")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"need Pillow; .*pip install -e '\.\[experiments\]'"):
        mnist_m.decode_photographs(photographs)
