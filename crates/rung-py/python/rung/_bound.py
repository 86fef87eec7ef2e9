"""Stacks: rungs, lower bounds with certificates, and the hop map."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ._call import run_json
from ._errors import InputError


class Figure:
    """An SVG figure that notebooks display."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the SVG."""
        Path(path).write_text(self.svg, encoding="utf-8")


class Answer:
    """An answer of the program, as its `--json` has it."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self._answer = answer

    @property
    def tokens(self) -> int | None:
        """The exact number of tokens from which on the hops are impossible."""
        tokens = self._answer.get("tokens")
        return None if tokens is None else int(tokens)

    def to_dict(self) -> dict[str, Any]:
        """The answer as the program's `--json` has it."""
        return json.loads(json.dumps(self._answer))


def size_options(heads: int | None, head_dim: int | None, kv_heads: int | None, width: int | None, bits: int | None, message: str | None) -> dict[str, Any]:
    """The size options that every command about a stack takes."""
    return {"heads": heads, "head_dim": head_dim, "kv_heads": kv_heads, "width": width, "bits": bits, "message": message}


def capacity(
    stack: str,
    *,
    heads: int | None = None,
    head_dim: int | None = None,
    kv_heads: int | None = None,
    width: int | None = None,
    bits: int | None = None,
    message: str | None = None,
) -> dict[str, Any]:
    """Counts the hops that a stack can do in one forward pass, for large tables.

    >>> capacity("(gdn*3 full)*12")["rungs"]
    12
    """
    return run_json("capacity", stack, options=size_options(heads, head_dim, kv_heads, width, bits, message))


def bound(
    stack: str,
    *,
    hops: int,
    heads: int | None = None,
    head_dim: int | None = None,
    kv_heads: int | None = None,
    width: int | None = None,
    bits: int | None = None,
    message: str | None = None,
    tokens_per: tuple[int, int, int] | None = None,
    table_order: str | None = None,
) -> Bound:
    """Finds a prompt length at which it is proved that no weights of this stack can compose `hops` hops.

    >>> result = bound("linear*3 full linear*3", hops=2, heads=16, head_dim=128, bits=16)
    >>> result.verdict, result.tokens
    ('impossible', 11872292578)
    >>> result.check().accepted
    True
    """
    options = {"hops": hops, **size_options(heads, head_dim, kv_heads, width, bits, message)}
    return Bound(run_json("bound", stack, options={**options, "tokens_per": tokens_per, "table_order": table_order}))


class Bound(Answer):
    """The answer to `bound`, with its certificate if there is one."""

    @property
    def verdict(self) -> str:
        """`impossible`, or the kind of reason why there is no certificate."""
        return self._answer["verdict"]

    @property
    def reason(self) -> str:
        """The verdict's reason."""
        return self._answer["reason"]

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The certificate that `rung check` verifies; None if there is none."""
        return self._answer["certificate"]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the certificate."""
        Path(path).write_text(json.dumps(self._certificate(), indent=2) + "\n", encoding="utf-8")

    def check(self) -> Check:
        """Verifies the certificate with the independent checker."""
        return check(self._certificate())

    def _certificate(self) -> dict[str, Any]:
        if self.certificate is None:
            raise InputError(f"there is no certificate ({self.verdict}: {self.reason})")
        return self.certificate

    def __bool__(self) -> bool:
        return self.certificate is not None

    def __repr__(self) -> str:
        tokens = "" if self.tokens is None else f" from {self.tokens:,} tokens"
        return f"<rung.Bound: {self._answer['hops']} hops {self.verdict}{tokens}>"


def check(certificate: str | os.PathLike[str] | dict[str, Any], *, explain: bool = False) -> Check:
    """Verifies a certificate, given as a path, a dict or JSON text, with exact arithmetic.

    >>> check({"theorem": "product"}).status
    'malformed'
    """
    options = {"explain": explain}
    if isinstance(certificate, dict):
        certificate = json.dumps(certificate)
    elif isinstance(certificate, os.PathLike) or not certificate.lstrip().startswith("{"):
        return Check(run_json("check", certificate, options=options))
    return Check(run_json("check", "-", options=options, input=certificate))


class Check(Answer):
    """The checker's verdict; true if it accepts the certificate."""

    @property
    def status(self) -> str:
        """`accepted`, `refused` or `malformed`."""
        return self._answer["status"]

    @property
    def accepted(self) -> bool:
        """Whether the certificate holds."""
        return self.status == "accepted"

    @property
    def reason(self) -> str | None:
        """Why the certificate is not accepted; None if it is."""
        return self._answer.get("reason")

    def __bool__(self) -> bool:
        return self.accepted

    def __repr__(self) -> str:
        return f"<rung.Check: {self.status}{': ' + self.reason if self.reason else ''}>"


def decide(
    stack: str,
    *,
    hops: int,
    m: int,
    n: list[int] | tuple[int, ...] = (),
    heads: int | None = None,
    head_dim: int | None = None,
    kv_heads: int | None = None,
    width: int | None = None,
    bits: int | None = None,
    message: str | None = None,
) -> dict[str, Any]:
    """Decides for tables of given sizes: solved, impossible or unknown, with the evidence.

    >>> decide("linear full", hops=2, m=106, n=[1], heads=1, head_dim=8, bits=4)["verdict"]
    'impossible'
    """
    options = {"hops": hops, "m": m, "n": list(n) or None, **size_options(heads, head_dim, kv_heads, width, bits, message)}
    return run_json("decide", stack, options=options)


def map(
    stack: str,
    *,
    hops: int = 4,
    heads: int | None = None,
    head_dim: int | None = None,
    kv_heads: int | None = None,
    width: int | None = None,
    bits: int | None = None,
    message: str | None = None,
) -> HopMap:
    """For each number of hops and each prompt length: where a stack is known to solve the task, where it cannot, and where it is unknown.

    >>> hop_map = map("linear full", hops=2)
    >>> [row["hops"] for row in hop_map.rows], hop_map.svg.startswith("<svg")
    ([1, 2], True)
    """
    options = {"hops": hops, **size_options(heads, head_dim, kv_heads, width, bits, message)}
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        figure = Path(folder, "map.svg")
        rows = run_json("map", stack, options={**options, "out": figure})
        return HopMap(rows, figure.read_text(encoding="utf-8"))


class HopMap(Figure):
    """The hop map: rows of numbers, and a figure that notebooks display."""

    def __init__(self, rows: list[dict[str, Any]], svg: str) -> None:
        super().__init__(svg)
        self.rows = rows

    def __repr__(self) -> str:
        return f"<rung.HopMap: {len(self.rows)} rows>"
