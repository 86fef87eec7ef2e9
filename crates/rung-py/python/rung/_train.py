"""Training runs and sweeps."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable

from ._call import Progress, progress_option, run_json
from ._errors import InputError
from ._network import Network, load

if TYPE_CHECKING:
    import pandas


def train(
    config: dict[str, Any] | str | os.PathLike[str] | None = None,
    *,
    stack: str | None = None,
    task: str | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    steps: int | None = None,
    batch: int | None = None,
    rate: float | None = None,
    threads: int | None = None,
    set: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Run:
    """Trains a stack on a task and records its accuracy.

    `config` is a dict, TOML text or a file; the other arguments override it. At Ctrl-C a checkpoint is written, and
    `train(resume=directory)` resumes from it. `progress` is a function that gets each progress line, or whether to show the line;
    by default it is shown in notebooks and terminals.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = train(stack="gdn full", task="funccomp{hops=1,m=4,queries=4}", steps=20, out=folder + "/first")
    ...     run.record["steps"], run.load().forward(run.load().task.sample(2).tokens).shape
    (20, (2, 12, 4))
    """
    text = None if config is None else _config_text(config)
    options = {"config": None if text is None else "-", "stack": stack, "task": task, "out": out, "resume": resume, "seed": seed}
    options |= {"steps": steps, "batch": batch, "rate": rate, "threads": threads, "set": set}
    try:
        result = run_json("train", options=options, input=text, name="config", progress=progress_option(progress))
    except KeyboardInterrupt:
        directory = resume or out or "runs/ID"
        raise KeyboardInterrupt(f"a checkpoint was written; rung.train(resume={str(directory)!r}) resumes it") from None
    return Run(result["directory"])


def sweep(
    config: dict[str, Any] | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] = "runs",
    threads: int | None = None,
    shard: str | None = None,
    on: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Records:
    """Trains every run of a grid. Finished runs are skipped and interrupted ones resumed, so the same call resumes after Ctrl-C.

    `config` is a dict, TOML text or a file with `seeds`, `base`, `grid` and `runs`. With `on="slurm"` the sweep is submitted as a
    job array; `options` are those of `rung sweep`.

    >>> import tempfile
    >>> grid = {"base": {"task": "funccomp{hops=1,m=4,queries=4}", "train": {"steps": 10}}, "grid": {"stack": ["full", "gdn full"]}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     records = sweep(grid, out=folder)
    ...     sorted(record["config"]["stack"] for record in records)
    ['full', 'gdn full']
    """
    options = {"out": out, "threads": threads, "shard": shard, "on": on, **options}
    try:
        result = run_json("sweep", "-", options=options, input=_config_text(config), name="sweep", progress=progress_option(progress))
    except KeyboardInterrupt:
        raise KeyboardInterrupt("checkpoints were written; the same call resumes them") from None
    if result.get("failed"):
        raise InputError("; ".join(f"run {failure['run']} failed: {failure['reason']}" for failure in result["failed"][:20]))
    ids = {record["id"] for record in result.get("records", ())}
    return Records(record for record in runs(out) if record["id"] in ids)


def runs(directory: str | os.PathLike[str] = "runs", *, where: Iterable[str] = ()) -> Records:
    """The records below a directory; `where` selects those whose key has a value, such as `["facts.rungs=1"]`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs(folder)
    []
    """
    return Records(run_json("runs", directory, *(f"--where={condition}" for condition in where)))


class Records(list):
    """Records of runs, as dicts."""

    def to_pandas(self) -> pandas.DataFrame:
        """One row for each run and metric group (number of hops)."""
        import pandas

        def row(record: dict[str, Any], group: str, accuracy: dict[str, Any]) -> dict[str, Any]:
            config, facts = record["config"], record["facts"]
            columns = {"id": record["id"], "stack": config["stack"], "task": config["task"], "seed": config["seed"]}
            columns |= {"rate": config["train"]["rate"], "steps": record["steps"], "over": record["over"], "loss": record["loss"]}
            return columns | {"rungs": facts["rungs"], "weights": facts["weights"], "hops": int(group), **accuracy}

        return pandas.DataFrame([row(record, *group) for record in self for group in record["accuracy"].items()])


class Run:
    """A finished run: its directory and its record."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self.record: dict[str, Any] = json.loads((self.directory / "record.json").read_text(encoding="utf-8"))

    @property
    def accuracy(self) -> dict[int, float]:
        """The final accuracy for each number of hops."""
        return {int(group): accuracy["mean"] for group, accuracy in self.record["accuracy"].items()}

    def load(self) -> Network:
        """The trained network."""
        return load(self.directory)

    def to_pandas(self) -> pandas.DataFrame:
        """The learning curve: one row for each evaluation and metric group (number of hops)."""
        import pandas

        evaluations = self.record["looks"]
        rows = [
            {"step": evaluation["step"], "stage": evaluation["stage"], "loss": evaluation["loss"], "hops": int(group), **accuracy}
            for evaluation in evaluations
            for group, accuracy in evaluation["accuracy"].items()
        ]
        return pandas.DataFrame(rows)

    def __repr__(self) -> str:
        accuracies = ", ".join(f"{hops} {'hop' if hops == 1 else 'hops'} {accuracy:.1%}" for hops, accuracy in self.accuracy.items())
        return f"<rung.Run {self.record['id']}: {accuracies}>"


def _config_text(config: dict[str, Any] | str | os.PathLike[str]) -> str:
    """A config as TOML text."""
    if isinstance(config, dict):
        return "".join(f"{json.dumps(key)} = {_toml(value, key)}\n" for key, value in config.items())
    if isinstance(config, str) and ("\n" in config or "=" in config):
        return config
    try:
        return Path(config).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{os.fspath(config)}: {error}") from error


def _toml(value: Any, name: str) -> str:
    """A value as TOML.

    >>> _toml({"a": [1, 2.5, True], "b.c": "x"}, "")
    '{"a" = [1, 2.5, true], "b.c" = "x"}'
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(inner, key)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(inner, name) for inner in value) + "]"
    if isinstance(value, str) or isinstance(value, bool):
        return json.dumps(value)
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    raise InputError(f"`{name}`: found {type(value).__name__}, expected a number, text, list or dict")
