"""Runs a folder of `rung construct U1 --out DIR` in PyTorch: the same weights, another forward pass, the same answers.

    python crates/rung-nn/examples/verify_construction.py DIR [INSTANCES]
"""
import json, random, re, struct, sys
import torch

folder, instances = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200
sheet = json.load(open(f"{folder}/construction.json"))
raw = open(f"{folder}/model.safetensors", "rb").read()
size = struct.unpack("<Q", raw[:8])[0]
weights = {}
for name, info in json.loads(raw[8 : 8 + size]).items():
    if name != "__metadata__":
        first, last = (8 + size + offset for offset in info["data_offsets"])
        kind = {"F32": torch.float32, "F64": torch.float64}[info["dtype"]]
        weights[name] = torch.frombuffer(bytearray(raw[first:last]), dtype=kind).reshape(info["shape"])

sizes = re.search(r"m=(\d+),n=\[([\d,]*)\]", sheet["task"])
m, n = int(sizes[1]), [int(x) for x in sizes[2].split(",") if x]
fields = sheet["model"]["fields"]
blank = [vocabulary - 1 for _, vocabulary in fields]


def prompt():
    """Tables from the last to the first, z_0, w; and the answer, by walking through the tables."""
    tables, entries = [], m
    for branch in [1] + n:
        entries *= branch
        tables.append([random.randrange(entries) for _ in range(entries)])
    start, parts = random.randrange(m), [random.randrange(x) for x in n]
    rows, inner = [], [m] + [len(table) for table in tables[:-1]]
    for level in reversed(range(len(tables))):
        for argument, value in enumerate(tables[level]):
            outer = argument // inner[level] if level else blank[1]
            rows.append([level, outer, argument % inner[level], value] + blank[4:])
    rows.append([len(tables), blank[1], blank[2], start] + blank[4:])
    rows.append([len(tables) + 1] + blank[1:4] + parts)
    reached = tables[0][start]
    for level in range(1, len(tables)):
        reached = tables[level][parts[level - 1] * inner[level] + reached]
    return torch.tensor(rows), reached


def answer(tokens):
    x = sum(weights[f"embeddings.{name}.weight"][tokens[:, at]] for at, (name, _) in enumerate(fields))
    mask = torch.full((len(x), len(x)), float("-inf"), dtype=x.dtype).triu(1)
    for layer in range(len(sheet["layers"])):
        w = {name: weights[f"layers.{layer}.{name}_proj.weight"].T for name in
             ("mixer.q", "mixer.k", "mixer.v", "mixer.o", "mlp.up", "mlp.down")}
        q, k, v = (x @ w[f"mixer.{part}"] for part in "qkv")
        x = x + torch.softmax(q @ k.T / k.shape[1] ** 0.5 + mask, -1) @ v @ w["mixer.o"]
        x = x + torch.relu(x @ w["mlp.up"]) @ w["mlp.down"]
    return int((x[-1] @ weights["lm_head.weight"].T).argmax())


random.seed(0)
right = sum(answer(tokens) == reached for tokens, reached in (prompt() for _ in range(instances)))
print(f"{right} of {instances} right")
sys.exit(right != instances)
