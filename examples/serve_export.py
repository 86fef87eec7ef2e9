"""Serve an exported network with llama.cpp on this machine, so that `rung ask` can put questions to it.

    rung construct U1 --hops 2 --m 8 --n 1 --out u1
    rung export u1 --to gguf --beyond 1 --out u1-gguf
    python examples/serve_export.py u1-gguf/model.gguf 8080 &
    rung ask http://127.0.0.1:8080 --style tokens --hops 0..3 --entries 8 --count 100

Needs `pip install xllamacpp`. Listens on the loopback address only and runs until it is stopped.
"""

import sys
import time

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path, params.port = sys.argv[1], int(sys.argv[2])
params.n_ctx, params.n_parallel, params.warmup, params.cpuparams.n_threads = 4096, 4, False, 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
while True:
    time.sleep(60)
