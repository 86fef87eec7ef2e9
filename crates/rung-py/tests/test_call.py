"""Calls into the native module: the GIL, threads, signals, panics and the program."""

import os
import subprocess
import sys
import threading

import pytest
import rung


def test_wheel_contains_the_program(program):
    assert program("--version").strip() == f"rung {rung.__version__}"
    assert "rungs        exactly 8" in program("audit", "qwen3.5-9b")
    assert "error: " in program("audit", "no-such-model", code=2)
    assert program("audit", "-", "--json", input='{"num_hidden_layers": 2, "layer_types": ["full_attention", "odd"]}', code=3)
    assert subprocess.run([sys.executable, "-m", "rung", "--version"], capture_output=True).stdout.startswith(b"rung ")


def test_call_releases_the_gil():
    done = threading.Event()
    ticks = 0

    def work():
        rung.bound("linear*3 full linear*3 full linear*3 full linear*3 full linear*3", hops=5, heads=16, head_dim=128)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.wait(0.001):
        ticks += 1
    thread.join()
    assert ticks > 3


def test_concurrent_calls_get_their_own_answers():
    answers = {}

    def work(layers):
        answers[layers] = rung.capacity("full " * layers)["layers"]

    threads = [threading.Thread(target=work, args=(layers,)) for layers in range(1, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {layers: layers for layers in range(1, 17)}


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_interrupts_a_long_call(interrupt):
    lines = interrupt("""
        import rung
        print("ready", flush=True)
        try:
            rung.run("serve", "--port", "0")
        except KeyboardInterrupt:
            print("left", flush=True)
        print(rung.capacity("full full")["rungs"], flush=True)
    """)
    assert lines[-2:] == ["left", "1"]


@pytest.mark.parametrize("in_command", [True, False])
def test_panic_becomes_rung_error(in_command, capfd):
    with pytest.raises(rung.RungError, match="a bug in Rung, please report it: provoked 7") as error:
        rung._native.panic_for_test("provoked 7", in_command)
    assert not isinstance(error.value, ValueError)
    # The process and later calls still work.
    assert rung.capacity("full full")["rungs"] == 1
    assert "provoked 7" in capfd.readouterr().err


def test_import_is_fast():
    # CPU time, so that other load on the machine does not count.
    script = "import time; start = time.process_time(); import rung; print(time.process_time() - start)"
    times = [float(subprocess.check_output([sys.executable, "-c", script])) for _ in range(5)]
    assert min(times) < 0.15, times
    without_numpy = "import rung, sys; sys.exit(any(name in sys.modules for name in ('numpy', 'torch', 'pandas')))"
    assert subprocess.run([sys.executable, "-c", without_numpy]).returncode == 0
