"""The code that the peers of `rung bench` share. It is prepended to each of their scripts.

A peer is a process that `rung bench` sends requests to over pipes, interleaved with its own measurements, so that all see the machine in the
same state. A request is one line whose last word is the number of repetitions. The answer is one line: the milliseconds of every
repetition, then the peak memory in bytes (`-` if unknown); or `none` for work that the peer does not implement.
"""

import sys
import time


def peak_bytes():
    """Peak memory of this process since `reset_peak`, or `-` if the system does not report it."""
    try:
        with open("/proc/self/status") as status:
            line = next(line for line in status if line.startswith("VmHWM:"))
        return 1024 * int(line.split()[1])
    except (OSError, StopIteration):
        return "-"


def reset_peak():
    """Sets the peak memory back to the current memory, where the system can."""
    try:
        with open("/proc/self/clear_refs", "w") as handle:
            handle.write("5")
    except OSError:
        pass


def timed(work):
    """A function that runs `work` once and returns its milliseconds."""

    def run():
        start = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - start)

    return run


def serve(name_and_version, prepare, answers=sys.stdout):
    """Answers requests until the pipe is closed. `prepare` takes the words of a request and gives a function that does the work once and
    returns its milliseconds, or `None`."""
    print("ready", name_and_version, file=answers, flush=True)
    current, run = None, None
    for line in sys.stdin:
        *request, repetitions = line.split()
        if request != current:
            # The model of the previous request is freed before the next is built.
            current, run = request, None
            reset_peak()
            run = prepare(*request)
        if run is None:
            print("none", file=answers, flush=True)
            continue
        times = [run() for _ in range(int(repetitions))]
        print(" ".join(f"{t:.4f}" for t in times), peak_bytes(), file=answers, flush=True)
