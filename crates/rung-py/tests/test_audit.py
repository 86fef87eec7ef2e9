"""Audits from Python are those of the program."""

import json

import pytest
import rung


def test_every_preset_is_answered_as_by_the_program(program):
    alone = {one["model"]: one for one in json.loads(program("audit", "--all", "--json", code=None))}
    assert set(rung.presets()) and len(alone) == len(rung.presets())
    for name in rung.presets():
        assert rung.audit(name).to_dict() == alone[name], name


def test_every_stored_config_is_answered_as_by_the_program(program, stored_configs, tmp_path):
    assert len(stored_configs) > 50
    for number, line in enumerate(stored_configs):
        (tmp_path / f"{number:04}.json").write_text(json.dumps(line["config"]), encoding="utf-8")
    alone = json.loads(program("audit", tmp_path, "--json", code=None))
    assert len(alone) == len(stored_configs)
    for line, expected in zip(stored_configs, alone):
        for source in (line["config"], json.dumps(line["config"]), expected["source"]):
            found = rung.audit(source).to_dict()
            # A folder's audits are called by their paths, and search no bounds.
            for key in ("model", "source", "certified"):
                assert key in found
                found[key] = expected[key]
            assert found == expected, line["config"].get("model_type")


def test_a_config_object_and_a_path_are_read(tmp_path, program):
    class Config:
        def to_dict(self):
            return {"_name_or_path": "me/mine", "model_type": "llama", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4}

    found = rung.audit(Config(), context=1000)
    assert (found.model, found.strip, found.rungs) == ("me/mine", "FFF", 2)
    assert found.bytes_per_token == 3 * 2 * 64 * 2
    assert found.state_bytes == 0 and found.unknown == [] and found.decided_by and found.stack
    (tmp_path / "config.json").write_text(json.dumps(Config().to_dict()), encoding="utf-8")
    assert rung.audit(tmp_path).to_dict() == json.loads(program("audit", tmp_path, "--json"))


def test_edits_plans_places_and_lint_are_those_of_the_program(program):
    model = rung.audit("qwen3.5-9b", context="32k", kv_dtype="fp8")
    flags = ["--context=32k", "--kv-dtype=fp8"]
    both = json.loads(program("audit", "qwen3.5-9b", *flags, "--what-if=every=8", "--json"))
    assert model.what_if("every=8").to_dict() == both["after"]
    assert model.what_if("every=8").difference == both["difference"]
    twice = json.loads(program("audit", "qwen3.5-9b", *flags, "--what-if=every=8,first=full", "--json"))
    assert model.what_if("every=8").what_if("first=full").to_dict() == twice["after"]
    plan = ["plan", "qwen3.5-9b", "--engine=vllm", "--memory=24GiB", "--tp=1", "--context=32k", "--json"]
    assert model.plan(engine="vllm", memory="24GiB", tp=1, context="32k") == json.loads(program(*plan))
    edited = model.what_if("every=8").plan(engine="vllm", memory="24GiB", tp=1, context="32k")
    assert edited == json.loads(program(*plan, "--what-if=every=8"))
    assert model.place(budget="4GiB") == json.loads(program("place", "qwen3.5-9b", *flags, "--budget=4GiB", "--json"))
    broken = {"model_type": "llama", "num_hidden_layers": 4, "layer_types": ["full_attention"] * 3, "hidden_size": 64, "num_attention_heads": 4}
    found = rung.run("lint", "-", "--json", input=json.dumps(broken), name="stdin")
    assert found == program("lint", "-", "--json", input=json.dumps(broken), code=None)
    assert any(finding["severity"] == "error" for finding in json.loads(found)["findings"])


def test_what_notebooks_show():
    model = rung.audit("qwen3.5-9b")
    page = model._repr_html_()
    assert page.startswith("<table>") and "32,768" in page and "qwen3.5-9b" in page
    assert "rrrF" in repr(model) and "exactly 8" in str(model)
    unknown = {"num_hidden_layers": 2, "layer_types": ["full_attention", "<odd>"], "hidden_size": 8, "num_attention_heads": 2}
    page = rung.audit(unknown)._repr_html_()
    assert "unknown" in page and "<odd>" not in page


@pytest.mark.parametrize("bad", ["no-such-model", "{", '{"num_hidden_layers": -2}', {"num_hidden_layers": -2}, 7, None])
def test_bad_input_is_an_error_with_the_programs_message(bad):
    with pytest.raises(rung.RungError) as error:
        rung.audit(bad)
    assert isinstance(error.value, ValueError) and str(error.value)


def test_errors_are_the_programs(program):
    with pytest.raises(rung.InputError) as error:
        rung.audit("qwen3.5-9b").what_if("99=full")
    assert str(error.value) in program("audit", "qwen3.5-9b", "--what-if=99=full", code=2)
    with pytest.raises(rung.InputError, match="reads the config itself"):
        rung.audit("qwen3.5-9b").what_if("every=8").lint()
