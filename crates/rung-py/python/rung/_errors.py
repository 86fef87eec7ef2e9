"""Errors of the package."""


class RungError(Exception):
    """Anything that Rung refuses or fails at; the message is the program's."""


class InputError(RungError, ValueError):
    """What was given makes no sense, or cannot be read or written."""


for _error in (RungError, InputError):
    _error.__module__ = "rung"
