"""Bounds, certificates and maps from Python are those of the program."""

import json

import pytest
import rung

STACK = "linear*3 full linear*3"
SIZES = {"heads": 16, "head_dim": 128, "bits": 16}
FLAGS = ["--heads=16", "--head-dim=128", "--bits=16"]


def test_answers_are_the_programs(program):
    assert rung.capacity(STACK, **SIZES) == json.loads(program("capacity", STACK, *FLAGS, "--json"))
    assert rung.bound(STACK, hops=2, **SIZES).to_dict() == json.loads(program("bound", STACK, "--hops=2", *FLAGS, "--json"))
    decided = json.loads(program("decide", "linear full", "--hops=2", "--m=106", "--n=1", "--heads=1", "--head-dim=8", "--bits=4", "--json"))
    assert rung.decide("linear full", hops=2, m=106, n=[1], heads=1, head_dim=8, bits=4) == decided
    assert rung.map(STACK, hops=3).rows == json.loads(program("map", STACK, "--hops=3", "--json"))


def test_a_certificate_is_saved_and_checked(program, tmp_path):
    found = rung.bound(STACK, hops=2, **SIZES)
    assert found and found.tokens == 11_872_292_578 and "11,872,292,578" in repr(found)
    path = tmp_path / "certificate.json"
    found.save(path)
    assert "accepted" in program("check", path)
    assert rung.check(path).to_dict() == rung.check(found.certificate).to_dict() == found.check().to_dict()
    assert found.check() and found.check().tokens == found.tokens
    spoiled = found.certificate | {"m": str(int(found.certificate["m"]) // 2)}
    refused = rung.check(spoiled)
    assert refused.status in ("refused", "malformed") and not refused and refused.reason


def test_tokens_beyond_64_bits_are_exact():
    found = rung.bound("linear full linear full linear full linear", hops=4)
    assert found.tokens > 2**64 and str(found.tokens) == found.to_dict()["tokens"]
    assert found.check().accepted


def test_no_certificate_is_no_error():
    found = rung.bound("full full full", hops=2)
    assert not found and found.tokens is None and found.reason
    with pytest.raises(rung.InputError, match="no certificate"):
        found.check()


def test_a_map_is_a_figure(tmp_path):
    found = rung.map("linear full", hops=2)
    assert found._repr_svg_().startswith("<svg")
    found.save(tmp_path / "map.svg")
    assert (tmp_path / "map.svg").read_text(encoding="utf-8") == found.svg


@pytest.mark.parametrize("call", [
    lambda: rung.capacity("full full*"),
    lambda: rung.bound("full", hops=0),
    lambda: rung.bound("full", hops=-1),
    lambda: rung.decide("full", hops=2, m=3),
    lambda: rung.decide("full", hops=1, m="many"),
    lambda: rung.map("full", hops=10**6),
    lambda: rung.check("/no/such/file"),
    lambda: rung.run("no-such-command"),
])  # fmt: skip
def test_bad_input_is_refused(call):
    with pytest.raises(rung.InputError):
        call()
