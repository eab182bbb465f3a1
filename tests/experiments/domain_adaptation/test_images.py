"""The images of domain adaptation: loaded, normalised, augmented."""

import os
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from made_up import ADAPTATION, adaptation, first_step
from torch.nn import functional as F

from experiments import Cell
from experiments.domain_adaptation.config import TRANSFERS, Transfer
from experiments.domain_adaptation.images import (
    CLASSES,
    SHARED,
    Normaliser,
    load_domains,
    shape_images,
    share_classes,
    take_images,
    warp_images,
)
from experiments.domain_adaptation.training import AdaptationTraining
from experiments.training import train

pytest.importorskip("pooch")

REAL = os.environ.get("MIBOUNDS_DATA")


def test_classes_of_cifar_and_stl_are_aligned():
    assert SHARED == (
        "airplane", "automobile", "bird", "cat", "deer", "dog", "horse", "ship", "truck",
    )  # fmt: skip
    labels = np.arange(10)
    images = np.arange(10, dtype=np.uint8).reshape(10, 1, 1, 1)
    for names, left_out in ((CLASSES["cifar10"], "frog"), (CLASSES["stl10"], "monkey")):
        kept, numbers = share_classes(images, labels, names)
        assert [names[i] for i in kept.flatten()] == [SHARED[k] for k in numbers]
        assert sorted(numbers) == list(range(9))
        assert names.index(left_out) not in kept
    assert CLASSES["cifar10"].index("automobile") == 1
    assert CLASSES["stl10"].index("automobile") == 2  # called car there


def test_images_are_warped_about_their_middle():
    g = torch.Generator().manual_seed(0)
    images = torch.randint(256, (3, 6, 6, 2), generator=g).to(torch.uint8)
    turns = [torch.eye(2), torch.tensor([[0.0, -1.0], [1.0, 0.0]]), -torch.eye(2)]
    same, turned, upside_down = warp_images(images, torch.stack(turns))
    torch.testing.assert_close(same, images[0].float(), rtol=0, atol=1e-3)
    torch.testing.assert_close(turned, images[1].rot90(1).float(), rtol=0, atol=1e-3)
    torch.testing.assert_close(upside_down, images[2].rot90(2).float(), rtol=0, atol=1e-3)
    (wider,) = warp_images(images[:1], torch.tensor([[[1 / 3, 0.0], [0.0, 1.0]]]))
    torch.testing.assert_close(wider[:, 1], images[0, :, 2].float(), rtol=0, atol=1e-3)


def test_images_are_gathered_shifted_and_flipped():
    images = torch.randint(256, (5, 6, 6, 3)).to(torch.uint8)
    index = torch.tensor([3, 0, 3])
    shifts = torch.tensor([[0, 0], [2, -1], [-6, 0]])
    flips = torch.tensor([1, 0, 0])
    assert torch.equal(take_images(images, index), images[index])
    first, second, third = take_images(images, index, shifts, flips)
    assert torch.equal(first, images[3].flip(1))
    assert torch.equal(second[2:, :5], images[0][:4, 1:])
    assert torch.equal(second[0], second[1])  # the edge, repeated
    assert torch.equal(third, images[3][5:].expand(6, 6, 3))


def test_shapes_of_images():
    g = np.random.default_rng(0)
    large = g.integers(256, size=(2, 96, 96, 3)).astype(np.uint8)
    picked, means = (shape_images(large, 32, kind) for kind in ("picked", "means"))
    assert np.array_equal(picked, large[:, 1::3, 1::3])
    assert abs(int(means[0, 0, 0, 0]) - large[0, :3, :3, 0].mean()) <= 0.5
    crop = shape_images(large[:, :32, :32], 28)
    assert np.array_equal(crop, large[:, 2:30, 2:30])
    flat = np.full((1, 16, 16), 77, np.uint8)
    assert np.array_equal(shape_images(flat, 28), np.full((1, 28, 28, 1), 77))


def test_normalisation(domains):
    source, _ = domains
    x = Normaliser(source, "domain")(source.images)
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(x.std((0, 2, 3)), torch.ones(3), atol=1e-2, rtol=0)
    assert x.is_contiguous(memory_format=torch.channels_last)
    raw = Normaliser(source, "raw")(source.images)
    assert raw.max().item() == source.images.max().item()
    one = Normaliser(source, "instance")(source.images)
    torch.testing.assert_close(one.var((2, 3), correction=0), torch.ones(40, 3), atol=1e-2, rtol=0)


@pytest.mark.parametrize("name", TRANSFERS)
def test_transfers(name, sets):
    transfer = TRANSFERS[name]
    source, target = load_domains(name)
    for each in (source, target):
        assert (
            each.images.shape[1:3] == each.test_images.shape[1:3] == (transfer.side, transfer.side)
        )
        assert each.labels.unique().tolist() == list(range(transfer.classes))
        assert len(each.test_images) == len(each.test_labels) > 0
    expected = {"svhn": 54, "usps": 96}.get(transfer.source, 60 if transfer.classes == 10 else 54)
    assert len(source.images) == expected
    few, _ = load_domains(name, 20)
    assert len(few.images) <= 20
    config = replace(ADAPTATION, steps=2, points=1, batch_size=4)
    training = AdaptationTraining(config, Cell("recipe", name, "club_sample", 0), few, few)
    train([training])
    assert len(training.found["curve"]) == 2


def test_usps_is_pooled_and_divided_anew(sets):
    pooled, own = (load_domains("usps-mnist", division=each)[0] for each in ("pooled", "own"))
    assert (len(own.images), len(own.test_images)) == (60, 60)
    assert (len(pooled.images), len(pooled.test_images)) == (96, 24)
    both = [
        sorted(
            (label, image.tobytes())
            for images, labels in ((d.images, d.labels), (d.test_images, d.test_labels))
            for image, label in zip(images.numpy(), labels.tolist(), strict=True)
        )
        for d in (pooled, own)
    ]
    assert both[0] == both[1]
    again, _ = load_domains("usps-mnist")
    assert torch.equal(again.test_images, pooled.test_images)
    mnist = [load_domains("usps-mnist", division=each)[1] for each in ("pooled", "own")]
    assert torch.equal(mnist[0].test_images, mnist[1].test_images)


@pytest.mark.skipif(not REAL, reason="MIBOUNDS_DATA names no folder of real data")
def test_the_test_part_of_usps_is_harder_than_its_training_part():
    errors = {}
    for division in ("pooled", "own"):
        usps, _ = load_domains("usps-mnist", division=division)
        train, test = (v.flatten(1).float() for v in (usps.images, usps.test_images))
        nearest = torch.cdist(test, train).argmin(1)
        errors[division] = (usps.labels[nearest] != usps.test_labels).float().mean().item()
    assert len(usps.images) == 7291
    assert errors["own"] > 2 * errors["pooled"]


def test_a_target_needs_a_test_part(sets, monkeypatch):
    monkeypatch.setitem(TRANSFERS, "mnist-svhn", Transfer("mnist", "svhn"))
    with pytest.raises(ValueError, match="Expected a test split of svhn"):
        load_domains("mnist-svhn")


def test_a_share_of_the_images_is_inverted(domains):
    plain, none, some, every = (
        adaptation(domains, "source", "recipe", background=0.0, inversion=share, inverted="images")
        for share in (0.0, 1e-9, 0.5, 1.0)
    )
    x = plain.augment(first_step(plain), 0)
    for c, share in ((none, 0.0), (every, 1.0)):
        given = first_step(c)
        torch.testing.assert_close(c.augment(given, 0), (1 - 2 * share) * x)
    signs = next(some.draw(0))["signs"]
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    apart = adaptation(
        domains, "source", "recipe", background=0.0, inversion=0.5, inverted="channels"
    )
    given = first_step(apart)
    torch.testing.assert_close(apart.augment(given, 0).abs(), x.abs())
    changed = (given["signs"][0] < 0).sum(2)  # channels of an image
    assert set(changed.unique().tolist()) >= {0, 1, 2}


def test_backgrounds_are_smooth_and_apart_for_each_image_and_view(domains):
    plain, other = (
        adaptation(domains, "source", "recipe", inversion=0.0, background=share)
        for share in (0.0, 0.5)
    )
    x = plain.augment(first_step(plain), 0)
    given = first_step(other)
    added = other.augment(given, 0) - x
    noise = torch.cat([*given["backgrounds"][0]])
    enlarge = partial(F.interpolate, mode="bicubic")
    torch.testing.assert_close(added, enlarge(noise, x.shape[2:]), rtol=1e-4, atol=1e-4)
    assert 0.45 < noise.std() < 0.55
    smooth = enlarge(noise, (28, 28))
    steps = (smooth[..., 1:] - smooth[..., :-1]).square().mean()
    assert steps < 0.3 * smooth.square().mean()  # neighbours differ less than strangers
    assert not torch.allclose(added[0], added[1])
    assert not torch.equal(given["backgrounds"][0], given["backgrounds"][1])
