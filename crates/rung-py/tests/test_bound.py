"""Bounds, certificates and hop maps from Python equal those of the program."""

import json

import pytest
import rung

STACK = "linear*3 full linear*3"
SIZES = {"heads": 16, "head_dim": 128, "bits": 16}
FLAGS = ["--heads=16", "--head-dim=128", "--bits=16"]


def test_answers_equal_the_program(program):
    assert rung.capacity(STACK, **SIZES) == json.loads(program("capacity", STACK, *FLAGS, "--json"))
    assert rung.bound(STACK, hops=2, **SIZES).to_dict() == json.loads(program("bound", STACK, "--hops=2", *FLAGS, "--json"))
    decision = json.loads(program("decide", "linear full", "--hops=2", "--m=106", "--n=1", "--heads=1", "--head-dim=8", "--bits=4", "--json"))
    assert rung.decide("linear full", hops=2, m=106, n=[1], heads=1, head_dim=8, bits=4) == decision
    assert rung.map(STACK, hops=3).rows == json.loads(program("map", STACK, "--hops=3", "--json"))


def test_certificate_is_saved_and_checked(program, tmp_path):
    bound = rung.bound(STACK, hops=2, **SIZES)
    assert bound and bound.tokens == 11_872_292_578 and "11,872,292,578" in repr(bound)
    path = tmp_path / "certificate.json"
    bound.save(path)
    assert "accepted" in program("check", path)
    assert rung.check(path).to_dict() == rung.check(bound.certificate).to_dict() == bound.check().to_dict()
    assert bound.check() and bound.check().tokens == bound.tokens
    changed = bound.certificate | {"m": str(int(bound.certificate["m"]) // 2)}
    rejected = rung.check(changed)
    assert rejected.status in ("refused", "malformed") and not rejected and rejected.reason


def test_tokens_beyond_64_bits_are_exact():
    bound = rung.bound("linear full linear full linear full linear", hops=4)
    assert bound.tokens > 2**64 and str(bound.tokens) == bound.to_dict()["tokens"]
    assert bound.check().accepted


def test_missing_certificate_gives_a_false_bound():
    bound = rung.bound("full full full", hops=2)
    assert not bound and bound.tokens is None and bound.reason
    with pytest.raises(rung.InputError, match="no certificate"):
        bound.check()


def test_hop_map_is_saved_as_svg(tmp_path):
    hop_map = rung.map("linear full", hops=2)
    assert hop_map._repr_svg_().startswith("<svg")
    hop_map.save(tmp_path / "map.svg")
    assert (tmp_path / "map.svg").read_text(encoding="utf-8") == hop_map.svg


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
def test_invalid_input_raises_input_error(call):
    with pytest.raises(rung.InputError):
        call()
