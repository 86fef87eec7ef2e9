"""Benchmarks `task.sample` from Python, interleaved with the same batches in Rust alone.

CPU seconds are measured, so that other load on the machine does not count.

    cargo build --release -p rung-theory --example sample_batches
    python crates/rung-py/benches/sample.py
"""

import resource
import statistics
import subprocess
import time
from pathlib import Path

import rung

RUST_PROGRAM = Path(__file__).resolve().parents[3] / "target/release/examples/sample_batches"
COUNT, SECONDS, ROUNDS = 4096, 0.5, 11


def python_rate(task):
    """Tokens per CPU second of `task.sample`."""
    start, cpu, tokens, seed = time.perf_counter(), time.process_time(), 0, 0
    while time.perf_counter() - start < SECONDS:
        tokens += task.sample(COUNT, seed).targets.size
        seed += 1
    return tokens / (time.process_time() - cpu)


def rust_rate(task):
    """Tokens per CPU second of the Rust program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    tokens = int(subprocess.check_output([RUST_PROGRAM, task.spec, str(COUNT), str(SECONDS)]))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return tokens / (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


for spec in ("funccomp{hops=2,m=8,n=[4]}", "funccomp{hops=3,m=10,n=[9,10]}", "mqar", "parity"):
    task = rung.task(spec)
    pairs = [(python_rate(task), rust_rate(task)) for _ in range(ROUNDS)]
    python_median, rust_median = (statistics.median(column) / 1e6 for column in zip(*pairs))
    ratio = statistics.median(python / rust for python, rust in pairs)
    print(f"{spec:32} {task.length:5} tokens  Python {python_median:7.1f} M tokens/s  Rust {rust_median:7.1f} M tokens/s  ratio {ratio:.3f}")
