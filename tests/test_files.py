"""Files that are written: whole or not at all, and never over what is no plain file."""

import errno
import os
import stat
from pathlib import Path

import pytest

from mibounds.files import check_folder, check_target, replacing


def test_a_link_is_kept_and_its_target_written(tmp_path):
    (tmp_path / "target.json").write_text("old")
    (tmp_path / "link.json").symlink_to("target.json")
    with replacing(tmp_path / "link.json") as temporary:
        assert temporary.suffix == ".json"
        temporary.write_text("new")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "target.json").read_text() == "new"


def test_a_link_to_a_file_that_is_not_there_yet(tmp_path):
    (tmp_path / "link.json").symlink_to("target.json")
    with replacing(tmp_path / "link.json") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "target.json").read_text() == "new"


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755])
def test_permissions_of_a_file_are_kept(tmp_path, mode):
    path = tmp_path / "out.json"
    path.write_text("old")
    path.chmod(mode)
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_has_the_usual_permissions(tmp_path):
    with replacing(tmp_path / "out.json") as temporary:
        temporary.write_text("new")
    (tmp_path / "other").touch()
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives away")
def test_the_owner_of_a_file_is_kept(tmp_path):
    path = tmp_path / "out.json"
    path.write_text("old")
    os.chown(path, 1234, 2345)
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)


def test_a_file_that_may_not_be_given_away_is_written(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.chown", refuse)
    (tmp_path / "out.json").write_text("old")
    with replacing(tmp_path / "out.json") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "out.json").read_text() == "new"


def deny(monkeypatch, name):
    """Refuse to write to what has this name; the superuser may write anywhere."""
    monkeypatch.setattr("os.access", lambda path, _: Path(path).name != name)


def test_what_is_read_only_is_not_replaced(tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    path.write_text("old")
    deny(monkeypatch, path.name)
    with (
        pytest.raises(ValueError, match=r"to write --out to but .* is read-only; name another f"),
        replacing(check_target(path, "--out")),
    ):
        pass
    assert path.read_text() == "old"
    deny(monkeypatch, tmp_path.name)
    with pytest.raises(ValueError, match=r"to write --out to but .* is read-only; name one that"):
        check_target(path, "--out")
    with pytest.raises(ValueError, match=r"to write --out to but .* is read-only; name one that"):
        check_folder(tmp_path / "new" / "folder", "--out")


def test_paths_that_cannot_be_reached(tmp_path, monkeypatch):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    for path, reason in (
        (tmp_path / "loop", os.strerror(errno.ELOOP)),
        (tmp_path / "loop" / "out.json", os.strerror(errno.ELOOP)),
        (tmp_path / "file" / "out.json", os.strerror(errno.ENOTDIR)),
        (tmp_path / ("a" * 300), os.strerror(errno.ENAMETOOLONG)),
        (tmp_path / "a\0b", "null"),
    ):
        for check in (check_target, check_folder):
            with pytest.raises(ValueError, match=rf"for --out but .* be reached: .*{reason}.*; na"):
                check(path, "--out")
    with pytest.raises(ValueError, match=r"for --out but .*file' is a file; name a folder"):
        check_folder(tmp_path / "file", "--out")

    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("os.stat", refuse)
    with pytest.raises(ValueError, match=r"cannot be reached: Permission denied; name another"):
        check_target(tmp_path / "out.json")


def test_a_folder_that_is_not_there_yet(tmp_path):
    assert check_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert check_folder(tmp_path) == tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="no names of open files")
def test_what_is_printed_to_is_not_replaced(tmp_path, capfd):
    with (tmp_path / "log").open("a+") as log:
        own = tmp_path / "own"
        own.symlink_to("/dev/stdout")
        for path in ("/dev/stdout", "/dev/stderr", own, f"/dev/fd/{log.fileno()}", "/dev/null"):
            with pytest.raises(
                ValueError, match="a device, a pipe or where output is printed; name"
            ):
                check_target(path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="a device, a pipe or where output is printed; name"):
        check_target(tmp_path / "pipe")
