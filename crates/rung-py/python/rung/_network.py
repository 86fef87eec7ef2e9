"""Networks: forward passes, weights, constructions and analyses."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping

from . import _native
from ._bound import Figure, size_options
from ._call import Progress, progress_option, run_json
from ._errors import InputError
from ._task import Task

if TYPE_CHECKING:
    import numpy as np

    from ._audit import Audit


def load(path: str | os.PathLike[str]) -> Network:
    """Opens a network: the folder of a run or of a construction, a Hugging Face folder, or a GGUF file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     construct("U1", hops=2, m=3, n=[2]).save(folder)
    ...     load(folder).name
    'U1'
    """
    return Network(_native.Network(path), path=Path(path))


def construct(
    name: str,
    *,
    hops: int | None = None,
    m: int | None = None,
    n: list[int] | tuple[int, ...] | None = None,
    mixer: str | None = None,
    length: int | None = None,
    modulus: int | None = None,
    entries: int | None = None,
    at: int | None = None,
    candidates: int | None = None,
    stack: str | None = None,
    norm: str | None = None,
    heads: int | None = None,
    head_dim: int | None = None,
    kv_heads: int | None = None,
    width: int | None = None,
    bits: int | None = None,
    message: str | None = None,
) -> Network:
    """Hand-built weights that solve a task: U1, U2, .. (`rung.run("construct", "list")` lists them).

    >>> network = construct("U2", hops=2, m=3, n=[2], mixer="gdn")
    >>> prompt = network.task.sample(1, seed=3)
    >>> logits = network.forward(prompt.tokens)
    >>> bool(logits[prompt.mask].argmax(-1) == prompt.targets[prompt.mask])
    True
    """
    options = {"hops": hops, "m": m, "n": n, "mixer": mixer, "length": length, "modulus": modulus, "entries": entries}
    options |= {"at": at, "candidates": candidates, "stack": stack, "norm": norm}
    options |= size_options(heads, head_dim, kv_heads, width, bits, message)
    import tempfile

    folder = tempfile.TemporaryDirectory(prefix="rung-")
    run_json("construct", name, options={**options, "out": folder.name})
    return Network(_native.Network(folder.name), path=Path(folder.name), temporary=folder)


class Network:
    """An opened network."""

    def __init__(self, network: _native.Network, path: Path, temporary: Any = None) -> None:
        # `temporary` is the temporary folder at `path`, if it is one: it is deleted with the network.
        self._network, self._path, self._temporary = network, path, temporary
        self.name: str = network.name
        self.source: str = network.source
        self.stack: str = network.stack
        self.task: Task | None = None if network.task is None else Task(network.task)
        self.classes: int = network.classes
        self.fields: dict[str, int] = dict(network.fields)

    def forward(self, ids: Any) -> np.ndarray:
        """Logits after every token, float32: [.., length, classes].

        `ids` is one sequence or a batch of them: [length] or [batch, length], with another axis of ids where tokens have
        several fields. The tokens of a `Batch` have this shape.
        """
        import numpy

        array = numpy.asarray(ids)
        sequence_ndim = 1 if len(self.fields) == 1 else 2
        if array.ndim not in (sequence_ndim, sequence_ndim + 1) or array.dtype.kind not in "iu" or (array.size and array.min() < 0):
            raise InputError(f"ids: found {array.dtype} of shape {array.shape}, expected ids of one sequence or of a batch")
        if sequence_ndim == 2 and array.shape[-1] != len(self.fields):
            raise InputError(f"ids: found {array.shape[-1]} ids in a token, expected {len(self.fields)}: {', '.join(self.fields)}")
        batch = 1 if array.ndim == sequence_ndim else array.shape[0]
        logits = numpy.asarray(self._network.forward(array.astype(numpy.uint32).tobytes(), batch))
        return logits[0] if array.ndim == sequence_ndim else logits

    def weights(self) -> dict[str, np.ndarray]:
        """Every weight as float32, by the name that safetensors files use."""
        import numpy

        return {name: numpy.asarray(array) for name, array in self._network.weights()}

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Replaces the named weights. If a name or shape is wrong, nothing is changed."""
        import numpy

        arrays = {name: numpy.asarray(values, dtype=numpy.float32) for name, values in weights.items()}
        self._network.set_weights([(name, list(array.shape), array.tobytes()) for name, array in arrays.items()])
        self._save_to_temporary_folder()

    def load_weights(self, path: str | os.PathLike[str]) -> None:
        """Replaces all weights by those of a safetensors file."""
        self._network.load_weights(path)
        self._save_to_temporary_folder()

    def save_weights(self, path: str | os.PathLike[str]) -> None:
        """Writes the weights as safetensors."""
        self._network.save_weights(path)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes a folder of the same format as the one it was opened from: a run's or a construction's."""
        self._network.save(folder)

    def _save_to_temporary_folder(self) -> None:
        # The commands below read a folder: from now on a temporary one with the changed weights.
        if self.source != "checkpoint":
            import tempfile

            temporary = tempfile.TemporaryDirectory(prefix="rung-")
            self._network.save(temporary.name)
            self._path, self._temporary = Path(temporary.name), temporary

    def verify(
        self,
        samples: int | None = None,
        *,
        exhaustive: bool = False,
        seed: int = 0,
        bits: int | None = None,
        find_bits: bool = False,
        threads: int | None = None,
    ) -> dict[str, Any]:
        """Compares a construction's answers with the oracle of its task.

        >>> result = construct("U1", hops=2, m=3, n=[2]).verify(200)
        >>> result["correct"] == result["instances"] == 200
        True
        """
        options = {"samples": samples, "exhaustive": exhaustive, "seed": seed, "bits": bits, "find_bits": find_bits}
        return run_json("verify", self._path, options={**options, "threads": threads})

    def trace(
        self,
        instance: int | list[int] | None = None,
        *,
        seed: int | None = None,
        position: int | None = None,
        min_weight: float | None = None,
        max_tokens: int | None = None,
    ) -> Report:
        """One forward pass: which token reads from which, and the register values after each layer. Notebooks show the figure.

        >>> report = construct("U2", hops=2, m=3, n=[2], mixer="gdn").trace(seed=1)
        >>> report["answer"] == report["expected"]
        True
        """
        options = {"instance": instance, "seed": seed, "position": position, "min_weight": min_weight, "max_tokens": max_tokens}
        return Report.from_command("trace", self._path, options=options)

    def analyze(self, analysis: str, *, task: str | None = None, prompts: int | None = None, seed: int | None = None) -> Report:
        """Runs an analysis by its name: probe, ablate, lens and others; `rung.run("explain")` lists them. Notebooks show the chart.

        >>> construct("U1", hops=2, m=3, n=[2]).analyze("probe", prompts=100)["name"]
        'U1'
        """
        return Report.from_command("analyze", analysis, self._path, options={"task": task, "prompts": prompts, "seed": seed})

    def audit(self, **options: Any) -> Audit:
        """The audit of a checkpoint's config."""
        from ._audit import audit

        if self.source != "checkpoint":
            raise InputError(f"a {self.source} has no config.json; rung.capacity(network.stack) counts its rungs")
        return audit(self._path, **options)

    def __repr__(self) -> str:
        return f"<rung.Network {self.name!r} ({self.source})>"


class Report(dict):
    """The program's `--json` as a dict, with a figure that notebooks show."""

    svg: str | None = None

    @classmethod
    def from_command(cls, *arguments: Any, options: dict[str, Any], **keywords: Any) -> Report:
        """Runs a command that also writes a figure."""
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            figure = Path(folder, "figure.svg")
            report = cls(run_json(*arguments, options={**options, "svg": figure}, **keywords))
            if figure.exists():
                report.svg = figure.read_text(encoding="utf-8")
        return report

    @property
    def figure(self) -> Figure | None:
        """The figure; None if the command drew none."""
        return None if self.svg is None else Figure(self.svg)

    def _repr_svg_(self) -> str | None:
        return self.svg

    def to_dict(self) -> dict[str, Any]:
        """A copy as an ordinary dict."""
        return json.loads(json.dumps(self))


def ask(
    target: str | os.PathLike[str],
    *,
    hops: Any = None,
    entries: Any = None,
    count: int | None = None,
    seed: int | None = None,
    style: str | None = None,
    shots: int | None = None,
    filler: int | None = None,
    query_first: bool = False,
    easy_order: bool = False,
    chain_of_thought: bool = False,
    threshold: float | None = None,
    layers: str | os.PathLike[str] | None = None,
    model: str | None = None,
    protocol: str | None = None,
    concurrency: int | None = None,
    rate: float | None = None,
    retries: int | None = None,
    timeout: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Measures how many hops a language model can compose in one forward pass; notebooks show the chart.

    `target` is the address of a server, or a checkpoint to run in this process. `hops` and `entries` may be lists or, for hops, a range.
    With `out` the answers are saved, and the same call resumes an interrupted run. At Ctrl-C pending requests are completed and
    the answers are saved in any case: the error says where.

    >>> ask("http://127.0.0.1:1", timeout=1, retries=0)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    rung.InputError: nobody listens there
    """
    options = {"hops": hops, "entries": entries, "count": count, "seed": seed, "style": style, "shots": shots, "filler": filler}
    options |= {"query_first": query_first, "easy_order": easy_order, "chain_of_thought": chain_of_thought}
    options |= {"threshold": threshold, "layers": layers, "model": model, "protocol": protocol, "concurrency": concurrency}
    options |= {"rate": rate, "retries": retries, "timeout": timeout}
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="rung-ask-") if out is None else None
    record = out if folder is None else os.path.join(folder, "ask.jsonl")
    try:
        report = Report.from_command("ask", target, options={**options, "out": record}, progress=progress_option(progress))
    except KeyboardInterrupt:
        # Without answers no record was written.
        if not os.path.exists(record):
            raise
        folder = None
        raise KeyboardInterrupt(f"the answers so far were written; the same call with out={os.fspath(record)!r} resumes") from None
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    return report
