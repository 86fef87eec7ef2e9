"""The training step of `rung bench` with full attention in JAX, compiled by XLA.

`rung bench --against jax` starts this script, after `peer_protocol.py`, with the number of threads as argument. Requests, the model, the
loss and AdamW are those of `torch_step.py`.
"""

import os

THREADS = int(sys.argv[1])
if hasattr(os, "sched_setaffinity"):
    # XLA starts a thread for every core that the process may use.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
os.environ["JAX_PLATFORMS"] = "cpu"
try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    print(f"cannot import jax ({error})")
    sys.exit(0)

VOCABULARY = 64
LEARNING_RATE, BETA1, BETA2, EPSILON, WEIGHT_DECAY = 1e-3, 0.9, 0.999, 1e-8, 0.01


def init(key, length, width, layers):
    """Random weights of the model."""
    keys = iter(jax.random.split(key, 3 + 4 * layers))

    def linear(inputs, outputs):
        bound = inputs**-0.5
        return {"w": jax.random.uniform(next(keys), (inputs, outputs), minval=-bound, maxval=bound), "b": jnp.zeros(outputs)}

    def norm():
        return {"w": jnp.ones(width), "b": jnp.zeros(width)}

    def block():
        return {
            "norm1": norm(), "qkv": linear(width, 3 * width), "o": linear(width, width),
            "norm2": norm(), "up": linear(width, 4 * width), "down": linear(4 * width, width),
        }

    return {
        "tokens": jax.random.normal(next(keys), (VOCABULARY, width)),
        "positions": jax.random.normal(next(keys), (length, width)),
        "blocks": [block() for _ in range(layers)],
        "norm": norm(), "head": linear(width, VOCABULARY),
    }


def apply_linear(weights, x):
    return x @ weights["w"] + weights["b"]


def layer_norm(weights, x):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * weights["w"] + weights["b"]


def loss(weights, tokens, targets, heads):
    """Mean cross-entropy of the last position."""
    x = weights["tokens"][tokens] + weights["positions"]
    for block in weights["blocks"]:
        qkv = apply_linear(block["qkv"], layer_norm(block["norm1"], x))
        q, k, v = jnp.split(qkv.reshape(*x.shape[:2], 3 * heads, -1), 3, axis=2)
        attention = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + apply_linear(block["o"], attention.reshape(x.shape))
        hidden = jax.nn.gelu(apply_linear(block["up"], layer_norm(block["norm2"], x)), approximate=True)
        x = x + apply_linear(block["down"], hidden)
    logits = apply_linear(weights["head"], layer_norm(weights["norm"], x[:, -1]))
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[:, None], axis=1).mean()


def training_step(batch, length, width, heads, layers):
    """A function that trains for one step, with the buffers of weights and moments reused."""

    def update(state, tokens, targets):
        weights, means, squares, count = state
        gradient = jax.grad(loss)(weights, tokens, targets, heads)
        count = count + 1
        means = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, means, gradient)
        squares = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, squares, gradient)
        # Adam's bias corrections.
        correction1, correction2 = 1 - BETA1**count, 1 - BETA2**count

        def new_weight(w, m, v):
            step = (m / correction1) / (jnp.sqrt(v / correction2) + EPSILON)
            return w * (1 - LEARNING_RATE * WEIGHT_DECAY) - LEARNING_RATE * step

        return jax.tree.map(new_weight, weights, means, squares), means, squares, count

    compiled = jax.jit(update, donate_argnums=0)
    keys = jax.random.split(jax.random.key(0), 3)
    weights = init(keys[0], length, width, layers)
    zeros = jax.tree.map(jnp.zeros_like, weights)
    state = [(weights, zeros, jax.tree.map(jnp.copy, zeros), jnp.zeros((), jnp.float32))]
    tokens = jax.random.randint(keys[1], (batch, length), 0, VOCABULARY)
    targets = jax.random.randint(keys[2], (batch,), 0, VOCABULARY)

    def step():
        state[0] = jax.block_until_ready(compiled(state[0], tokens, targets))

    return step


def prepare(request, name, *sizes):
    supported = (request, name) == ("train", "full")
    return timed(training_step(*map(int, sizes))) if supported else None


serve(f"jax {jax.__version__}", prepare)
