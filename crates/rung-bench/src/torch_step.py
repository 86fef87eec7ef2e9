"""The work of `rung bench` in PyTorch eager: training steps of the twin of its model, and kernels alone.

`rung bench --against torch` starts it with the number of threads as argument and speaks to it over pipes, interleaved with its own
measurements, so that both see the same machine in the same state. A request is one line,

    train MIXER batch length width heads layers repetitions
    forward KERNEL ..           forward+backward KERNEL ..

and the answer is one line too: the milliseconds of every repetition, then the peak memory in bytes (`-` if unknown); or `none`
where there is no form of the work here.
"""

import sys
import time

try:
    import torch
except ImportError as error:
    print(f"cannot import torch ({error})")
    sys.exit(0)
import torch.nn.functional as F
from torch import nn

VOCABULARY = 64
CHUNK = 64
TAPS = 4
SCANNED = 16


def chunks(x):
    """[batch, heads, time, width] as [batch, heads, chunk, time in chunk, width]."""
    return x.unflatten(2, (-1, CHUNK))


def linear_attention(q, k, v):
    """Unnormalised linear attention, all chunks at once: states are an exclusive running sum."""
    q, k, v = chunks(q), chunks(k), chunks(v)
    written = k.transpose(-1, -2) @ v
    states = written.cumsum(2) - written
    within = (q @ k.transpose(-1, -2)).tril() @ v
    return (q @ states + within).flatten(2, 3)


def fading(q, k, decay):
    """What scalar log-decays do to a chunk: the mask within, the queries' and keys' share of the state, its own decay."""
    b = chunks(decay).cumsum(3)
    mask = (b - b.transpose(-1, -2)).tril().exp().tril()
    return mask, q * b.exp(), k * (b[..., -1:, :] - b).exp(), b


def decayed_attention(q, k, v, decay):
    """Linear attention with a scalar decay: one pass over chunks for the state."""
    q, k, v = chunks(q), chunks(k), chunks(v)
    mask, faded, late, b = fading(q, k, decay)
    within = q @ k.transpose(-1, -2) * mask @ v
    written = late.transpose(-1, -2) @ v
    state, outputs = torch.zeros_like(written[:, :, 0]), []
    for c in range(q.shape[2]):
        outputs.append(faded[:, :, c] @ state)
        state = state * b[:, :, c, -1:].exp() + written[:, :, c]
    return (torch.stack(outputs, 2) + within).flatten(2, 3)


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


def delta_rule(q, k, v, decay, beta, solve):
    """Gated delta rule in chunks: triangular systems of all chunks at once, then one pass over chunks for the state."""
    q, k, v, beta = chunks(q), chunks(k), chunks(v), chunks(beta)
    mask, faded, late, b = fading(q, k, decay)
    overlap = ((k * beta) @ k.transpose(-1, -2) * mask).tril(-1)
    solved = solve(overlap, torch.cat([v * beta, k * beta * b.exp()], -1))
    u, w = solved.split([v.shape[-1], k.shape[-1]], -1)
    scores = q @ k.transpose(-1, -2) * mask
    state = torch.zeros(q.shape[0], q.shape[1], k.shape[-1], v.shape[-1])
    outputs = []
    for c in range(q.shape[2]):
        written = u[:, :, c] - w[:, :, c] @ state
        outputs.append(faded[:, :, c] @ state + scores[:, :, c] @ written)
        state = state * b[:, :, c, -1:].exp() + late[:, :, c].transpose(-1, -2) @ written
    return torch.stack(outputs, 2).flatten(2, 3)


def general_delta(q, k, v, decay, sought, removed):
    """The general delta rule, one token after another, as its definition says."""
    fade, outputs = decay.exp().unsqueeze(-1), []
    state = torch.zeros(q.shape[0], q.shape[1], k.shape[-1], v.shape[-1])
    for t in range(q.shape[2]):
        recalled = sought[:, :, t].unsqueeze(-2) @ state
        state = state * fade[:, :, t] - removed[:, :, t].unsqueeze(-1) * recalled
        state = state + k[:, :, t].unsqueeze(-1) * v[:, :, t].unsqueeze(-2)
        outputs.append(q[:, :, t].unsqueeze(-2) @ state)
    return torch.cat(outputs, 2)


def scan(exit, entry, x, decay):
    """The selective scan, one token after another, as its definition says."""
    state, outputs = torch.zeros_like(decay[:, 0]), []
    for t in range(x.shape[1]):
        state = state * decay[:, t].exp() + entry[:, t] * x[:, t]
        outputs.append((state * exit[:, t]).sum(-1))
    return torch.stack(outputs, 1)


def softmax(mixer, q, k, v, x):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def linear(mixer, q, k, v, x):
    return linear_attention(F.elu(q) + 1, F.elu(k) + 1, v)


def gdn(mixer, q, k, v, x, solve=by_rows):
    beta = mixer.beta(x).sigmoid().transpose(1, 2).unsqueeze(-1)
    decay = (-mixer.rate.exp() * F.softplus(mixer.decay(x))).transpose(1, 2).unsqueeze(-1)
    q, k = F.normalize(q, dim=-1) * q.shape[-1] ** -0.5, F.normalize(k, dim=-1)
    return delta_rule(q, k, v, decay, beta, solve)


def gdn_solver(mixer, q, k, v, x):
    return gdn(mixer, q, k, v, x, by_library)


MIXERS = {"full": softmax, "linear": linear, "gdn": gdn, "gdn_solver": gdn_solver}


class Block(nn.Module):
    def __init__(self, width, heads, mixer):
        super().__init__()
        self.heads, self.mix = heads, mixer
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        if mixer in (gdn, gdn_solver):
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


def training(mixer, batch, length, width, heads, layers):
    """A function that trains for one step."""
    if mixer not in MIXERS:
        return None
    model = Model(length, width, heads, layers, MIXERS[mixer])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(VOCABULARY, (batch, length))
    target = torch.randint(VOCABULARY, (batch,))

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(tokens), target).backward()
        optimizer.step()

    return step


def kernel(name, backward, batch, length, width, heads):
    """A function that runs a kernel once."""
    head = width // heads

    def uniform(*shape, low=-1.0, high=1.0):
        return (torch.rand(shape) * (high - low) + low).requires_grad_(backward)

    def split():
        return uniform(batch, heads, length, head, low=-(head**-0.5), high=head**-0.5)

    def decay():
        return uniform(batch, heads, length, 1, low=-0.1, high=0.0)

    def gate():
        return uniform(batch, heads, length, 1, low=0.0)

    still = torch.zeros(batch, heads, length, 1)
    past = torch.ones(length, length, dtype=torch.bool).tril()
    band = past & ~past.tril(-max(length // 4, 2))
    up, rows = 4 * width, (batch, length)
    forms = {
        "product_out": lambda: (F.linear, uniform(*rows, width), uniform(width, width), uniform(width)),
        "product_up": lambda: (F.linear, uniform(*rows, width), uniform(up, width), uniform(up)),
        "product_down": lambda: (F.linear, uniform(*rows, up), uniform(width, up), uniform(width)),
        "full": lambda: (lambda q, k, v: softmax(None, q, k, v, None), split(), split(), split()),
        "window": lambda: (
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=band), split(), split(), split()
        ),
        "linear": lambda: (linear_attention, split(), split(), split()),
        "retnet": lambda: (decayed_attention, split(), split(), split(), decay()),
        "deltanet": lambda: (
            lambda q, k, v, beta: delta_rule(q, k, v, still, beta, by_rows), split(), split(), split(), gate()
        ),
        "gdn": lambda: (
            lambda q, k, v, fade, beta: delta_rule(q, k, v, fade, beta, by_rows),
            split(), split(), split(), decay(), gate(),
        ),
        "gdn_solver": lambda: (
            lambda q, k, v, fade, beta: delta_rule(q, k, v, fade, beta, by_library),
            split(), split(), split(), decay(), gate(),
        ),
        "mamba1": lambda: (
            scan, uniform(*rows, 1, SCANNED), uniform(*rows, 1, SCANNED), uniform(*rows, width, 1),
            uniform(*rows, width, SCANNED, low=-0.1, high=0.0),
        ),
        "rwkv7": lambda: (
            general_delta, split(), split(), split(),
            uniform(batch, heads, length, head, low=-0.1, high=0.0), split(), split(),
        ),
        "conv": lambda: (
            lambda x, filters: F.conv1d(F.pad(x, (TAPS - 1, 0)), filters, groups=width),
            uniform(batch, width, length), uniform(width, 1, TAPS),
        ),
        "layer_norm": lambda: (
            lambda x, gain, bias: F.layer_norm(x, (width,), gain, bias),
            uniform(*rows, width), uniform(width), uniform(width),
        ),
        "rms_norm": lambda: (
            lambda x, gain: F.rms_norm(x, (width,), gain, 1e-6), uniform(*rows, width), uniform(width)
        ),
    }
    if name not in forms:
        return None
    run, *inputs = forms[name]()

    def once():
        if not backward:
            with torch.no_grad():
                run(*inputs)
            return
        for x in inputs:
            x.grad = None
        run(*inputs).sum().backward()

    return once


def peak():
    """Peak memory of this process since the last request of another kind, where the system tells."""
    try:
        with open("/proc/self/status") as status:
            line = next(line for line in status if line.startswith("VmHWM:"))
        return 1024 * int(line.split()[1])
    except (OSError, StopIteration):
        return "-"


def forget_peak():
    try:
        with open("/proc/self/clear_refs", "w") as handle:
            handle.write("5")
    except OSError:
        pass


def main():
    torch.set_num_threads(int(sys.argv[1]))
    torch.manual_seed(0)
    print("ready torch", torch.__version__, flush=True)
    kept, work = None, None
    for line in sys.stdin:
        *asked, repetitions = line.split()
        if asked != kept:
            work, kept = None, asked
            forget_peak()
            what, name, *sizes = asked
            batch, length, width, heads, layers = map(int, sizes)
            if what == "train":
                work = training(name, batch, length, width, heads, layers)
            else:
                work = kernel(name, what == "forward+backward", batch, length, width, heads)
        if work is None:
            print("none", flush=True)
            continue
        times = []
        for _ in range(int(repetitions)):
            start = time.perf_counter()
            work()
            times.append(1e3 * (time.perf_counter() - start))
        print(" ".join(f"{t:.4f}" for t in times), peak(), flush=True)


main()
