"""Tasks: prompts as arrays, as text, and as a dataset."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple

from . import _native
from ._call import flags, run
from ._errors import InputError

if TYPE_CHECKING:
    import numpy as np


class Batch(NamedTuple):
    """Prompts as arrays."""

    tokens: np.ndarray
    """int32, [prompts, length]; with another axis of ids where tokens have several fields."""
    targets: np.ndarray
    """int32, [prompts, length]: the class to predict after each token; -1 where there is no target."""
    mask: np.ndarray
    """bool, [prompts, length]: where there is a target."""
    hops: np.ndarray
    """uint16, [prompts, length]: the hops of each target (or another group, for other tasks); 0 where there is no target."""

    @property
    def labels(self) -> np.ndarray:
        """int64, [prompts, length]: the targets, with -100 where there is none, as PyTorch's losses and zoology expect."""
        import numpy

        return numpy.where(self.mask, self.targets, -100).astype(numpy.int64)


def task(spec: str) -> Task:
    """The task of a spec; `rung.run("task", "list")` lists them.

    >>> composition = task("funccomp{hops=2,m=8,n=[4]}")
    >>> composition.length, composition.classes, composition.baseline
    (42, 32, 0.03125)
    >>> batch = composition.sample(3, seed=7)
    >>> batch.tokens.shape, batch.targets.shape, int(batch.mask.sum())
    ((3, 42, 5), (3, 42), 3)
    >>> bool((composition.answer(batch.tokens[0]) == batch.targets[0]).all())
    True
    """
    return Task(spec)


class Task:
    """A task; `str()` gives its spec with all options."""

    def __init__(self, spec: str) -> None:
        self._task = _native.Task(spec)
        self.spec: str = self._task.spec
        self.length: int = self._task.length
        self.classes: int = self._task.classes
        self.baseline: float = self._task.baseline
        self.fields: dict[str, int] = {name: vocabulary for name, vocabulary, _ in self._task.fields}
        self.instances: int | None = self._task.instances

    def sample(self, n: int, seed: int = 0, *, like: Task | None = None) -> Batch:
        """Draws the prompts of `rung task sample`, as arrays that share the sampler's memory.

        With `like`, a task with larger tables, the ids are those of that task's vocabularies, as a curriculum needs.
        """
        batch = self._batch(self._task.sample(_check_range("n", n, 64), _check_range("seed", seed, 64), 0))
        for column, (blank_id, larger_blank_id) in enumerate(self._blank_ids(like)):
            ids = batch.tokens if len(self.fields) == 1 else batch.tokens[..., column]
            if blank_id != larger_blank_id:
                ids[ids == blank_id] = larger_blank_id
        return batch

    def _blank_ids(self, like: Task | None) -> list[tuple[int, int]]:
        """For each field its blank (the id for tokens that do not use the field) in this task and in a larger one; -1 if it has none."""
        if like is None:
            return []
        if list(self.fields) != list(like.fields) or any(self.fields[name] > like.fields[name] for name in self.fields):
            raise InputError(f"like: found {like.spec}, expected a task with the fields of {self.spec}, as large or larger")
        return [(vocabulary - 1, like.fields[name] - 1) if blank else (-1, -1) for name, vocabulary, blank in self._task.fields]

    def instance(self, index: int) -> Batch:
        """The instance of an index, if instances can be enumerated, as a batch of one prompt."""
        return self._batch(self._task.instance(_check_range("index", index, 128)))

    @staticmethod
    def _batch(arrays: tuple[Any, Any, Any, Any]) -> Batch:
        import numpy

        return Batch(*map(numpy.asarray, arrays))

    def answer(self, tokens: Any) -> np.ndarray:
        """The target of every token of one prompt, computed by brute force from the tokens alone; -1 where there is none."""
        import numpy

        ids = numpy.asarray(tokens)
        if ids.ndim != (1 if len(self.fields) == 1 else 2) or ids.dtype.kind not in "iu" or (ids.size and ids.min() < 0):
            raise InputError(f"tokens: found {ids.dtype} of shape {ids.shape}, expected the ids of one prompt")
        return numpy.asarray(self._task.answer(ids.astype(numpy.uint32).tobytes()))

    def dataset(self, seed: int = 0, batch: int = 64, batches: int | None = None) -> TaskDataset:
        """An endless iterable of batches (or `batches` of them), for a loop or `torch.utils.data.DataLoader(.., batch_size=None)`.

        >>> first, second = task("parity").dataset(seed=3, batch=8, batches=2)
        >>> first["tokens"].shape == second["tokens"].shape
        True
        """
        dataset_class = TaskDataset if "torch" not in sys.modules else _torch_dataset()
        return dataset_class(self.spec, seed, batch, batches)

    def to_zoology(self, n: int, seed: int = 0) -> dict[str, np.ndarray]:
        """`inputs` and `labels` in the format of zoology's data segments: int64, -100 where there is no target."""
        import numpy

        batch = self.sample(n, seed)
        return {"inputs": batch.tokens.astype(numpy.int64), "labels": batch.labels}

    def prompt(
        self,
        count: int = 1,
        seed: int = 0,
        *,
        style: str | None = None,
        shots: int | None = None,
        filler: int | None = None,
        query_first: bool = False,
        easy_order: bool = False,
    ) -> list[dict[str, Any]]:
        """The task as text for a language model: prompt, symbols and answer.

        >>> question, = task("funccomp{hops=1,m=4}").prompt()
        >>> question["answer"] in question["symbols"]
        True
        """
        options = {"count": count, "seed": seed, "style": style, "shots": shots, "filler": filler}
        options |= {"query_first": query_first, "easy_order": easy_order}
        lines = run("task", "prompt", self.spec, *flags(options), "--json").splitlines()
        return [json.loads(line) for line in lines]

    def draw(self, seed: int = 0) -> str:
        """A random prompt as an ASCII drawing."""
        return self._task.draw(_check_range("seed", seed, 64))

    def __str__(self) -> str:
        return self.spec

    def __repr__(self) -> str:
        return f"rung.task({self.spec!r})"

    def __reduce__(self) -> Any:
        return Task, (self.spec,)


def _check_range(name: str, number: int, bits: int) -> int:
    if not 0 <= number < 1 << bits:
        raise InputError(f"{name}: found {number}, expected 0 to 2^{bits} - 1")
    return number


class TaskDataset:
    """Batches of a task that do not depend on the number of workers: worker `w` of `k` takes batches `w`, `w + k`, `w + 2k`, .."""

    def __init__(self, spec: str, seed: int, batch: int, batches: int | None) -> None:
        if batch < 1 or (batches is not None and batches < 0):
            raise InputError(f"batch: found {batch} prompts and {batches} batches, expected at least 1 and 0")
        self.task, self.seed, self.batch, self.batches = Task(spec), _check_range("seed", seed, 64), _check_range("batch", batch, 64), batches

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        """The batch of an index, from 0."""
        if index < 0 or (self.batches is not None and index >= self.batches):
            raise IndexError(index)
        # Random stream 0 is that of `sample`; a dataset uses the others.
        return self.task._batch(self.task._task.sample(self.batch, self.seed, index + 1))._asdict()

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        index, worker_count = self._worker()
        while self.batches is None or index < self.batches:
            yield self[index]
            index += worker_count

    def _worker(self) -> tuple[int, int]:
        """Index of this worker and number of workers."""
        return 0, 1

    def __reduce__(self) -> Any:
        return _unpickle_dataset, (type(self) is not TaskDataset, self.task.spec, self.seed, self.batch, self.batches)


def _unpickle_dataset(for_torch: bool, *arguments: Any) -> TaskDataset:
    return (_torch_dataset() if for_torch else TaskDataset)(*arguments)


_torch_class: Any = None


def _torch_dataset() -> Any:
    """The class that a `DataLoader` recognises; defined only if PyTorch is imported, because that takes seconds."""
    global _torch_class
    if _torch_class is None:
        from torch.utils.data import IterableDataset, get_worker_info

        class TorchTaskDataset(TaskDataset, IterableDataset):
            def _worker(self) -> tuple[int, int]:
                worker = get_worker_info()
                return (0, 1) if worker is None else (worker.id, worker.num_workers)

        _torch_class = TorchTaskDataset
    return _torch_class
