"""Audits from Python equal those of the program."""

import json

import pytest
import rung


def test_audit_of_every_preset_equals_the_program(program):
    expected = {audit["model"]: audit for audit in json.loads(program("audit", "--all", "--json", code=None))}
    assert set(rung.presets()) and len(expected) == len(rung.presets())
    for name in rung.presets():
        assert rung.audit(name).to_dict() == expected[name], name


def test_audit_of_every_stored_config_equals_the_program(program, stored_configs, tmp_path):
    assert len(stored_configs) > 50
    for number, line in enumerate(stored_configs):
        (tmp_path / f"{number:04}.json").write_text(json.dumps(line["config"]), encoding="utf-8")
    audits = json.loads(program("audit", tmp_path, "--json", code=None))
    assert len(audits) == len(stored_configs)
    for line, expected in zip(stored_configs, audits):
        for source in (line["config"], json.dumps(line["config"]), expected["source"]):
            result = rung.audit(source).to_dict()
            # Audits of a folder are named by their paths and search no bounds.
            for key in ("model", "source", "certified"):
                assert key in result
                result[key] = expected[key]
            assert result == expected, line["config"].get("model_type")


def test_audit_accepts_config_objects_and_paths(tmp_path, program):
    class Config:
        def to_dict(self):
            return {"_name_or_path": "me/mine", "model_type": "llama", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4}

    result = rung.audit(Config(), context=1000)
    assert (result.model, result.strip, result.rungs) == ("me/mine", "FFF", 2)
    assert result.bytes_per_token == 3 * 2 * 64 * 2
    assert result.state_bytes == 0 and result.unknown == [] and result.decided_by and result.stack
    (tmp_path / "config.json").write_text(json.dumps(Config().to_dict()), encoding="utf-8")
    assert rung.audit(tmp_path).to_dict() == json.loads(program("audit", tmp_path, "--json"))


def test_what_if_plan_place_and_lint_equal_the_program(program):
    model = rung.audit("qwen3.5-9b", context="32k", kv_dtype="fp8")
    flags = ["--context=32k", "--kv-dtype=fp8"]
    before_and_after = json.loads(program("audit", "qwen3.5-9b", *flags, "--what-if=every=8", "--json"))
    assert model.what_if("every=8").to_dict() == before_and_after["after"]
    assert model.what_if("every=8").difference == before_and_after["difference"]
    edited_twice = json.loads(program("audit", "qwen3.5-9b", *flags, "--what-if=every=8,first=full", "--json"))
    assert model.what_if("every=8").what_if("first=full").to_dict() == edited_twice["after"]
    plan = ["plan", "qwen3.5-9b", "--engine=vllm", "--memory=24GiB", "--tp=1", "--context=32k", "--json"]
    assert model.plan(engine="vllm", memory="24GiB", tp=1, context="32k") == json.loads(program(*plan))
    edited = model.what_if("every=8").plan(engine="vllm", memory="24GiB", tp=1, context="32k")
    assert edited == json.loads(program(*plan, "--what-if=every=8"))
    assert model.place(budget="4GiB") == json.loads(program("place", "qwen3.5-9b", *flags, "--budget=4GiB", "--json"))
    broken = {"model_type": "llama", "num_hidden_layers": 4, "layer_types": ["full_attention"] * 3, "hidden_size": 64, "num_attention_heads": 4}
    result = rung.run("lint", "-", "--json", input=json.dumps(broken), name="stdin")
    assert result == program("lint", "-", "--json", input=json.dumps(broken), code=None)
    assert any(finding["severity"] == "error" for finding in json.loads(result)["findings"])


def test_notebook_and_text_representations():
    model = rung.audit("qwen3.5-9b")
    page = model._repr_html_()
    assert page.startswith("<table>") and "32,768" in page and "qwen3.5-9b" in page
    assert "rrrF" in repr(model) and "exactly 8" in str(model)
    unknown = {"num_hidden_layers": 2, "layer_types": ["full_attention", "<odd>"], "hidden_size": 8, "num_attention_heads": 2}
    page = rung.audit(unknown)._repr_html_()
    assert "unknown" in page and "<odd>" not in page


@pytest.mark.parametrize("bad", ["no-such-model", "{", '{"num_hidden_layers": -2}', {"num_hidden_layers": -2}, 7, None])
def test_invalid_input_raises_rung_error(bad):
    with pytest.raises(rung.RungError) as error:
        rung.audit(bad)
    assert isinstance(error.value, ValueError) and str(error.value)


def test_error_messages_equal_the_program(program):
    with pytest.raises(rung.InputError) as error:
        rung.audit("qwen3.5-9b").what_if("99=full")
    assert str(error.value) in program("audit", "qwen3.5-9b", "--what-if=99=full", code=2)
    with pytest.raises(rung.InputError, match="reads the config itself"):
        rung.audit("qwen3.5-9b").what_if("every=8").lint()
