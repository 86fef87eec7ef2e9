"""Runs commands of the program `rung` in this process."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from typing import Any, Callable, Iterable

from . import _native

Progress = bool | Callable[[str], Any]


def run(*arguments: Any, input: str | bytes | None = None, name: str = "input", progress: Progress = False) -> str:
    """Runs a command of the program in this process and returns its output.

    For commands without a function of their own. `input` replaces standard input, and `name` is its name in error messages.

    >>> print(run("capacity", "full linear full").splitlines()[1].strip())
    rungs      exactly 2 hops in one forward pass, for large tables (proved both ways)
    """
    data = input.encode() if isinstance(input, str) else input
    program = os.path.join(sysconfig.get_path("scripts"), "rung")
    texts = [os.fspath(argument) if isinstance(argument, os.PathLike) else str(argument) for argument in arguments]
    callback = _ProgressLine() if progress is True else progress or None
    try:
        return _native.call(texts, None if data is None else (name, data), program, callback)
    finally:
        if isinstance(callback, _ProgressLine):
            callback.end()


def run_json(*arguments: Any, options: dict[str, Any] | None = None, **keywords: Any) -> Any:
    """Runs a command with `--json` and returns its answer."""
    return json.loads(run(*arguments, *flags(options or {}), "--json", **keywords))


def flags(options: dict[str, Any]) -> list[str]:
    """Keyword arguments as command-line options.

    >>> flags({"head_dim": 64, "n": [4, 4], "certify": True, "svg": None, "set": {"a": 1, "b": 2}})
    ['--head-dim=64', '--n=4,4', '--certify', '--set=a=1', '--set=b=2']
    """
    texts = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            texts.append(option)
        elif isinstance(value, dict):
            texts += [f"{option}={key}={_text(inner)}" for key, inner in value.items()]
        elif value is not None and value is not False:
            texts.append(f"{option}={_text(value)}")
    return texts


def _text(value: Any) -> str:
    if isinstance(value, range) and value.step == 1 and len(value):
        return f"{value.start}..{value.stop - 1}"
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def progress_option(progress: Progress | None) -> Progress:
    """The given progress option; by default a progress line in notebooks and terminals."""
    if progress is not None:
        return progress
    return "ipykernel" in sys.modules or sys.stderr.isatty()


class _ProgressLine:
    """A line on standard error that is overwritten with each progress text; notebooks show it too."""

    def __init__(self) -> None:
        self.width = 0

    def __call__(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self.width))
        sys.stderr.flush()
        self.width = len(text)

    def end(self) -> None:
        if self.width:
            sys.stderr.write("\n")
