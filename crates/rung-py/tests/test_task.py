"""Tasks: prompts as arrays equal those of the program and agree with the oracle."""

import json
import pickle

import numpy
import pytest
import rung

TASKS = [line["defaults"] for line in json.loads(rung.run("task", "list", "--json"))]


@pytest.mark.parametrize("spec", TASKS)
def test_samples_equal_the_program(spec):
    task = rung.task(spec)
    assert str(task) == spec and pickle.loads(pickle.dumps(task)).spec == spec
    batch = task.sample(5, seed=11)
    lines = [json.loads(line) for line in rung.run("task", "sample", spec, "--count=5", "--seed=11").splitlines()]
    assert batch.tokens.tolist() == [line["tokens"] for line in lines]
    assert batch.targets.tolist() == [[-1 if target is None else target for target in line["targets"]] for line in lines]
    assert batch.hops.tolist() == [line["groups"] for line in lines]
    assert (batch.mask == (batch.targets >= 0)).all() and batch.mask.any()
    for tokens, targets in zip(batch.tokens, batch.targets):
        assert (task.answer(tokens) == targets).all()
    assert batch.targets.max() < task.classes and 0 <= task.baseline <= 1


def test_arrays_share_the_memory_of_the_rust_vectors():
    batch = rung.task("funccomp{hops=2,m=8,n=[4]}").sample(100, seed=1)
    for array, dtype in zip(batch, ("int32", "int32", "bool", "uint16")):
        assert array.dtype == dtype and array.flags.c_contiguous and array.flags.writeable
        owner = array
        while isinstance(owner, numpy.ndarray):
            owner = owner.base
        # The memory is a Rust vector's, which the array keeps alive.
        assert type(owner).__name__ == "Array"


def test_instances_can_be_enumerated():
    task = rung.task("funccomp{hops=1,m=2}")
    prompts = {task.instance(index).tokens.tobytes() for index in range(task.instances)}
    assert len(prompts) == task.instances
    with pytest.raises(rung.InputError, match="expected less than"):
        task.instance(task.instances)


def test_to_zoology_has_int64_inputs_and_labels():
    data = rung.task("mqar").to_zoology(4, seed=2)
    batch = rung.task("mqar").sample(4, seed=2)
    assert data["inputs"].dtype == data["labels"].dtype == numpy.int64
    assert ((data["labels"] == -100) == ~batch.mask).all() and (data["inputs"] == batch.tokens).all()


def test_dataset_does_not_depend_on_the_number_of_workers():
    torch = pytest.importorskip("torch")
    data = rung.task("funccomp{hops=1,m=4}").dataset(seed=5, batch=3, batches=7)
    expected = [batch["tokens"] for batch in data]
    assert len({array.tobytes() for array in expected}) == 7
    for workers in (0, 1, 2, 3):
        loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=workers)
        batches = [batch["tokens"].numpy() for batch in loader]
        assert sorted(array.tobytes() for array in batches) == sorted(array.tobytes() for array in expected), workers
    unpickled = pickle.loads(pickle.dumps(data))
    assert (unpickled[6]["tokens"] == expected[6]).all() and type(unpickled) is type(data)


def test_text_prompts_equal_the_program(program):
    spec = "funccomp{hops=2,m=4,n=[1]}"
    lines = program("task", "prompt", spec, "--count=3", "--seed=4", "--shots=1", "--json").splitlines()
    assert rung.task(spec).prompt(3, seed=4, shots=1) == [json.loads(line) for line in lines]
    assert rung.task(spec).draw(0) == json.loads(rung.run("task", "show", spec, "--json"))["sample"]


@pytest.mark.parametrize("call", [
    lambda: rung.task("no-such-task"),
    lambda: rung.task("funccomp{hops=0}"),
    lambda: rung.task("parity").sample(10**15),
    lambda: rung.task("parity").sample(-1),
    lambda: rung.task("parity").sample(1, seed=-1),
    lambda: rung.task("parity").sample(10**30),
    lambda: rung.task("parity").instance(10**60),
    lambda: rung.task("parity").dataset(seed=2**64),
    lambda: rung.task("parity").answer([1, 2]),
    lambda: rung.task("parity").answer([[0.5]]),
    lambda: rung.task("parity").answer([-1] * rung.task("parity").length),
    lambda: rung.task("parity").dataset(batch=0),
    lambda: rung.task("parity").prompt(),
])  # fmt: skip
def test_invalid_input_raises_input_error(call):
    with pytest.raises(rung.InputError):
        call()
