"""How many dependent look-ups (hops) an attention stack can do in one forward pass, and what they cost.

>>> import rung
>>> rung.audit("qwen3.5-9b").rungs
8
>>> rung.bound("linear*3 full linear*3", hops=2).tokens
543814402

The functions return what the program `rung` prints with `--json`; `rung.run` runs any other command.
"""

from ._audit import Audit, audit, presets
from ._bound import Bound, Check, Figure, HopMap, bound, capacity, check, decide, map
from ._call import run
from ._errors import InputError, RungError
from ._native import __version__
from ._network import Network, Report, ask, construct, load
from ._task import Batch, Task, TaskDataset, task
from ._train import Records, Run, runs, sweep, train

__all__ = [
    "Audit", "Batch", "Bound", "Check", "Figure", "HopMap", "InputError", "Network", "Records", "Report", "Run", "RungError",
    "Task", "TaskDataset", "__version__", "ask", "audit", "bound", "capacity", "check", "construct", "decide", "load", "map",
    "presets", "run", "runs", "sweep", "task", "train",
]  # fmt: skip
