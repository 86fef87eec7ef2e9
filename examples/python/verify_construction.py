"""Runs hand-built weights in PyTorch: another forward pass, the same answers.

    python examples/python/verify_construction.py [PROMPTS]

U1 is full attention alone. Its weights come as arrays; the network around them is written again below, in a few lines.
"""

import sys

import numpy
import rung
import torch

PROMPTS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
network = rung.construct("U1", hops=2, m=4, n=[2])
weights = {name: torch.from_numpy(array.copy()) for name, array in network.weights().items()}
layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("layers."))


def forward(tokens):
    x = sum(weights[f"embeddings.{name}.weight"][tokens[..., column]] for column, name in enumerate(network.fields))
    for layer in range(layers):
        q, k, v = (x @ weights[f"layers.{layer}.mixer.{part}_proj.weight"].T for part in "qkv")
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + mixed @ weights[f"layers.{layer}.mixer.o_proj.weight"].T
        hidden = torch.relu(x @ weights[f"layers.{layer}.mlp.up_proj.weight"].T)
        x = x + hidden @ weights[f"layers.{layer}.mlp.down_proj.weight"].T
    return x @ weights["lm_head.weight"].T


batch = network.task.sample(PROMPTS, seed=0)
torch_logits = forward(torch.from_numpy(batch.tokens).long()).numpy()
rung_logits = network.forward(batch.tokens)
right = (torch_logits.argmax(-1) == batch.targets)[batch.mask]
# Only positions with a question are compared: elsewhere logits may be any large numbers, which agree only to the precision of float32.
difference = numpy.abs(torch_logits - rung_logits)[batch.mask].max()
print(f"PyTorch: {right.sum()} of {right.size} right; logits differ from rung's by at most {difference:.2g}")
assert right.all() and difference < 1e-2 * max(1.0, numpy.abs(rung_logits[batch.mask]).max())
assert network.verify(PROMPTS)["correct"] == PROMPTS
