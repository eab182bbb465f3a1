"""Where the data sets are published: files, mirrors, checksums, licences.

A download is compared with a SHA-256, of the file or of all its contents, and comes by https where
a mirror has it. Checksums of files are published ones: those of TensorFlow Datasets for MNIST,
SVHN, CIFAR-10 and STL-10, torchvision's for USPS, and for BSDS500 the one that other projects
record. Checksums of contents allow files that were unpacked or packed again. They were computed
from the contents of MNIST, USPS, CIFAR-10's training part and STL-10's labels, and agree with the
published ones where there are any. Those of STL-10's images are torchvision's, that of CIFAR-10's
test part is another project's; these are MD5, for which nobody can make other contents either.
"""

from __future__ import annotations

from experiments.data.datasets import Content, Dataset, Form, RemoteFile
from experiments.data.parsers import (
    parse_cifar,
    parse_esl,
    parse_libsvm,
    parse_mat,
    parse_mnist,
    parse_stl,
)

__all__ = ["BSDS500", "DATASETS", "KNOWN"]

_MNIST = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_LIBSVM = ("https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/",)
_ESL = (
    "https://hastie.su.domains/ElemStatLearn/datasets/",
    "https://web.stanford.edu/~hastie/ElemStatLearn/datasets/",
)
_SVHN = ("https://ufldl.stanford.edu/housenumbers/", "http://ufldl.stanford.edu/housenumbers/")
_CIFAR = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
_STL = (
    "https://cs.stanford.edu/~acoates/stl10/",
    "https://ai.stanford.edu/~acoates/stl10/",
    "http://ai.stanford.edu/~acoates/stl10/",
)
_BSDS = (
    "https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/BSR/",
    "http://www.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/BSR/",
)


def _file(
    homes: tuple[str, ...], name: str, hash: str, size: int, *contents: Content
) -> RemoteFile:
    return RemoteFile(name, tuple(home + name for home in homes), hash, size, contents)


DATASETS: dict[str, Dataset] = {
    "mnist": Dataset(
        title="MNIST",
        sizes=(60000, 10000),
        shapes=((28, 28),),
        licence="CC BY-SA 3.0",
        citation="LeCun et al. 1998",
        download="12 MB",
        forms=(
            Form(
                title="IDX",
                files=(
                    _file(
                        _MNIST,
                        "train-images-idx3-ubyte.gz",
                        "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                        9912422,
                        Content(
                            "train-images-idx3-ubyte",
                            "sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                        ),
                    ),
                    _file(
                        _MNIST,
                        "train-labels-idx1-ubyte.gz",
                        "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                        28881,
                        Content(
                            "train-labels-idx1-ubyte",
                            "sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                        ),
                    ),
                    _file(
                        _MNIST,
                        "t10k-images-idx3-ubyte.gz",
                        "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                        1648877,
                        Content(
                            "t10k-images-idx3-ubyte",
                            "sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                        ),
                    ),
                    _file(
                        _MNIST,
                        "t10k-labels-idx1-ubyte.gz",
                        "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                        4542,
                        Content(
                            "t10k-labels-idx1-ubyte",
                            "sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
                        ),
                    ),
                ),
                splits={
                    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
                    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
                },
                parse=parse_mnist,
            ),
        ),
    ),
    "usps": Dataset(
        title="USPS",
        sizes=(7291, 2007),
        shapes=((16, 16),),
        licence="none stated",
        citation="Hull 1994",
        download="2 MB",
        forms=(
            Form(
                title="ESL form",
                files=(
                    _file(
                        _ESL,
                        "zip.train.gz",
                        "",
                        0,
                        Content(
                            "zip.train",
                            "sha256:abc9f5c75b997cabe66b5d01727d5a681c69298e1641a8d37b55433a52129dc0",
                        ),
                    ),
                    _file(
                        _ESL,
                        "zip.test.gz",
                        "",
                        0,
                        Content(
                            "zip.test",
                            "sha256:6bde17b4f1cd68e0630cd2751d6495b5795d9165ab2dc4a0be8b7002b732f4cc",
                        ),
                    ),
                ),
                splits={"train": ("zip.train",), "test": ("zip.test",)},
                parse=parse_esl,
            ),
            Form(
                title="LIBSVM form, which is smoothed",
                files=(
                    _file(
                        _LIBSVM,
                        "usps.bz2",
                        "sha256:3771e9dd6ba685185f89867b6e249233dd74652389f263963b3b741e994b034f",
                        0,
                        Content("usps"),
                    ),
                    _file(
                        _LIBSVM,
                        "usps.t.bz2",
                        "sha256:a9c0164e797d60142a50604917f0baa604f326e9a689698763793fa5d12ffc4e",
                        1831726,
                        Content(
                            "usps.t",
                            "sha256:3839faa29aa5f6bfa0516cdd599fae8ad59b7a3777d09f7ca971d9f1cd8b6c6b",
                        ),
                    ),
                ),
                splits={"train": ("usps",), "test": ("usps.t",)},
                parse=parse_libsvm,
            ),
        ),
    ),
    "mnist-m": Dataset(
        title="MNIST-M",
        sizes=(60000, 10000),
        shapes=((28, 28, 3),),
        licence="non-commercial research and teaching",
        citation="Ganin et al. 2016, Arbelaez et al. 2011",
        download="71 MB and MNIST",
    ),
    "svhn": Dataset(
        title="SVHN, cropped digits",
        sizes=(73257, 26032),
        shapes=((32, 32, 3),),
        licence="non-commercial use only",
        citation="Netzer et al. 2011",
        download="246 MB",
        forms=(
            Form(
                title="MAT",
                files=(
                    _file(
                        _SVHN,
                        "train_32x32.mat",
                        "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
                        182040794,
                        Content("train_32x32.mat"),
                    ),
                    _file(
                        _SVHN,
                        "test_32x32.mat",
                        "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
                        64275384,
                        Content("test_32x32.mat"),
                    ),
                ),
                splits={"train": ("train_32x32.mat",), "test": ("test_32x32.mat",)},
                parse=parse_mat,
            ),
        ),
    ),
    "cifar10": Dataset(
        title="CIFAR-10",
        sizes=(50000, 10000),
        shapes=((32, 32, 3),),
        licence="none stated",
        citation="Krizhevsky 2009",
        download="170 MB",
        forms=(
            Form(
                title="binary",
                files=(
                    _file(
                        _CIFAR,
                        "cifar-10-binary.tar.gz",
                        "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                        170052171,
                        Content(
                            "cifar-10-batches-bin/data_batch_1.bin",
                            "md5:5dd7e06a14cb22eb9f671a540d1b7c25",
                        ),
                        Content(
                            "cifar-10-batches-bin/data_batch_2.bin",
                            "md5:5ea93a67294ea407fff1d09f752e9692",
                        ),
                        Content(
                            "cifar-10-batches-bin/data_batch_3.bin",
                            "md5:942cd6a4bcdd0dd3c604fbe906cb4421",
                        ),
                        Content(
                            "cifar-10-batches-bin/data_batch_4.bin",
                            "md5:ae636b3ba5c66a11e91e8cb52e771fcb",
                        ),
                        Content(
                            "cifar-10-batches-bin/data_batch_5.bin",
                            "md5:53f37980c15c3d472c316c40844f3f0d",
                        ),
                        Content(
                            "cifar-10-batches-bin/test_batch.bin",
                            "md5:803d5f7f4d78ea53de84dbe85f74fb6d",
                        ),
                    ),
                ),
                splits={
                    "train": tuple(f"cifar-10-batches-bin/data_batch_{k}.bin" for k in range(1, 6)),
                    "test": ("cifar-10-batches-bin/test_batch.bin",),
                },
                parse=parse_cifar,
            ),
        ),
    ),
    "stl10": Dataset(
        title="STL-10, labelled part",
        sizes=(5000, 8000),
        shapes=((96, 96, 3), (32, 32, 3)),
        licence="none stated",
        citation="Coates et al. 2011",
        download="2.6 GB",
        forms=(
            Form(
                title="binary",
                files=(
                    _file(
                        _STL,
                        "stl10_binary.tar.gz",
                        "sha256:f31fd99273a1acb8609c8db427cebb1de3f71de77758cdc0e22956e1289b9866",
                        2640397119,
                        Content("stl10_binary/train_X.bin", "md5:918c2871b30a85fa023e0c44e0bee87f"),
                        Content("stl10_binary/train_y.bin", "md5:5a34089d4802c674881badbb80307741"),
                        Content("stl10_binary/test_X.bin", "md5:7f263ba9f9e0b06b93213547f721ac82"),
                        Content("stl10_binary/test_y.bin", "md5:36f9794fa4beb8a2c72628de14fa638e"),
                    ),
                ),
                splits={
                    "train": ("stl10_binary/train_X.bin", "stl10_binary/train_y.bin"),
                    "test": ("stl10_binary/test_X.bin", "stl10_binary/test_y.bin"),
                },
                parse=parse_stl,
            ),
        ),
    ),
}

BSDS500 = _file(
    _BSDS,
    "BSR_bsds500.tgz",
    "sha256:97e49d31764f3912f0c4122707d53062ac9e783ba0f095e447a4d53c1a41af8e",
    70763455,
)

# Plain arrays whose content is known, by `Images.digest`.
_CANONICAL = "the content of the canonical files"
_MEANS = "the canonical images reduced to 32 x 32 by the means of 3 x 3 blocks"
KNOWN: dict[str, str] = {
    "c41b322ede5b4fc991fbf5440b21cefc76cb0418e0ebf66b8f78109632b41509": _CANONICAL,  # MNIST
    "f5147f7baa1787ec4b3cd00068f8ec8a61d969373b74639b6aef5c981fc5a5b2": _CANONICAL,
    "5b0a1ea08ee1e888fae8bbb6c001fd802e9188c06379e14b4458a1e0580a28bb": f"{_CANONICAL} (ESL form)",
    "05405ba02362a118b2c45fa1b2eb9385dcb5fdeabba1c0233aca2cc32811ac8e": f"{_CANONICAL} (ESL form)",
    "dd979a32684e44469e54cf53737165e382793c5468a407ca0c46bb13269ecbf1": (
        "regenerated crops from the full-number images of SVHN, not those of train_32x32.mat"
    ),
    "3567dfbd32122a29233d507443ca1844e6bf727016d1b806dd05268db27f887e": _CANONICAL,  # CIFAR-10
    "f1df4ad3fb2c94a11d693de995db61f4050bf390079970c06c725499523bd620": (
        f"{_CANONICAL} but for 20 images, which are JPEG stand-ins"
    ),
    "397f6408ea94d1c3dbbd6ebc67d853efcfd69cd8a001fc96975993dc8f6db960": _MEANS,
    "ced7da1d35c5e48ddce53651128e048b50f571c661febbffd15d95d1f3b2ef21": _MEANS,
}
