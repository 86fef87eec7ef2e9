"""Audits of models, from their configs."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from ._call import run, run_json
from ._errors import InputError

_COLOURS = {"F": "#c0392b", "r": "#2e86c1", "w": "#27ae60", "s": "#af7ac5", "h": "#d68910"}


def audit(
    x: Any,
    *,
    context: int | str | None = None,
    kv_dtype: str | None = None,
    state_dtype: str | None = None,
    certify: bool = False,
) -> Audit:
    """Reads a model's config: its layers, its KV cache and state, and how many hops the layers can do in one pass.

    `x` is a preset's name, a path (a config.json, a folder with one, a GGUF file), the text of a config, a dict, or anything
    with a `to_dict()`, such as the `config` of a transformers model.

    >>> model = audit("qwen3.5-9b", context="128k")
    >>> model.rungs, model.strip
    (8, 'rrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrF')
    >>> model.what_if("every=8").rungs
    4
    >>> audit({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}).strip
    'FF'
    """
    name, text = _name_and_config(x)
    options = {"context": context, "kv_dtype": kv_dtype, "state_dtype": state_dtype, "certify": certify}
    return Audit(_Model(name, text, options))


def presets() -> list[str]:
    """The names of the public models that Rung knows.

    >>> "qwen3.5-9b" in presets()
    True
    """
    return [model["name"] for model in run_json("audit", "--list")]


def _name_and_config(x: Any) -> tuple[str, str | None]:
    """The model's name for the command line, and the text of its config if `x` is one."""
    if hasattr(x, "to_dict"):
        x = x.to_dict()
    if isinstance(x, dict):
        name = x.get("_name_or_path") or x.get("name_or_path") or x.get("model_type") or "config"
        return str(name), json.dumps(x, default=str)
    if isinstance(x, bytes):
        x = x.decode()
    if isinstance(x, str) and x.lstrip().startswith("{"):
        return "config", x
    if isinstance(x, (str, os.PathLike)):
        return os.fspath(x), None
    raise InputError(f"found {type(x).__name__}, expected a config, dict, path, JSON text or preset")


class _Model:
    """A model with the options of its audit, passed to every command about it."""

    def __init__(self, name: str, text: str | None, options: dict[str, Any], edits: str | None = None) -> None:
        self.name, self.text, self.options, self.edits = name, text, options, edits

    def call(self, command: str, options: dict[str, Any], function: Any = run_json) -> Any:
        """Calls `function` with the command, its options and the model as its argument or input."""
        argument = self.name if self.text is None else "-"
        return function(command, argument, options=options, input=self.text, name=self.name)


class Audit:
    """The audit of a model. Attributes are the fields of the program's `--json`."""

    def __init__(self, model: _Model) -> None:
        self._model = model
        if model.edits is None:
            self._answer = model.call("audit", model.options)
            self.difference = None
        else:
            comparison = model.call("audit", {**model.options, "what_if": model.edits})
            self._answer, self.difference = comparison["after"], comparison["difference"]

    @property
    def model(self) -> str:
        """The model's name."""
        return self._answer["model"]

    @property
    def rungs(self) -> int | None:
        """Hops in one forward pass, for large tables; None if some layer is unknown."""
        return self._answer["rungs"]

    @property
    def layers(self) -> list[dict[str, Any]]:
        """One dict for each layer."""
        return self._answer["layers"]

    @property
    def strip(self) -> str:
        """One letter for each layer: F full, r recurrent, w window and so on."""
        return self._answer["strip"]

    @property
    def bytes_per_token(self) -> int | None:
        """Bytes by which the KV cache grows with each token."""
        return self._answer["bytes_per_token"]

    @property
    def state_bytes(self) -> int | None:
        """Bytes of recurrent state, at any context."""
        return self._answer["state_bytes"]

    @property
    def cache_bytes(self) -> int | None:
        """Bytes of keys, values and state at the context of the audit."""
        return self._answer["cache_bytes"]

    @property
    def unknown(self) -> list[str]:
        """Reasons why parts of the audit are unknown; empty if all is known."""
        return self._answer["unknown"]

    @property
    def decided_by(self) -> list[str]:
        """The fields that decide the layers, in order of first use; `layers` has the item of a list for each layer.

        >>> audit("qwen3.5-9b").decided_by
        ['text_config.layer_types[]']
        """
        fields = (layer["decided_by"] for layer in self.layers if layer["decided_by"])
        return list(dict.fromkeys(re.sub(r"\[\d+\]", "[]", field) for field in fields))

    @property
    def stack(self) -> str | None:
        """The layers in the stack grammar."""
        return self._answer["stack"]

    def to_dict(self) -> dict[str, Any]:
        """The audit as the program's `--json` has it."""
        return json.loads(json.dumps(self._answer))

    def what_if(self, edits: str) -> Audit:
        """The audit with layers changed: "7=full", "3-5=window", "every=4", "ratio=5:1", "first=full", "kv-heads=4".

        >>> audit("gemma-3-27b").what_if("every=4").difference["full_layers"]
        5
        """
        earlier_edits = self._model.edits
        all_edits = edits if earlier_edits is None else f"{earlier_edits},{edits}"
        return Audit(_Model(self._model.name, self._model.text, self._model.options, all_edits))

    def plan(
        self,
        engine: str = "vllm",
        *,
        memory: str | int | None = None,
        on: str | None = None,
        tp: int | None = None,
        context: int | str | None = None,
        requests: int | None = None,
        weights: str | int | None = None,
        kv_dtype: str | None = None,
        state_dtype: str | None = None,
        speculative: int | None = None,
        engine_version: str | None = None,
        set: dict[str, Any] | None = None,
        partial: bool = False,
    ) -> dict[str, Any]:
        """The memory that an inference engine allocates for the model, and the engine flags to set.

        >>> audit("qwen3.5-9b").plan("vllm", memory="24GiB", tp=1, context="32k")["engine"]
        'vllm'
        """
        options = {"engine": engine, "memory": memory, "on": on, "tp": tp, "context": context, "requests": requests}
        options |= {"weights": weights, "kv_dtype": kv_dtype, "state_dtype": state_dtype, "speculative": speculative}
        options |= {"engine_version": engine_version, "set": set, "partial": partial, "what_if": self._model.edits}
        return self._model.call("plan", options)

    def place(self, budget: str | int) -> dict[str, Any]:
        """Where full layers give the most rungs within a budget of cache bytes, such as "4GiB".

        >>> audit("qwen3.5-9b").place(budget="4GiB")["now"]["rungs"]
        8
        """
        self._require_no_edits("place")
        options = {key: value for key, value in self._model.options.items() if key != "certify"}
        return self._model.call("place", {"budget": budget, **options})

    def lint(self) -> list[dict[str, Any]]:
        """Contradictions and likely mistakes in the config.

        >>> audit("qwen3.5-9b").lint()
        []
        """
        self._require_no_edits("lint")
        return self._model.call("lint", {})["findings"]

    def _require_no_edits(self, command: str) -> None:
        if self._model.edits is not None:
            raise InputError(f"{command} reads the config itself, not one with `{self._model.edits}`")

    def __str__(self) -> str:
        options = {**self._model.options, "what_if": self._model.edits}

        def text(*words: Any, options: dict[str, Any], **keywords: Any) -> str:
            from ._call import flags

            return run(*words, *flags(options), **keywords)

        return self._model.call("audit", options, text)

    def __repr__(self) -> str:
        return f"<rung.Audit of {self.model}: {self.strip}, {self.rungs} rungs>"

    def _repr_html_(self) -> str:
        import html

        def count(value: int | None) -> str:
            return "unknown" if value is None else f"{value:,}"

        letters = "".join(
            f'<span style="background:{_COLOURS.get(letter, "#7f8c8d")};color:#fff;padding:0 2px">{html.escape(letter)}</span>'
            for letter in self.strip
        )
        rows = {
            "layers": f'<span style="font-family:monospace">{letters}</span>',
            "stack": html.escape(self.stack or "unknown"),
            "rungs": count(self.rungs),
            "KV cache, bytes per token": count(self.bytes_per_token),
            "recurrent state, bytes": count(self.state_bytes),
            f"cache at {self._answer['context']:,} tokens, bytes": count(self.cache_bytes),
        }
        if self.unknown:
            rows["unknown"] = html.escape("; ".join(map(str, self.unknown)))
        body = "".join(f'<tr><th style="text-align:left">{name}</th><td>{cell}</td></tr>' for name, cell in rows.items())
        return f"<table><caption>{html.escape(self.model)}</caption>{body}</table>"
