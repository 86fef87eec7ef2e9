#!/usr/bin/env python3
"""Compares the extracted checker with `rung check` on mutants of certificates.

The certificates of seeds.jsonl are accepted. For each number of each certificate, a bisection finds two neighbouring values of which one is accepted
and the other is not; every value that it visits is compared, and so are the values around the threshold, random changes of several
numbers at once, and broken files. Exit code 0 if all answers agree. Where the extracted checker says that no theorem covers a mutant, nothing is compared.
"""
import argparse
import copy
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent

class Checkers:
    """Asks both programs and keeps what they answer."""

    def __init__(self, verify, rung):
        self.verify, self.rung = verify, rung
        self.counts = {}
        self.mismatches = []

    def codes(self, texts):
        """The exit codes of the extracted checker, one for each text; `rung check` must give the same."""
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as lines:
            lines.write("".join(text + "\n" for text in texts))
            lines.flush()
            found = subprocess.run([self.verify, "--lines", lines.name], capture_output=True, text=True, check=True)
        codes = [int(line) for line in found.stdout.split()]
        assert len(codes) == len(texts), "one answer for each line"
        for text, code in zip(texts, codes):
            other = subprocess.run([self.rung, "check", "-"], input=text.encode(), capture_output=True).returncode
            self.counts[code] = self.counts.get(code, 0) + 1
            if code != 3 and other != code:
                self.mismatches.append((code, other, text))
        return codes


def places(point):
    """Where the numbers of a certificate stand: (field, index), index None for a single number."""
    for name in ("message_bits", "m", "beside_bits", "cell", "group", "varying"):
        if name in point:
            yield name, None
    for part in point.get("embedding", []):
        yield "embedding", part
    for name in ("state_bits", "n", "x", "sigma", "kappa", "tokens_per", "live", "freeze"):
        for index in range(len(point.get(name, []))):
            yield name, index


def get(point, place):
    name, index = place
    return int(point[name] if index is None else point[name][index])


def change(point, place, value):
    """A copy with one number changed."""
    name, index = place
    changed = copy.deepcopy(point)
    written = value if name in ("tokens_per", "embedding", "freeze") else str(value)
    if index is None:
        changed[name] = written
    else:
        changed[name][index] = written
    inner = index - point.get("embedding", {}).get("middle", 0) if name == "n" else -1
    if 0 <= inner < len(point.get("live", [])):
        changed["live"][inner] = written
    return changed


def unit(point, place):
    """Steps that keep the divisibilities: sizes move by multiples of the classes, cells and groups that divide them."""
    name, index = place
    kappa = [int(k) for k in point.get("kappa", [])]
    if "cell" in point and name in ("m", "n"):
        return int(point["cell" if name == "m" else "group"])
    if name == "x" and index == 0 and kappa:
        return kappa[0]
    if name == "n" and index < len(kappa):
        return kappa[index] * (kappa[index + 1] if index + 1 < len(kappa) else 1)
    return 1


def thresholds(checkers, points, rounds):
    """Bisects every number of every point towards larger and smaller values; yields the texts around each threshold."""
    searches = []
    for point in points:
        for place in places(point):
            value, step = get(point, place), unit(point, place)
            start = value // step
            for far in (0, 4 * start + 64):
                searches.append({"point": point, "place": place, "unit": step, "near": start, "far": far})
    for _ in range(rounds):
        open_ones = [s for s in searches if abs(s["near"] - s["far"]) > 1]
        if not open_ones:
            break
        middles = [(s["near"] + s["far"]) // 2 for s in open_ones]
        codes = checkers.codes([json.dumps(change(s["point"], s["place"], middle * s["unit"])) for s, middle in zip(open_ones, middles)])
        for search, middle, code in zip(open_ones, middles, codes):
            search["near" if code == 0 else "far"] = middle
    for search in searches:
        for offset in (-2, -1, 0, 1, 2):
            value = search["near"] * search["unit"] + offset
            if value >= 0:
                yield json.dumps(change(search["point"], search["place"], value))


def scramble(point, source):
    """Two to four numbers changed by a little, or one by a lot."""
    changed = point
    for place in source.sample(list(places(point)), k=min(source.randint(2, 4), len(list(places(point))))):
        value, step = get(changed, place), unit(changed, place)
        changed = change(changed, place, max(0, value + step * source.randint(-3, 3)))
    return json.dumps(changed)


def break_text(point, source):
    """A file that is not quite a certificate."""
    text = json.dumps(point)
    name = source.choice(list(point))
    kind = source.randrange(9)
    if kind == 0:
        return json.dumps({key: value for key, value in point.items() if key != name})
    if kind == 1:
        return json.dumps({**point, name: source.choice([None, True, -1, 1.0, "01", "", "+1", "1e3", [], {}, "7" * 2001, 10**30])})
    if kind == 2:
        return text[:-1] + ', "extra": 1}'
    if kind == 3:
        return text[:-1] + f', "{name}": {json.dumps(point[name])}}}'
    if kind == 4:
        return text[: source.randrange(len(text))]
    if kind == 5:
        return text + source.choice([" ", "}", " 1", "\t"])
    if kind == 6:
        return text[:-1] + ', "why": ' + source.choice(['"\\u00e9\\ud83d\\ude00"', '"\\ud83d"', "1e999", "-0", "01", "1.", '"\t"', "[" * 126 + "]" * 126,
                                                        "[" * 127 + "]" * 127, "nul", "1", '{"a": 1, "a": 2}']) + "}"
    if kind == 7 and isinstance(point[name], list):
        return json.dumps({**point, name: point[name][:-1] if source.random() < 0.5 else point[name] + ["1"]})
    at = source.randrange(len(text))
    return text[:at] + source.choice('0123456789"[]{},: ex-') + text[at + 1:]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rung", default=HERE.parent / "target/release/rung", help="the program `rung`")
    options.add_argument("--verify", default=HERE / "build/rung-verify", help="the extracted checker")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--rounds", type=int, default=64, help="rounds of bisection")
    options.add_argument("--random", type=int, default=1000, help="random changes, and as many broken files")
    chosen = options.parse_args()
    source = random.Random(chosen.seed)
    checkers = Checkers(str(chosen.verify), str(chosen.rung))
    points = [json.loads(line) for line in (HERE / "seeds.jsonl").read_text().splitlines()]
    assert checkers.codes([json.dumps(point) for point in points]) == [0] * len(points), "the seeds are accepted"
    for point in points:
        said = subprocess.run([checkers.rung, "check", "-", "--json"], input=json.dumps(point).encode(), capture_output=True, check=True)
        assert json.loads(said.stdout)["machine_checked"], "`rung check --explain` knows what is machine-checked"
    checkers.codes(list(thresholds(checkers, points, chosen.rounds)))
    checkers.codes([scramble(source.choice(points), source) for _ in range(chosen.random)])
    checkers.codes([break_text(source.choice(points), source) for _ in range(chosen.random)])
    names = {0: "accepted", 1: "refused", 2: "malformed", 3: "not covered"}
    total = ", ".join(f"{count} {names[code]}" for code, count in sorted(checkers.counts.items()))
    print(f"{sum(checkers.counts.values())} certificates compared: {total}; {len(checkers.mismatches)} mismatches")
    for code, other, text in checkers.mismatches[:10]:
        print(f"rung-verify {code}, rung check {other}: {text[:400]}")
    return 1 if checkers.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
