"""The lock of a data set: who waits is told for whom."""

import os
import re
import socket
import subprocess
import sys
import threading
import time

import pytest
from tiny_sets import names_in

from experiments.data import Unavailable
from experiments.data.locks import holding


@pytest.mark.parametrize("known", [True, False])
def test_who_waits_is_told_for_whom(known, tmp_path):
    said, order, held, told = [], [], threading.Event(), threading.Event()

    def hold():
        with holding(tmp_path, "usps", said.append):
            held.set()
            told.wait(10)
            order.append("first")

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    holder = tmp_path / ".usps.holder.json"
    if not known:
        holder.write_text("[")

    def say(text):
        said.append(text)
        told.set()

    with holding(tmp_path, "usps", say):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]
    who = rf"process {os.getpid()} on {re.escape(socket.gethostname())} since \d{{4}}-\d\d-\d\d .*"
    who = who if known else "another process"
    (text,) = said
    assert re.fullmatch(rf"waiting for usps, which {who} is making; Ctrl-C ends the waiting", text)
    assert not holder.exists()


def test_a_lock_ends_with_its_process(tmp_path):
    code = (
        "import sys, time, pathlib; from experiments.data.locks import holding\n"
        "with holding(pathlib.Path(sys.argv[1]), 'usps', print):\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    process.kill()
    process.wait()
    process.stdout.close()
    start = time.monotonic()
    with holding(tmp_path, "usps", pytest.fail):
        assert time.monotonic() - start < 10
    assert names_in(tmp_path) == []


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(Unavailable, match=r"the cache .* cannot be written to: .*choose another"),
        holding(tmp_path / "file" / "cache", "usps", pytest.fail),
    ):
        pass
