"""Every canonical format: where pixels go, and what is wrong with bytes."""

import io

import numpy as np
import pytest
import scipy.io
from tiny_sets import idx

from experiments.data import folders, parsers


def test_pixels_stand_where_they_should():
    record = bytes([3, 9, *bytes(1023), *bytes(1024), 0, 8, *bytes(1022)])
    images, labels = parsers.parse_cifar(record)
    assert images[0, 0, 0].tolist() == [9, 0, 0]  # red, first row, first column
    assert images[0, 0, 1].tolist() == [0, 0, 8]  # blue, first row, second column
    assert labels.tolist() == [3]
    images, _ = parsers.parse_stl(bytes([1, 2, *bytes(27646)]), bytes([1]))
    assert images[0, :2, 0, 0].tolist() == [1, 2]  # second value: second row, first column
    images, _ = parsers.parse_esl(b"5 -1 1" + b" 0" * 254)
    assert images[0, 0, :3].tolist() == [0, 255, 128]


@pytest.mark.parametrize(
    ("parser", "contents", "message"),
    [
        (parsers.parse_idx, (b"",), "Expected an IDX header"),
        (parsers.parse_idx, (b"\0\0\x0d\1" + bytes(8),), "Expected an IDX header"),
        (parsers.parse_idx, (b"\0\0\x08\3" + bytes(5),), "Expected an IDX header"),
        (parsers.parse_idx, (b"\0\0\x08\1\xff\xff\xff\xff\0",), "Expected 4294967295 values"),
        (
            parsers.parse_mnist,
            (idx(np.zeros((2, 4, 4), np.uint8)), idx(np.zeros(3, np.uint8))),
            "Expected a label for each of 2 images",
        ),
        (
            parsers.parse_mnist,
            (idx(np.zeros(2, np.uint8)), idx(np.zeros(2, np.uint8))),
            "Expected images as bytes in 3 dimensions",
        ),
        (
            parsers.parse_mnist,
            (idx(np.zeros((1, 4, 4), np.uint8)), idx(np.full(1, 11, np.uint8))),
            "Expected labels from 0 to 9 but got 11 to 11",
        ),
        (parsers.parse_cifar, (bytes(3072),), "Expected whole records of 3073 bytes"),
        (parsers.parse_cifar, (b"",), "Expected whole records of 3073 bytes"),
        (parsers.parse_stl, (bytes(100), b"\1"), "Expected whole images of 27648 bytes"),
        (parsers.parse_stl, (bytes(27648), b"\0"), "Expected labels from 0 to 9 but got -1"),
        (parsers.parse_libsvm, (b"6 1:0 2:x",), "Expected numbers in line 1"),
        (parsers.parse_libsvm, (b"6 1:0\n6 1 0",), "Expected a label and place:value in line 2"),
        (parsers.parse_libsvm, (b"6 1:0 2:0 3",), "Expected a label and place:value in line 1"),
        (parsers.parse_libsvm, (b"6 257:0",), "Expected places from 1 to 256 in line 1"),
        (parsers.parse_libsvm, (b"6 1:1.5",), "Expected values from -1 to 1"),
        (parsers.parse_libsvm, (b"6.5 1:1",), "Expected labels from 0 to 9"),
        (parsers.parse_libsvm, (b"",), "Expected images as bytes in 3 dimensions"),
        (parsers.parse_esl, (b"6 " + b"0 " * 255,), "Expected 257 numbers in line 1 but got 256"),
        (parsers.parse_esl, (b"six",), "Expected lines of numbers"),
        (parsers.parse_esl, (b"6 " + b"nan " * 256,), "Expected values from -1 to 1"),
        (parsers.parse_mat, (b"",), "Expected a MAT file of version 5"),
        (parsers.parse_mat, (bytes(200),), "Expected a MAT file of version 5"),
    ],
)
def test_what_is_wrong_with_bytes(parser, contents, message):
    with pytest.raises(ValueError, match=message):
        parser(*contents)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"X": np.zeros((32, 32, 3, 1), np.uint8)}, "Expected variables X and y"),
        ({"X": np.zeros((3, 3)), "y": np.ones((3, 1))}, "Expected X of shape"),
        ({"X": np.zeros((32, 32, 3, 1)), "y": np.ones((1, 1))}, "Expected images as bytes"),
        ({"X": np.zeros((32, 32, 3, 1), np.uint8), "y": "one"}, "Expected y of numbers"),
    ],
)
def test_what_is_wrong_with_a_mat_file(variables, message):
    file = io.BytesIO()
    scipy.io.savemat(file, variables)
    with pytest.raises(ValueError, match=message):
        parsers.parse_mat(file.getvalue())


def test_a_damaged_content_is_named(tiny, folder):
    made = tiny("cifar10")
    bad = {path: data[:-1] for path, data in made.contents.items()}
    with pytest.raises(ValueError, match=r"data_batch_1.bin, .*Expected whole records"):
        folders.parse(made.form, bad)
