"""Training: records, sweeps, and checkpoints at Ctrl-C."""

import os

import pytest
import rung

TASK = "funccomp{hops=1,m=4,queries=4}"


def test_run_is_recorded_loaded_and_not_repeated(tmp_path):
    lines = []
    config = {"stack": "gdn full", "task": TASK, "train": {"steps": 60, "rate": 4e-3}, "evaluate": {"every": 20, "stop_at": 2.0}}
    run = rung.train(config, out=tmp_path / "first", progress=lines.append)
    assert run.record["config"]["train"]["steps"] == 60 and set(run.accuracy) == {1}
    network = run.load()
    batch = network.task.sample(64, seed=9)
    accuracy = (network.forward(batch.tokens).argmax(-1) == batch.targets)[batch.mask].mean()
    assert abs(accuracy - run.accuracy[1]) < 0.2
    # The same config is not trained again, and gives the same record.
    assert rung.train(config, out=tmp_path / "first").record == run.record
    text = 'stack = "gdn full"\ntask = "%s"\n[train]\nsteps = 60\nrate = 4e-3\n[evaluate]\nevery = 20\nstop_at = 2.0\n' % TASK
    assert rung.train(text, out=tmp_path / "second").record == run.record
    pandas = pytest.importorskip("pandas")
    curve = run.to_pandas()
    assert isinstance(curve, pandas.DataFrame) and list(curve["step"]) == [20, 40, 60] and {"hops", "mean", "loss"} <= set(curve)


def test_sweep_returns_every_record(tmp_path):
    grid = {"seeds": [0, 1], "base": {"task": TASK, "train": {"steps": 10}}, "grid": {"stack": ["full", "gdn full"], "train.rate": [1e-3]}}
    records = rung.sweep(grid, out=tmp_path)
    assert len(records) == 4 and {record["config"]["seed"] for record in records} == {0, 1}
    assert rung.sweep(grid, out=tmp_path) == records
    assert len(rung.runs(tmp_path, where=["stack=full"])) == 2
    pytest.importorskip("pandas")
    table = records.to_pandas()
    assert len(table) == 4 and set(table["rungs"]) == {0, 1} and (table["hops"] == 1).all()


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_saves_a_checkpoint(interrupt, tmp_path):
    lines = interrupt(f"""
        import rung
        try:
            rung.train(stack="gdn full", task="{TASK}", steps=200000, out="run", threads=1, set={{"evaluate.stop_at": 2.0}},
                       progress=lambda line: print(line, flush=True))
        except KeyboardInterrupt as error:
            print("interrupted:", error, flush=True)
    """)
    assert lines[-1] == "interrupted: a checkpoint was written; rung.train(resume='run') resumes it"
    assert any(path.name != "run.toml" for path in (tmp_path / "run").iterdir())
    with pytest.raises(rung.InputError, match="found a checkpoint"):
        rung.train(stack="gdn full", task=TASK, steps=200000, out=tmp_path / "run")


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_interrupted_sweep_can_be_resumed(interrupt, tmp_path):
    grid = {"base": {"task": TASK, "train": {"steps": 300}, "evaluate": {"stop_at": 2.0}}, "grid": {"stack": ["full", "gdn full", "mamba2 full"]}}
    lines = interrupt(f"""
        import rung
        try:
            rung.sweep({grid!r}, out="runs", threads=1, progress=lambda line: print(line, flush=True))
        except KeyboardInterrupt as error:
            print("interrupted:", error, flush=True)
    """, after=0.0)  # fmt: skip
    assert lines[-1] == "interrupted: checkpoints were written; the same call resumes them"
    assert len(rung.runs(tmp_path / "runs")) < 3
    # The sweep resumes from its checkpoints, and its records equal those of an uninterrupted sweep.
    steps = []
    resumed = rung.sweep(grid, out=tmp_path / "runs", threads=1, progress=lambda line: steps.append(int(line.split()[1])))
    uninterrupted = rung.sweep(grid, out=tmp_path / "whole", threads=1)
    assert len(resumed) == 3 and steps[0] > 1
    outcomes = lambda records: sorted((record["id"], record["loss"], record["steps"]) for record in records)  # noqa: E731
    assert outcomes(resumed) == outcomes(uninterrupted)


def test_error_in_the_progress_function_is_raised(tmp_path):
    def fail(line):
        raise ZeroDivisionError(line)

    with pytest.raises(ZeroDivisionError, match="step"):
        rung.train(stack="gdn full", task=TASK, steps=200000, out=tmp_path / "run", threads=1, set={"evaluate.stop_at": 2.0}, progress=fail)


@pytest.mark.parametrize("call", [
    lambda: rung.train({"stack": "gdn full"}),
    lambda: rung.train({"stack": "gdn full", "task": TASK, "train": {"stepps": 3}}),
    lambda: rung.train({"stack": "gdn full", "task": TASK, "train": {"steps": object()}}),
    lambda: rung.train("/no/such/file.toml"),
    lambda: rung.train(stack="gdn full"),
    lambda: rung.sweep({"base": {}}),
    lambda: rung.runs("/no/such/folder"),
])  # fmt: skip
def test_invalid_input_raises_input_error(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(rung.InputError):
        call()
