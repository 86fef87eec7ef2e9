"""`rung.ask` gives the same results as the program."""

import json
import os
import threading
import time
from pathlib import Path
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import rung


class Server(BaseHTTPRequestHandler):
    """A chat server whose model always answers the same letter."""

    seconds = 0.0
    """Seconds before each answer."""

    def log_message(self, *arguments):
        pass

    def reply(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply({"data": [{"id": "letter"}]})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.seconds)
        top_logprobs = [{"token": "A", "logprob": -0.1}, {"token": "B", "logprob": -2.5}]
        self.reply({"choices": [{"message": {"content": "A"}, "logprobs": {"content": [{"token": "A", "logprob": -0.1, "top_logprobs": top_logprobs}]}}]})


@pytest.fixture
def address():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_ask_equals_the_program(address, program, tmp_path):
    report = rung.ask(address, protocol="chat", hops=range(0, 3), entries=[4], count=8, seed=1)
    assert report.svg.startswith("<svg") and report["open"] == 0
    options = ["--protocol=chat", "--hops=0..2", "--entries=4", "--count=8", "--seed=1", "--json"]
    expected = json.loads(program("ask", address, *options, f"--out={tmp_path / 'a.jsonl'}"))
    report.pop("record"), expected.pop("record")
    assert report.to_dict() == expected
    record = tmp_path / "b.jsonl"
    rung.ask(address, protocol="chat", hops=[0, 1], entries=[4], count=4, out=record)
    assert len(record.read_text().splitlines()) == 1 + 2 * 4


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("out", ["mine.jsonl", None])
def test_ctrl_c_saves_the_answers(address, out, interrupt, tmp_path, monkeypatch):
    monkeypatch.setattr(Server, "seconds", 0.05)
    questions = {"protocol": "chat", "hops": [0, 1], "entries": [4], "count": 50, "concurrency": 1}
    lines = interrupt(f"""
        import rung
        try:
            rung.ask({address!r}, out={out!r}, progress=lambda line: print(line, flush=True), **{questions!r})
        except KeyboardInterrupt as error:
            print(error, flush=True)
    """, after=0.3)  # fmt: skip
    assert lines[-1].startswith("the answers so far were written; the same call with out=")
    record = tmp_path / lines[-1].split("'")[1]
    answer_count = len(record.read_text().splitlines()) - 1
    assert 1 < answer_count < 100 and (out is None or record == tmp_path / out)
    monkeypatch.setattr(Server, "seconds", 0.0)
    progress_lines = []
    report = rung.ask(address, out=record, progress=progress_lines.append, **questions)
    assert report["open"] == 0 and len(record.read_text().splitlines()) == 1 + 100
    assert all(int(line.split()[0]) > answer_count for line in progress_lines)
    if out is None:
        record.unlink()
        Path(record).parent.rmdir()
