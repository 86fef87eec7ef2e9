"""Trains a mixer of your own, in PyTorch, on a task of Rung with its curriculum, and prints its curve next to that of `rung train`.

    python examples/python/train_mixer.py [STEPS]

The mixer is a gated running average, in front of one layer of attention: the average passes the start value on to the query, and
the attention looks it up. The task has one hop, so both curves should rise above guessing.
"""

import sys
import tempfile

import numpy
import rung
import torch
from torch import nn
from torch.nn import functional as F

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 400
WIDTH, HEADS, BATCH = 64, 2, 32
SMALL, TASK = rung.task("funccomp{hops=1,m=4,queries=8}"), rung.task("funccomp{hops=1,m=8,queries=8}")


class RunningAverage(nn.Module):
    """s_t = a s_{t-1} + (1 - a) v_t with a learned a per channel: replace it by your own."""

    def __init__(self, width):
        super().__init__()
        self.value, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        self.decay_logit = nn.Parameter(torch.linspace(-2, 3, width))

    def forward(self, x):
        decay = torch.sigmoid(self.decay_logit)
        steps = torch.arange(x.shape[1])
        powers = decay ** (steps[:, None] - steps[None, :]).clamp(min=0)[..., None]
        powers = powers * (steps[:, None] >= steps[None, :])[..., None]
        return torch.einsum("tsc,bsc->btc", powers, (1 - decay) * self.value(x)) * torch.sigmoid(self.gate(x))


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))


class Model(nn.Module):
    def __init__(self, task):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, WIDTH) for size in task.fields.values())
        self.mixers = nn.ModuleList([RunningAverage(WIDTH), Attention(WIDTH)])
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in self.mixers)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(5))
        self.head = nn.Linear(WIDTH, task.classes)

    def forward(self, tokens):
        x = sum(embedding(tokens[..., column]) for column, embedding in enumerate(self.embeddings))
        for layer, (mixer, mlp) in enumerate(zip(self.mixers, self.mlps)):
            x = x + mixer(self.norms[2 * layer](x))
            x = x + mlp(self.norms[2 * layer + 1](x))
        return self.head(self.norms[4](x))


torch.set_num_threads(1)
torch.manual_seed(0)
model = Model(TASK)
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
held_out = TASK.sample(128, seed=10**6)
stage, curve = SMALL, {}
for step in range(1, STEPS + 1):
    # The curriculum: small tables until an accuracy of 90% or for half of the steps, as in the config below.
    batch = stage.sample(BATCH, seed=step, like=TASK)
    logits = model(torch.from_numpy(batch.tokens).long())
    loss = F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(batch.labels).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    right = (logits.argmax(-1).numpy() == batch.targets)[batch.mask].mean()
    if stage is SMALL and (right > 0.9 or step >= STEPS // 2):
        stage = TASK
    if step % 50 == 0:
        with torch.no_grad():
            predictions = model(torch.from_numpy(held_out.tokens).long()).argmax(-1).numpy()
        curve[step] = float((predictions == held_out.targets)[held_out.mask].mean())

config = {
    "stack": "gdn full",
    "task": TASK.spec,
    "model": {"heads": HEADS, "head": WIDTH // HEADS},
    "train": {"steps": STEPS, "batch": BATCH, "threads": 1},
    "evaluate": {"every": 50},
    "curriculum": [{"task": SMALL.spec, "until": 0.9, "steps": STEPS // 2}],
}
with tempfile.TemporaryDirectory() as folder:
    run = rung.train(config, out=f"{folder}/run", progress=False)
# Stage 0 is the curriculum, which is evaluated on its own smaller task.
rung_curve = {point["step"]: point["accuracy"]["1"]["mean"] for point in run.record["looks"] if point["stage"] == 1}
print(f"guessing {TASK.baseline:.1%}\nstep  your mixer  gdn full of rung train")
for step in sorted({*curve, *rung_curve}):
    cells = [f"{points[step]:.1%}" if step in points else "" for points in (curve, rung_curve)]
    print(f"{step:4}  {cells[0]:>10}  {cells[1]:>22}")
if STEPS >= 400:
    assert max(curve.values()) > 2 * TASK.baseline and max(rung_curve.values()) > 2 * TASK.baseline
