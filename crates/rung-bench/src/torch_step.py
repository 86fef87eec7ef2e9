"""The work of `rung bench` in PyTorch: training steps of the same model, and single kernels.

`rung bench --against torch` starts this script twice, after `peer_protocol.py`, with the number of threads and `eager` or `compile` as
arguments. Requests are

    train MIXER batch length width heads layers
    forward KERNEL ..           forward+backward KERNEL ..

Compiled, it implements the training steps of mixers whose graph has no loop over tokens.

The model is written to be fast here too: one product for queries, keys and values, and the fused AdamW.
"""

try:
    import torch
except ImportError as error:
    print(f"cannot import torch ({error})")
    sys.exit(0)
import torch.nn.functional as F
from torch import nn

VOCABULARY = 64
CHUNK = 64
KERNEL_SIZE = 4
STATE_SIZE = 16


def split_chunks(x):
    """[batch, heads, time, width] as [batch, heads, chunk, time in chunk, width]."""
    return x.unflatten(2, (-1, CHUNK))


def linear_attention(q, k, v):
    """Unnormalised linear attention, all chunks at once: states are an exclusive running sum."""
    q, k, v = split_chunks(q), split_chunks(k), split_chunks(v)
    updates = k.transpose(-1, -2) @ v
    states = updates.cumsum(2) - updates
    within_chunk = (q @ k.transpose(-1, -2)).tril() @ v
    return (q @ states + within_chunk).flatten(2, 3)


def apply_decay(q, k, decay):
    """For scalar log-decays in chunks: the causal decay mask, queries decayed from the chunk's start, keys decayed to its end, and
    the cumulative log-decays."""
    log_decay = split_chunks(decay).cumsum(3)
    mask = (log_decay - log_decay.transpose(-1, -2)).tril().exp().tril()
    return mask, q * log_decay.exp(), k * (log_decay[..., -1:, :] - log_decay).exp(), log_decay


def decayed_attention(q, k, v, decay):
    """Linear attention with a scalar decay: one pass over chunks for the state."""
    q, k, v = split_chunks(q), split_chunks(k), split_chunks(v)
    mask, decayed_q, decayed_k, log_decay = apply_decay(q, k, decay)
    within_chunk = q @ k.transpose(-1, -2) * mask @ v
    updates = decayed_k.transpose(-1, -2) @ v
    state, outputs = torch.zeros_like(updates[:, :, 0]), []
    for c in range(q.shape[2]):
        outputs.append(decayed_q[:, :, c] @ state)
        state = state * log_decay[:, :, c, -1:].exp() + updates[:, :, c]
    return (torch.stack(outputs, 2) + within_chunk).flatten(2, 3)


def solve_by_rows(overlap, right_side):
    """Solves `(1 + overlap) x = right_side`: inverts by forward substitution, row after row, as public implementations do."""
    inverse = -overlap
    for i in range(1, CHUNK):
        row = inverse[..., i, :i].clone()
        correction = (row.unsqueeze(-1) * inverse[..., :i, :i].clone()).sum(-2)
        inverse = inverse.clone()
        inverse[..., i, :i] = row + correction
    return (inverse + torch.eye(CHUNK)) @ right_side


def solve_by_library(overlap, right_side):
    """Solves the same system with PyTorch's triangular solver."""
    return torch.linalg.solve_triangular(overlap + torch.eye(CHUNK), right_side, upper=False, unitriangular=True)


def delta_rule(q, k, v, decay, beta, solve):
    """Gated delta rule in chunks: triangular systems of all chunks at once, then one pass over chunks for the state."""
    q, k, v, beta = split_chunks(q), split_chunks(k), split_chunks(v), split_chunks(beta)
    mask, decayed_q, decayed_k, log_decay = apply_decay(q, k, decay)
    overlap = ((k * beta) @ k.transpose(-1, -2) * mask).tril(-1)
    solved = solve(overlap, torch.cat([v * beta, k * beta * log_decay.exp()], -1))
    # `values - keys @ state` are the corrected values of a chunk: the paper's u and w.
    values, keys = solved.split([v.shape[-1], k.shape[-1]], -1)
    scores = q @ k.transpose(-1, -2) * mask
    state = torch.zeros(q.shape[0], q.shape[1], k.shape[-1], v.shape[-1])
    outputs = []
    for c in range(q.shape[2]):
        errors = values[:, :, c] - keys[:, :, c] @ state
        outputs.append(decayed_q[:, :, c] @ state + scores[:, :, c] @ errors)
        state = state * log_decay[:, :, c, -1:].exp() + decayed_k[:, :, c].transpose(-1, -2) @ errors
    return torch.stack(outputs, 2).flatten(2, 3)


def general_delta(q, k, v, decay, recall_key, erase_key):
    """The general delta rule, one token after another, as in its definition."""
    factors, outputs = decay.exp().unsqueeze(-1), []
    state = torch.zeros(q.shape[0], q.shape[1], k.shape[-1], v.shape[-1])
    for t in range(q.shape[2]):
        recalled = recall_key[:, :, t].unsqueeze(-2) @ state
        state = state * factors[:, :, t] - erase_key[:, :, t].unsqueeze(-1) * recalled
        state = state + k[:, :, t].unsqueeze(-1) * v[:, :, t].unsqueeze(-2)
        outputs.append(q[:, :, t].unsqueeze(-2) @ state)
    return torch.cat(outputs, 2)


def selective_scan(c, b, x, decay):
    """Mamba's selective scan, one token after another, as in its definition; `b` and `c` are its input and output matrices."""
    state, outputs = torch.zeros_like(decay[:, 0]), []
    for t in range(x.shape[1]):
        state = state * decay[:, t].exp() + b[:, t] * x[:, t]
        outputs.append((state * c[:, t]).sum(-1))
    return torch.stack(outputs, 1)


def softmax(mixer, q, k, v, x):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def linear(mixer, q, k, v, x):
    return linear_attention(F.elu(q) + 1, F.elu(k) + 1, v)


def gdn(mixer, q, k, v, x, solve=solve_by_rows):
    beta = mixer.beta(x).sigmoid().transpose(1, 2).unsqueeze(-1)
    decay = (-mixer.rate.exp() * F.softplus(mixer.decay(x))).transpose(1, 2).unsqueeze(-1)
    q, k = F.normalize(q, dim=-1) * q.shape[-1] ** -0.5, F.normalize(k, dim=-1)
    return delta_rule(q, k, v, decay, beta, solve)


def gdn_solver(mixer, q, k, v, x):
    return gdn(mixer, q, k, v, x, solve_by_library)


MIXERS = {"full": softmax, "linear": linear, "gdn": gdn, "gdn_solver": gdn_solver}
# Unrolled, the row-by-row solver of `gdn` would be a graph of thousands of operations.
COMPILED_MIXERS = ("full", "linear", "gdn_solver")


class Block(nn.Module):
    def __init__(self, width, heads, mixer):
        super().__init__()
        self.heads, self.mixer = heads, mixer
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        if mixer in (gdn, gdn_solver):
            self.beta, self.decay = nn.Linear(width, heads), nn.Linear(width, heads)
            self.rate = nn.Parameter(torch.zeros(heads))

    def forward(self, x):
        y = self.norms[0](x)
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.o(self.mixer(self, q, k, v, y).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, length, width, heads, layers, mixer):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, mixer) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, -1]))


def training_step(compiled, mixer, batch, length, width, heads, layers):
    """A function that trains for one step."""
    if mixer not in (COMPILED_MIXERS if compiled else MIXERS):
        return None
    model = Model(length, width, heads, layers, MIXERS[mixer])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    if compiled:
        model = torch.compile(model)
    tokens = torch.randint(VOCABULARY, (batch, length))
    target = torch.randint(VOCABULARY, (batch,))

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(tokens), target).backward()
        optimizer.step()

    return step


def kernel(name, backward, batch, length, width, heads):
    """A function that runs a kernel once."""
    head_dim = width // heads

    def uniform(*shape, low=-1.0, high=1.0):
        return (torch.rand(shape) * (high - low) + low).requires_grad_(backward)

    def head_input():
        return uniform(batch, heads, length, head_dim, low=-(head_dim**-0.5), high=head_dim**-0.5)

    def qkv():
        return head_input(), head_input(), head_input()

    def decay():
        return uniform(batch, heads, length, 1, low=-0.1, high=0.0)

    def beta():
        return uniform(batch, heads, length, 1, low=0.0)

    no_decay = torch.zeros(batch, heads, length, 1)
    causal_mask = torch.ones(length, length, dtype=torch.bool).tril()
    window_mask = causal_mask & ~causal_mask.tril(-max(length // 4, 2))
    mlp_width, rows = 4 * width, (batch, length)
    kernels = {
        "product_out": lambda: (F.linear, uniform(*rows, width), uniform(width, width), uniform(width)),
        "product_up": lambda: (F.linear, uniform(*rows, width), uniform(mlp_width, width), uniform(mlp_width)),
        "product_down": lambda: (F.linear, uniform(*rows, mlp_width), uniform(width, mlp_width), uniform(width)),
        "full": lambda: (lambda q, k, v: softmax(None, q, k, v, None), *qkv()),
        "window": lambda: (
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=window_mask), *qkv()
        ),
        "linear": lambda: (linear_attention, *qkv()),
        "retnet": lambda: (decayed_attention, *qkv(), decay()),
        "deltanet": lambda: (
            lambda q, k, v, beta: delta_rule(q, k, v, no_decay, beta, solve_by_rows), *qkv(), beta()
        ),
        "gdn": lambda: (
            lambda q, k, v, log_decay, beta: delta_rule(q, k, v, log_decay, beta, solve_by_rows),
            *qkv(), decay(), beta(),
        ),
        "gdn_solver": lambda: (
            lambda q, k, v, log_decay, beta: delta_rule(q, k, v, log_decay, beta, solve_by_library),
            *qkv(), decay(), beta(),
        ),
        "mamba1": lambda: (
            selective_scan, uniform(*rows, 1, STATE_SIZE), uniform(*rows, 1, STATE_SIZE), uniform(*rows, width, 1),
            uniform(*rows, width, STATE_SIZE, low=-0.1, high=0.0),
        ),
        "rwkv7": lambda: (
            general_delta, *qkv(),
            uniform(batch, heads, length, head_dim, low=-0.1, high=0.0), head_input(), head_input(),
        ),
        "conv": lambda: (
            lambda x, filters: F.conv1d(F.pad(x, (KERNEL_SIZE - 1, 0)), filters, groups=width),
            uniform(batch, width, length), uniform(width, 1, KERNEL_SIZE),
        ),
        "layer_norm": lambda: (
            lambda x, gain, bias: F.layer_norm(x, (width,), gain, bias),
            uniform(*rows, width), uniform(width), uniform(width),
        ),
        "rms_norm": lambda: (
            lambda x, gain: F.rms_norm(x, (width,), gain, 1e-6), uniform(*rows, width), uniform(width)
        ),
    }
    if name not in kernels:
        return None
    run, *inputs = kernels[name]()

    def run_once():
        if not backward:
            with torch.no_grad():
                run(*inputs)
            return
        for x in inputs:
            x.grad = None
        run(*inputs).sum().backward()

    return run_once


def prepare(request, name, *sizes):
    batch, length, width, heads, layers = map(int, sizes)
    if request == "train":
        work = training_step(COMPILED, name, batch, length, width, heads, layers)
    else:
        work = None if COMPILED else kernel(name, request == "forward+backward", batch, length, width, heads)
    return work and timed(work)


COMPILED = sys.argv[2] == "compile"
torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(0)
serve(("torch.compile " if COMPILED else "torch ") + torch.__version__, prepare)
