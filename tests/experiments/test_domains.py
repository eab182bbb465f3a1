"""The images of domain adaptation and the networks that read them."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from made_up import CONFIG, course

from experiments import Cell, ingredients
from experiments.courses import Course
from experiments.domains import (
    CIFAR10,
    SHARED,
    STL10,
    TASKS,
    Normaliser,
    Task,
    load_task,
    shape_images,
    share_classes,
)
from experiments.encoders import BatchNorm, Encoder, Noise, collecting, forget_statistics
from experiments.views import take_images, warp_images

pytest.importorskip("pooch")

REAL = os.environ.get("MIBOUNDS_DATA")


# --- networks ------------------------------------------------------------------------------------


def test_the_encoder_has_nine_convolutions():
    encoder = Encoder((64, 64, 64))
    convolutions = [m for m in encoder.modules() if isinstance(m, torch.nn.Conv2d)]
    assert [c.out_channels for c in convolutions] == [64] * 9
    assert all(c.weight.is_contiguous(memory_format=torch.channels_last) for c in convolutions)
    kinds = [type(m).__name__ for m in encoder.layers]
    assert kinds.count("MaxPool2d") == kinds.count("Noise") == 2
    wide = [m for m in Encoder((96, 192, 192)).modules() if isinstance(m, torch.nn.Conv2d)]
    assert [c.out_channels for c in wide] == [96] * 3 + [192] * 6
    x = torch.randn(2, 3, 32, 32)
    assert Encoder((4, 4, 4), bf16=True)(x).dtype == torch.float32


def test_batch_statistics_joined_split_and_collected():
    x = torch.cat([torch.randn(8, 2, 4, 4), 5 + 2 * torch.randn(8, 2, 4, 4)])
    plain = torch.nn.BatchNorm2d(2)
    torch.testing.assert_close(BatchNorm(2)(x), plain(x))
    halves = torch.cat([plain(x[:8]), plain(x[8:])])
    torch.testing.assert_close(BatchNorm(2, split=True)(x), halves)
    encoder = Encoder((4, 4, 4)).eval()
    x = torch.randn(10, 3, 8, 8)
    with collecting(encoder):
        together = encoder(x)
    torch.testing.assert_close(encoder(x[3:4]), together[3:4])
    forget_statistics(encoder)
    assert not torch.allclose(encoder(x[3:5]), together[3:5])


def test_a_prediction_does_not_depend_on_its_batch_unless_published(domains):
    images = domains[1].test_images
    c, published = course(domains), course(domains, mode="as-published")
    for each, alike in ((c, True), (published, False)):
        z = each.embed("content", images, True)
        some = each.embed("content", images[:5], True)
        assert torch.allclose(z[:5], some, atol=1e-4) is alike


@pytest.mark.parametrize(
    ("changes", "apart"),
    [
        ({"test_statistics": "joined"}, {"content": False, "domain": False}),
        ({"test_statistics": "joined", "statistics": "split"}, {"content": True, "domain": False}),
        ({"test_statistics": "split"}, {"content": True, "domain": False}),
        ({"domain_statistics": "split"}, {"content": True, "domain": True}),
    ],
)
def test_statistics_for_a_test(changes, apart, domains):
    c = course(domains, **changes)
    c.normalisers = [c.normalisers[0]] * 2  # so that nothing but the statistics differs
    for kind, differs in apart.items():
        source, target = (c.embed(kind, domains[1].test_images, side) for side in (False, True))
        assert torch.allclose(source, target, atol=1e-5) is not differs
        batch = torch.cat([c.normalisers[0](d.images) for d in domains])
        net = c.model.nets[kind].eval()
        layer = c.averaged[kind].layers[1]
        expected = net.layers[0](batch[40:] if differs else batch)
        torch.testing.assert_close(layer.collected[0], expected.mean((0, 2, 3)))
    trained = [c.embed("content", domains[1].test_images, side, True) for side in (False, True)]
    assert torch.allclose(*trained, atol=1e-5) is not ("statistics" in changes)


def test_noise():
    torch.manual_seed(0)
    x = torch.ones(20000)
    noisy = Noise(0.5, 1.0)(x)
    assert noisy.mean().item() == pytest.approx(1, abs=0.05)
    assert noisy.var().item() == pytest.approx(2, abs=0.1)
    assert torch.equal(Noise(0.5, 1.0).eval()(x), x)


# --- images --------------------------------------------------------------------------------------


def test_classes_of_cifar_and_stl_are_aligned():
    assert SHARED == (
        "airplane", "automobile", "bird", "cat", "deer", "dog", "horse", "ship", "truck",
    )  # fmt: skip
    labels = np.arange(10)
    images = np.arange(10, dtype=np.uint8).reshape(10, 1, 1, 1)
    for names, left_out in ((CIFAR10, "frog"), (STL10, "monkey")):
        kept, numbers = share_classes(images, labels, names)
        assert [names[i] for i in kept.flatten()] == [SHARED[k] for k in numbers]
        assert sorted(numbers) == list(range(9))
        assert names.index(left_out) not in kept
    assert CIFAR10.index("automobile") == 1
    assert STL10.index("automobile") == 2  # called car there


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


@pytest.mark.parametrize("name", TASKS)
def test_tasks(name, sets):
    task = TASKS[name]
    source, target = load_task(name)
    for each in (source, target):
        assert each.images.shape[1:3] == each.test_images.shape[1:3] == (task.side, task.side)
        assert each.labels.unique().tolist() == list(range(task.classes))
        assert len(each.test_images) == len(each.test_labels) > 0
    expected = {"svhn": 54, "usps": 96}.get(task.source, 60 if task.classes == 10 else 54)
    assert len(source.images) == expected
    few, _ = load_task(name, 20)
    assert len(few.images) <= 20
    config = replace(CONFIG, steps=2, points=1, batch_size=4)
    found = Course(config, Cell("recipe", name, "club_sample", 0), few, few).run()
    assert len(found["curve"]) == 2


def test_usps_is_pooled_and_divided_anew(sets):
    pooled, own = (load_task("usps-mnist", division=each)[0] for each in ("pooled", "own"))
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
    again, _ = load_task("usps-mnist")
    assert torch.equal(again.test_images, pooled.test_images)
    mnist = [load_task("usps-mnist", division=each)[1] for each in ("pooled", "own")]
    assert torch.equal(mnist[0].test_images, mnist[1].test_images)


@pytest.mark.skipif(not REAL, reason="MIBOUNDS_DATA names no folder of real data")
def test_the_test_part_of_usps_is_harder_than_its_training_part():
    errors = {}
    for division in ("pooled", "own"):
        usps, _ = load_task("usps-mnist", division=division)
        train, test = (v.flatten(1).float() for v in (usps.images, usps.test_images))
        nearest = torch.cdist(test, train).argmin(1)
        errors[division] = (usps.labels[nearest] != usps.test_labels).float().mean().item()
    assert len(usps.images) == 7291
    assert errors["own"] > 2 * errors["pooled"]


def test_a_target_needs_a_test_part(sets, monkeypatch):
    monkeypatch.setitem(TASKS, "mnist-svhn", Task("mnist", "svhn"))
    with pytest.raises(ValueError, match="Expected a test split of svhn"):
        load_task("mnist-svhn")


def test_other_presets_make_other_cells(monkeypatch):
    def settings(mode, **changes):
        config = ingredients.DomainAdaptationConfig(**changes)
        return config.settings_of(Cell(mode, "mnist-usps", "club", 0))

    before = {mode: settings(mode) for mode in ingredients.PRESETS}
    assert before["recipe"] == settings("recipe", seeds=7)
    other = replace(ingredients.PRESETS["recipe"], teacher=1.0)
    monkeypatch.setitem(ingredients.PRESETS, "recipe", other)
    assert settings("recipe") != before["recipe"]
    assert settings("correct") == before["correct"]
    assert settings("correct", steps=7) != before["correct"]
    assert settings("correct", steps=before["correct"]["steps"]) == before["correct"]
