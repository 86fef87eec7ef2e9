"""Networks: forward passes, weights and analyses."""

import json

import numpy
import pytest
import rung


@pytest.fixture(scope="module")
def construction():
    return rung.construct("U2", hops=2, m=3, n=[2], mixer="gdn")


def test_construction_agrees_with_the_oracle(construction):
    batch = construction.task.sample(64, seed=1)
    logits = construction.forward(batch.tokens)
    assert logits.dtype == numpy.float32 and logits.shape == (64, construction.task.length, construction.classes)
    assert (logits.argmax(-1) == batch.targets)[batch.mask].all()
    # A single sequence gives the same logits as in a batch.
    numpy.testing.assert_allclose(construction.forward(batch.tokens[5]), logits[5], rtol=1e-4, atol=1e-4)


def test_weights_can_be_read_replaced_and_restored(construction, tmp_path, program):
    construction.save(tmp_path / "u2")
    network = rung.load(tmp_path / "u2")
    weights = network.weights()
    assert sum(array.size for array in weights.values()) == json.loads(program("construct", "U2", "--hops=2", "--m=3", "--n=2", "--mixer=gdn", "--json"))["weights"]
    network.save_weights(tmp_path / "w.safetensors")
    safetensors = pytest.importorskip("safetensors.numpy") if _is_installed("safetensors") else None
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


def _is_installed(name):
    import importlib.util

    return importlib.util.find_spec(name) is not None


def test_invalid_weight_leaves_the_network_unchanged(construction):
    name, array = next(iter(construction.weights().items()))
    for wrong in ({"no.such": array}, {name: array[..., :-1]}, {name: array + 1, "no.such": array}):
        with pytest.raises(rung.InputError):
            construction.set_weights(wrong)
    assert (construction.weights()[name] == array).all()


def test_trace_analyze_and_verify_equal_the_program(construction, tmp_path, program):
    folder = tmp_path / "u2"
    construction.save(folder)
    assert construction.trace(seed=1).to_dict() == json.loads(program("trace", folder, "--seed=1", "--json"))
    assert construction.analyze("probe", prompts=50).to_dict() == json.loads(program("analyze", "probe", folder, "--prompts=50", "--json"))
    assert construction.trace()._repr_svg_().startswith("<svg") and construction.analyze("probe", prompts=50).figure.svg.startswith("<svg")
    expected = json.loads(program("verify", folder, "--samples=50", "--json"))
    result = construction.verify(50)
    assert result.pop("seconds") >= 0 and expected.pop("seconds") >= 0 and result == expected


@pytest.mark.parametrize("ids", [[], [[1.5]], [0, 1], [[-1] * 5], [[10**6] * 5]])
def test_invalid_ids_raise_input_error(construction, ids):
    with pytest.raises(rung.InputError):
        construction.forward(ids)


def test_invalid_paths_and_names_raise_input_error(construction, tmp_path):
    with pytest.raises(rung.InputError, match="expected a folder"):
        rung.load(tmp_path)
    with pytest.raises(rung.InputError):
        rung.construct("U99")
    with pytest.raises(rung.InputError, match="there is no analysis"):
        construction.analyze("telescope")
    with pytest.raises(rung.InputError):
        construction.audit()


def test_checkpoint_logits_equal_transformers(tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(tmp_path)
    ids = torch.randint(0, 64, (2, 9))
    with torch.no_grad():
        expected = model(ids).logits.numpy()
    network = rung.load(tmp_path)
    numpy.testing.assert_allclose(network.forward(ids.numpy()), expected, rtol=1e-3, atol=1e-4)
    assert network.source == "checkpoint" and network.task is None and network.audit().strip == "FF"
    assert rung.audit(model.config).rungs == network.audit().rungs == 1
