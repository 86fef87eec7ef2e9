"""The native half of `rung`: see the other modules for what it is used for."""

import os
from typing import Any, Callable

__version__: str

_Arrays = tuple[Array, Array, Array, Array]

class Array:
    __array_interface__: dict[str, Any]

def call(
    arguments: list[str],
    input: tuple[str, bytes] | None = None,
    program: str | None = None,
    progress: Callable[[str], Any] | None = None,
) -> str: ...
def program(arguments: list[str]) -> int: ...

class Task:
    spec: str
    length: int
    classes: int
    baseline: float
    fields: list[tuple[str, int, bool]]
    instances: int | None
    def __new__(cls, spec: str) -> Task: ...
    def sample(self, count: int, seed: int, stream: int) -> _Arrays: ...
    def instance(self, index: int) -> _Arrays: ...
    def answer(self, tokens: bytes) -> Array: ...
    def draw(self, seed: int) -> str: ...

class Network:
    name: str
    source: str
    stack: str
    task: str | None
    classes: int
    fields: list[tuple[str, int]]
    def __new__(cls, path: str | os.PathLike[str]) -> Network: ...
    def forward(self, tokens: bytes, batch: int) -> Array: ...
    def weights(self) -> list[tuple[str, Array]]: ...
    def set_weights(self, weights: list[tuple[str, list[int], bytes]]) -> None: ...
    def save(self, folder: str | os.PathLike[str]) -> None: ...
    def save_weights(self, path: str | os.PathLike[str]) -> None: ...
    def load_weights(self, path: str | os.PathLike[str]) -> None: ...
