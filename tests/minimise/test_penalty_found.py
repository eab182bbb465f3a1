"""What running the examples found out about the penalty."""

import subprocess
import sys

SCRIPT = """
import torch, mibounds as mb
penalty = mb.MIPenalty(mb.CLUB(2, 3), watch_every=1)
penalty(torch.full((16, 2), torch.nan), torch.randn(16, 3))
"""


def test_a_warning_points_at_the_line_that_called_the_penalty(tmp_path):
    # In a process of its own: the tests' check of shapes puts calls of its own in between.
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert f"{script}:4: PenaltyWarning: not-finite" in result.stderr
