"""Archives: nothing is written, followed or unpacked without end."""

import io
import tarfile

import pytest
from tiny_sets import write

from experiments.data import archives, load


def test_nothing_of_an_archive_is_written_or_followed(tiny, folder, tmp_path):
    made = tiny("stl10")
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for path, data in made.contents.items():
            if path.endswith("train_y.bin"):
                member = tarfile.TarInfo(path)
                member.type, member.linkname = tarfile.SYMTYPE, "/etc/hostname"
                archive.addfile(member)
                continue
            member = tarfile.TarInfo(path)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        member = tarfile.TarInfo("../../evil")
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    write(folder, {"stl10_binary.tar.gz": file.getvalue()})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=r"Expected stl10_binary/train_y.bin in stl10_binary"):
        archives.unpack(made.form.files[0], folder / "stl10_binary.tar.gz")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["mnist", "stl10"])
def test_a_file_that_unpacks_to_too_much(name, tiny, folder, monkeypatch):
    made = tiny(name)
    write(folder, made.files)
    monkeypatch.setattr(archives, "_MOST", 1000)
    with pytest.raises(ValueError, match="unpacks to more than"):
        load(name, folder=folder)
