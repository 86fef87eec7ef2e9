"""Runs per hour of a sweep: `rung sweep` beside the same sweep in PyTorch, end to end.

    python examples/sweep_speed.py --rung target/release/rung --runs 8

Both sides train the same stacks (full attention, two layers, width 64, two heads, MLP) on one-hop function composition with 32 questions a prompt, for the same
number of steps of the same batch size, with AdamW, and evaluate on 512 prompts. Rung runs its sweep with one thread for each run and as many
runs at once as there are cores; PyTorch has one process for each core, with one thread each. Times include starting the programs, making the prompts, writing
records (Rung) and evaluating. PyTorch's prompts are drawn with tensor operations, a batch at a time. `--repeat` interleaves both sides.
"""

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time

M, QUERIES, WIDTH, HEADS, LAYERS, BATCH = 16, 32, 64, 2, 2, 32

SWEEP = """
seeds = [{seeds}]
[base]
task = "funccomp{{hops=1,m={m},queries={queries}}}"
stack = "full*{layers}"
model = {{ heads = {heads}, head = {head} }}
train = {{ steps = {steps}, batch = {batch} }}
evaluate = {{ every = {steps}, last = 512 }}
"""


def run_rung(program, runs, steps):
    """Runs a sweep of `runs` seeds. Returns its seconds, and the peak memory of its process divided by the number of runs at once."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "sweep.toml")
        with open(path, "w") as handle:
            handle.write(SWEEP.format(seeds=", ".join(map(str, range(runs))), m=M, queries=QUERIES, layers=LAYERS, heads=HEADS, head=WIDTH // HEADS, steps=steps, batch=BATCH))
        start = time.perf_counter()
        process = subprocess.Popen([program, "sweep", path, "--out", os.path.join(folder, "runs")], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"rung sweep ended with status {status}")
        return time.perf_counter() - start, usage.ru_maxrss * 1024 / min(runs, os.cpu_count())


def train_in_torch(seed, steps):
    """Trains one model and evaluates it; runs in a process of its own. Returns its peak memory in bytes."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(seed)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)])
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
            x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.norms[1](x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.kinds, self.numbers = nn.Embedding(3, WIDTH), nn.Embedding(M + 1, WIDTH)
            self.values = nn.Embedding(M + 1, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, M)

        def forward(self, kinds, numbers, values):
            x = self.kinds(kinds) + self.numbers(numbers) + self.values(values)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x[:, M + 1 :: 2]))

    kinds = torch.cat([torch.zeros(M, dtype=torch.long), torch.tensor([1, 2]).repeat(QUERIES)]).expand(BATCH, -1)

    def prompts():
        """Prompts of a table of M entries and then questions of two tokens: a start value, and the token at which the answer is predicted."""
        table = torch.randint(M, (BATCH, M))
        starts = torch.randint(M, (BATCH, QUERIES))
        blank = torch.full((BATCH, QUERIES), M)
        numbers = torch.cat([torch.arange(M).expand(BATCH, -1), torch.full((BATCH, 2 * QUERIES), M)], 1)
        questions = torch.stack([starts, blank], 2).flatten(1)
        return numbers, torch.cat([table, questions], 1), table.gather(1, starts)

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    for _ in range(steps):
        numbers, values, targets = prompts()
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(kinds, numbers, values).flatten(0, 1), targets.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        for _ in range(512 // BATCH):
            numbers, values, targets = prompts()
            (model(kinds, numbers, values).argmax(-1) == targets).float().mean().item()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_torch(runs, steps):
    """Runs the same sweep in PyTorch, with a process for each core. Returns its seconds, and the peak memory of the largest run."""
    start = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        peaks = pool.starmap(train_in_torch, [(seed, steps) for seed in range(runs)], chunksize=1)
    return time.perf_counter() - start, max(peaks)


def main():
    parser = argparse.ArgumentParser(description="Runs per hour of a sweep, in Rung and in PyTorch.")
    parser.add_argument("--rung", default="rung", help="the program")
    parser.add_argument("--runs", type=int, default=8, help="runs of the sweep")
    parser.add_argument("--steps", type=int, default=600, help="training steps of a run")
    parser.add_argument("--repeat", type=int, default=3, help="how often both sides run, interleaved")
    parser.add_argument("--json", action="store_true", help="write JSON")
    options = parser.parse_args()
    rows = []
    for _ in range(options.repeat):
        for software, run in (
            ("rung", lambda: run_rung(options.rung, options.runs, options.steps)),
            ("torch", lambda: run_torch(options.runs, options.steps)),
        ):
            seconds, peak = run()
            rows.append({"software": software, "seconds": seconds, "runs_per_hour": 3600 * options.runs / seconds, "bytes_per_run": peak})
            if not options.json:
                row = rows[-1]
                print(f"{software:6} {seconds:8.1f} s {row['runs_per_hour']:8.0f} runs/h {peak / 1e6:8.0f} MB a run", flush=True)
    if options.json:
        print(json.dumps(rows))
        return
    median = {name: sorted(row["runs_per_hour"] for row in rows if row["software"] == name)[options.repeat // 2] for name in ("rung", "torch")}
    print(f"ratio of medians: {median['rung'] / median['torch']:.2f}")


if __name__ == "__main__":
    main()
