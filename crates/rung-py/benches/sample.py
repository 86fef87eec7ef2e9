"""How fast `task.sample` is from Python, interleaved with the same batches in Rust alone.

Seconds are those of the processor, so that a busy machine does not count.

    cargo build --release -p rung-theory --example sample_batches
    python crates/rung-py/benches/sample.py
"""

import resource
import statistics
import subprocess
import time
from pathlib import Path

import rung

RUST = Path(__file__).resolve().parents[3] / "target/release/examples/sample_batches"
COUNT, SECONDS, ROUNDS = 4096, 0.5, 11


def python(task):
    start, cpu, tokens, seed = time.perf_counter(), time.process_time(), 0, 0
    while time.perf_counter() - start < SECONDS:
        tokens += task.sample(COUNT, seed).targets.size
        seed += 1
    return tokens / (time.process_time() - cpu)


def rust(task):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    tokens = int(subprocess.check_output([RUST, task.spec, str(COUNT), str(SECONDS)]))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return tokens / (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


for spec in ("funccomp{hops=2,m=8,n=[4]}", "funccomp{hops=3,m=10,n=[9,10]}", "mqar", "parity"):
    task = rung.task(spec)
    pairs = [(python(task), rust(task)) for _ in range(ROUNDS)]
    ours, theirs = (statistics.median(column) / 1e6 for column in zip(*pairs))
    ratio = statistics.median(first / second for first, second in pairs)
    print(f"{spec:32} {task.length:5} tokens  Python {ours:7.1f} M tokens/s  Rust {theirs:7.1f} M tokens/s  ratio {ratio:.3f}")
