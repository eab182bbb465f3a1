"""The table of data sets, and the real ones where they are at hand."""

import os

import numpy as np
import pytest

from experiments.data import DATASETS, caches, load, loaders, sources

REAL = os.environ.get("MIBOUNDS_DATA")


def test_every_file_can_be_checked():
    for name, dataset in DATASETS.items():
        assert len(dataset.sizes) == 2
        for form in dataset.forms:
            contents = [content for file in form.files for content in file.contents]
            assert {p for paths in form.splits.values() for p in paths} == {
                content.path for content in contents
            }, name
            for file in (*form.files, sources.BSDS500):
                assert file.hash or all(content.hash for content in file.contents), file.name
                assert all(url.endswith(f"/{file.name}") for url in file.urls)
                for hash in (file.hash, *(content.hash for content in file.contents)):
                    algorithm, _, value = hash.partition(":")
                    assert len(value) == {"md5": 32, "sha256": 64, "": 0}[algorithm], file.name


def test_every_download_has_a_sha256_and_comes_by_https_first():
    forms = [form for dataset in DATASETS.values() for form in dataset.forms]
    files = [sources.BSDS500, *(file for form in forms for file in form.files)]
    assert len(files) > 10
    for file in files:
        hashes = [file.hash] if file.hash else [content.hash for content in file.contents]
        assert all(hash.startswith("sha256:") for hash in hashes), file.name
        secure = [url.startswith("https://") for url in file.urls]
        assert secure == sorted(secure, reverse=True), file.name
        assert secure[0], file.name


@pytest.mark.skipif(not REAL, reason="MIBOUNDS_DATA names no folder of real data")
@pytest.mark.parametrize("name", DATASETS)
def test_real_data(name):
    try:
        _, entry = loaders.provide(name, REAL)
    except ValueError as error:
        if "but there is none" not in str(error):
            raise
        pytest.skip(str(error))
    for split in caches.list_splits(entry):
        got = load(name, split, REAL)
        assert len(got) == DATASETS[name].sizes[split == "test"]
        assert got.images.shape[1:] in DATASETS[name].shapes
        counts = np.bincount(got.labels, minlength=10)
        assert counts.min() > 0.5 * len(got) / 10 * (0.9 if name == "usps" else 1.2)
        assert "unknown" not in got.origin
        assert got.digest == entry.digests[split]
    if name == "svhn" and "test" not in entry.digests:
        assert "regenerated" in entry.origin
