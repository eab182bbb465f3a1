"""The command of the experiments, run in this process."""

import pytest

from experiments.__main__ import main


@pytest.fixture
def run(capfd):
    """Run ``python -m experiments``: what it prints to standard output and to standard error."""

    def run(*arguments, code=0):
        capfd.readouterr()
        found = main([*map(str, arguments)])
        shown = capfd.readouterr()
        assert found == code, shown.err
        return shown

    return run
