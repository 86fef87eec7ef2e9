"""Networks: forward passes, weights and instruments."""

import json

import numpy
import pytest
import rung


@pytest.fixture(scope="module")
def built():
    return rung.construct("U2", hops=2, m=3, n=[2], mixer="gdn")


def test_a_construction_answers_as_the_oracle(built):
    batch = built.task.sample(64, seed=1)
    logits = built.forward(batch.tokens)
    assert logits.dtype == numpy.float32 and logits.shape == (64, built.task.length, built.classes)
    assert (logits.argmax(-1) == batch.targets)[batch.mask].all()
    # One sequence by itself is the same as in its batch.
    numpy.testing.assert_allclose(built.forward(batch.tokens[5]), logits[5], rtol=1e-4, atol=1e-4)


def test_weights_go_out_and_in(built, tmp_path, program):
    built.save(tmp_path / "u2")
    network = rung.load(tmp_path / "u2")
    weights = network.weights()
    assert sum(array.size for array in weights.values()) == json.loads(program("construct", "U2", "--hops=2", "--m=3", "--n=2", "--mixer=gdn", "--json"))["weights"]
    network.save_weights(tmp_path / "w.safetensors")
    safetensors = pytest.importorskip("safetensors.numpy") if _has("safetensors") else None
    if safetensors is not None:
        stored = safetensors.load_file(tmp_path / "w.safetensors")
        assert set(stored) == set(weights) and all((stored[name] == weights[name]).all() for name in weights)
    batch = network.task.sample(16, seed=2)
    before = network.forward(batch.tokens)
    network.set_weights({name: numpy.zeros_like(array) for name, array in weights.items()})
    assert (network.forward(batch.tokens) == 0).all()
    assert network.verify(50)["correct"] < 50
    network.load_weights(tmp_path / "w.safetensors")
    assert (network.forward(batch.tokens) == before).all()
    assert network.verify(50)["correct"] == 50


def _has(name):
    import importlib.util

    return importlib.util.find_spec(name) is not None


def test_a_wrong_weight_changes_nothing(built):
    name, array = next(iter(built.weights().items()))
    for wrong in ({"no.such": array}, {name: array[..., :-1]}, {name: array + 1, "no.such": array}):
        with pytest.raises(rung.InputError):
            built.set_weights(wrong)
    assert (built.weights()[name] == array).all()


def test_instruments_are_the_programs(built, tmp_path, program):
    folder = tmp_path / "u2"
    built.save(folder)
    assert built.trace(seed=1).to_dict() == json.loads(program("trace", folder, "--seed=1", "--json"))
    assert built.analyze("probe", prompts=50).to_dict() == json.loads(program("analyze", "probe", folder, "--prompts=50", "--json"))
    assert built.trace()._repr_svg_().startswith("<svg") and built.analyze("probe", prompts=50).figure.svg.startswith("<svg")
    verified = json.loads(program("verify", folder, "--samples=50", "--json"))
    found = built.verify(50)
    assert found.pop("seconds") >= 0 and verified.pop("seconds") >= 0 and found == verified


@pytest.mark.parametrize("ids", [[], [[1.5]], [0, 1], [[-1] * 5], [[10**6] * 5]])
def test_bad_ids_are_refused(built, ids):
    with pytest.raises(rung.InputError):
        built.forward(ids)


def test_bad_paths_and_names_are_refused(built, tmp_path):
    with pytest.raises(rung.InputError, match="expected a folder"):
        rung.load(tmp_path)
    with pytest.raises(rung.InputError):
        rung.construct("U99")
    with pytest.raises(rung.InputError, match="there is no instrument"):
        built.analyze("telescope")
    with pytest.raises(rung.InputError):
        built.audit()


def test_a_checkpoint_gives_the_logits_of_transformers(tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(tmp_path)
    ids = torch.randint(0, 64, (2, 9))
    with torch.no_grad():
        theirs = model(ids).logits.numpy()
    network = rung.load(tmp_path)
    numpy.testing.assert_allclose(network.forward(ids.numpy()), theirs, rtol=1e-3, atol=1e-4)
    assert network.source == "checkpoint" and network.task is None and network.audit().strip == "FF"
    assert rung.audit(model.config).rungs == network.audit().rungs == 1
