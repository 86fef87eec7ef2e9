"""Errors of the package."""


class RungError(Exception):
    """Base class of Rung's errors; raised itself for bugs in Rung."""


class InputError(RungError, ValueError):
    """An argument is invalid, or a file cannot be read or written."""


for _error in (RungError, InputError):
    _error.__module__ = "rung"
