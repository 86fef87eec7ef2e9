"""Shared fixtures. The tests need the installed package, and the repository for stored configs and examples."""

import json
import signal
import subprocess
import sys
import sysconfig
import textwrap
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
DATA = REPOSITORY / "crates/rung-audit/tests/data"


@pytest.fixture(scope="session")
def program():
    """Runs the command `rung` of the wheel and returns its output."""
    path = Path(sysconfig.get_path("scripts"), "rung")

    def run(*arguments, input=None, code=0):
        result = subprocess.run([path, *map(str, arguments)], input=input, capture_output=True, text=True, timeout=300)
        assert code is None or result.returncode == code, (arguments, result.returncode, result.stderr)
        return result.stdout if code in (0, None) else result.stdout + result.stderr

    return run


@pytest.fixture
def interrupt(tmp_path):
    """Runs a script in `tmp_path`, sends Ctrl-C some time after its first line, and returns the lines it prints afterwards."""

    def run(script, after=1.0):
        command = [sys.executable, "-c", textwrap.dedent(script)]
        # If the tests run in the background of a shell, children ignore Ctrl-C unless the handler is reset.
        reset_handler = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, preexec_fn=reset_handler)
        assert child.stdout.readline()
        time.sleep(after)
        child.send_signal(signal.SIGINT)
        output, _ = child.communicate(timeout=120)
        assert child.returncode == 0
        return output.splitlines()

    return run


@pytest.fixture(scope="session")
def stored_configs():
    """The stored configs of transformers' decoder classes."""
    lines = (DATA / "transformers_caches.jsonl").read_text(encoding="utf-8").splitlines()
    return [line for line in map(json.loads, lines) if "config" in line]
