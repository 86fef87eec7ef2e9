"""One training step of the benchmark's model in PyTorch eager, as the peer of `rung-engine`'s `train_step` example.

Reads requests `mixer shape steps` from standard input and answers each with the milliseconds of every step, then the peak memory
in bytes. The example starts it with `--against python` and asks in turns with its own measurements, so that both see the same
machine in the same state.
"""

import resource
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

SHAPES = {"S": (64, 64, 64, 4, 2), "M": (32, 256, 128, 4, 4), "L": (4, 1024, 256, 8, 4)}
VOCABULARY = 64
CHUNK = 64


def chunks(x):
    """[batch, heads, time, width] as [batch, heads, chunk, time in chunk, width]."""
    return x.unflatten(2, (-1, CHUNK))


def softmax(mixer, q, k, v, x):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def linear(mixer, q, k, v, x):
    """Unnormalised linear attention, all chunks at once: states are an exclusive running sum."""
    q, k, v = chunks(F.elu(q) + 1), chunks(F.elu(k) + 1), chunks(v)
    written = k.transpose(-1, -2) @ v
    states = written.cumsum(2) - written
    within = (q @ k.transpose(-1, -2)).tril() @ v
    return (q @ states + within).flatten(2, 3)


def by_rows(overlap, right):
    """The inverse of `1 + overlap` by forward substitution, row after row, as public implementations write it."""
    inverse = -overlap
    for i in range(1, CHUNK):
        row = inverse[..., i, :i].clone()
        more = (row.unsqueeze(-1) * inverse[..., :i, :i].clone()).sum(-2)
        inverse = inverse.clone()
        inverse[..., i, :i] = row + more
    return (inverse + torch.eye(CHUNK)) @ right


def by_library(overlap, right):
    """The same system by the library's triangular solver."""
    return torch.linalg.solve_triangular(overlap + torch.eye(CHUNK), right, upper=False, unitriangular=True)


def gdn_rows(mixer, q, k, v, x):
    return gdn(mixer, q, k, v, x, by_rows)


def gdn(mixer, q, k, v, x, solve=by_library):
    """Gated delta rule in chunks: triangular systems of all chunks at once, then one pass over chunks for the state."""
    beta = mixer.beta(x).sigmoid().transpose(1, 2).unsqueeze(-1)
    decay = (-mixer.rate.exp() * F.softplus(mixer.decay(x))).transpose(1, 2).unsqueeze(-1)
    q, k = F.normalize(q, dim=-1) * q.shape[-1] ** -0.5, F.normalize(k, dim=-1)
    q, k, v, beta = chunks(q), chunks(k), chunks(v), chunks(beta)
    b = chunks(decay).cumsum(3)
    mask = (b - b.transpose(-1, -2)).tril().exp().tril()
    overlap = ((k * beta) @ k.transpose(-1, -2) * mask).tril(-1)
    both = torch.cat([v * beta, k * beta * b.exp()], -1)
    solved = solve(overlap, both)
    u, w = solved.split([v.shape[-1], k.shape[-1]], -1)
    scores = q @ k.transpose(-1, -2) * mask
    faded, late = q * b.exp(), k * (b[..., -1:, :] - b).exp()
    state = torch.zeros(q.shape[0], q.shape[1], k.shape[-1], v.shape[-1])
    outputs = []
    for c in range(q.shape[2]):
        written = u[:, :, c] - w[:, :, c] @ state
        outputs.append(faded[:, :, c] @ state + scores[:, :, c] @ written)
        state = state * b[:, :, c, -1:].exp() + late[:, :, c].transpose(-1, -2) @ written
    return torch.stack(outputs, 2).flatten(2, 3)


class Block(nn.Module):
    def __init__(self, width, heads, mixer):
        super().__init__()
        self.heads, self.mix = heads, mixer
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        if mixer in (gdn, gdn_rows):
            self.beta, self.decay = nn.Linear(width, heads), nn.Linear(width, heads)
            self.rate = nn.Parameter(torch.zeros(heads))

    def forward(self, x):
        y = self.norms[0](x)
        q, k, v = (p(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.q, self.k, self.v))
        x = x + self.o(self.mix(self, q, k, v, y).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, length, width, heads, layers, mixer):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, mixer) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, -1]))


MIXERS = {"softmax": softmax, "linear": linear, "gdn": gdn, "gdn_rows": gdn_rows}


def main():
    torch.set_num_threads(2)
    torch.manual_seed(0)
    kept = {}
    for line in sys.stdin:
        mixer, shape, steps = line.split()
        batch, length, width, heads, layers = SHAPES[shape]
        if (mixer, shape) not in kept:
            kept.clear()
            model = Model(length, width, heads, layers, MIXERS[mixer])
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            kept[mixer, shape] = model, optimizer
        model, optimizer = kept[mixer, shape]
        tokens = torch.randint(VOCABULARY, (batch, length))
        target = torch.randint(VOCABULARY, (batch,))
        times = []
        for _ in range(int(steps)):
            start = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(model(tokens), target).backward()
            optimizer.step()
            times.append(1e3 * (time.perf_counter() - start))
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(" ".join(f"{t:.3f}" for t in times), peak, flush=True)


main()
