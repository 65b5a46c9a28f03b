"""One fuzzing input for everything that reads what others wrote: bytes mutate a real document.

``python tests/fuzz/importers.py [-runs=N] [-max_total_time=SECONDS] [-seed=N] [CORPUS]`` runs it,
guided by coverage where atheris is installed, on random bytes elsewhere.
"""

from __future__ import annotations

import copy
import json
import math
import random
import sys
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import scalemodel as sm
from scalemodel import catalog

#: What a cell may become: ends of ranges, wrong types, wrong units, nothing.
ODD: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 7, 2**31, 2**63, 10**18, 0.5, 1e-300, 1e308, math.inf, -math.inf, math.nan),
    *("", "8", "80 GB", "3 TB/s", "400 Gbit/s", "1e400 GB", "-3 us", "GB", "nan", "auto", "\x00"),
    *(None, True, False, [], [0], {}, {"value": 1}, {"value": "1 GB", "source": 3}, [[1, 2]] * 3),
)
CLUSTER, TASK = "dgx_h100", sm.Training(global_batch=32, sequence=2048)
SMALL = sm.Training(global_batch=1024, sequence=1)


class Bytes:
    """The bytes of an input; zeros beyond its end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def below(self, count: int) -> int:
        self.at += 1
        return self.data[self.at - 1] % count if self.at <= len(self.data) else 0

    def rest(self) -> bytes:
        return self.data[self.at :]


# ------------------------------------------------------------------------------------ documents
@cache
def documents(kind: str) -> tuple[Any, ...]:
    """Real documents of a kind, to be mutated."""
    names = catalog.names(kind)
    return tuple(catalog.load(kind, name) for name in names)


@cache
def configurations() -> tuple[dict[str, Any], ...]:
    """Configurations as Hugging Face holds them: a dense, a routed, a windowed decoder."""
    dense = {
        **{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "vocab_size": 512},
        **{"num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 128},
        **{"hidden_act": "silu", "tie_word_embeddings": False, "max_position_embeddings": 2048},
    }
    routed = {**dense, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
    window = {**dense, "model_type": "gemma2", "sliding_window": 128, "head_dim": 16}
    older = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 512}
    latent = {
        **{**dense, "model_type": "deepseek_v3", "kv_lora_rank": 32, "q_lora_rank": 48},
        **{"qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16, "n_routed_experts": 8},
        **{"num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1},
        **{"first_k_dense_replace": 1, "n_group": 2, "topk_group": 1},
    }
    return dense, routed, window, older, latent


@cache
def scripts() -> tuple[tuple[str, str], ...]:
    """What starts a job in each framework."""
    est = sm.estimate("llama3_8b", sm.cluster(CLUSTER, nodes=2), TASK, sm.Strategy(tp=2, pp=2))
    found = []
    for framework in ("megatron", "torchtitan", "deepspeed", "accelerate"):
        job = sm.launch(est, framework)
        found.append((framework, job.script()))
        found += [(framework, text) for text in job.files.values()]
    return tuple(found)


@cache
def recordings() -> tuple[bytes, ...]:
    """Traces, as the profiler and as network simulators write them, and a log."""
    import tempfile

    est = sm.estimate("llama3_8b", sm.cluster(CLUSTER), TASK, sm.Strategy(tp=2, pp=2))
    with tempfile.TemporaryDirectory() as folder:
        files = [*sm.write_kineto(est.timeline(), folder), *sm.write_chakra(est.timeline(), folder)]
        return tuple(path.read_bytes()[:20_000] for path in files)


# ------------------------------------------------------------------------------------- mutations
def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every key and index inside a document."""
    inner = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    found = []
    for key, cell in inner:
        found += [(*path, key), *places(cell, (*path, key))]
    return found


def mutated(document: Any, given: Bytes) -> Any:
    """A copy with some cells changed, renamed, doubled or gone."""
    result = copy.deepcopy(document)
    for _ in range(given.below(4)):
        paths = places(result)
        if not paths:
            break
        *way, last = paths[(256 * given.below(256) + given.below(256)) % len(paths)]
        target = result
        for key in way:
            target = target[key]
        action = given.below(8)
        if action == 0:
            del target[last]
        elif action == 1 and isinstance(target, dict):
            target[str(last) + "s"] = target.pop(last)
        elif action == 2 and isinstance(target, dict):
            target[given.below(3)] = target[last]
        else:
            target[last] = copy.deepcopy(ODD[given.below(len(ODD))])
    return result


def garbled(text: bytes, given: Bytes) -> bytes:
    """A copy with some bytes changed, inserted or cut out."""
    result = bytearray(text)
    for _ in range(given.below(8)):
        at = (65536 * given.below(256) + 256 * given.below(256) + given.below(256)) % (
            len(result) + 1
        )
        action = given.below(3)
        if action == 0:
            result[at : at + 1] = bytes([given.below(256)])
        elif action == 1:
            result[at:at] = given.rest()[:8]
        else:
            del result[at : at + given.below(64)]
    return bytes(result)


# --------------------------------------------------------------------------------------- targets
def sound(est: Any) -> None:
    """Numbers of an answer are numbers."""
    for name, value in est.to_dict().items():
        if isinstance(value, float) and not (math.isfinite(value) and value >= 0):
            raise AssertionError(f"{name}={value}")


def read_configuration(given: Bytes) -> None:
    options = configurations()
    model = sm.model(mutated(options[given.below(len(options))], given))
    assert model.parameters > 0
    sound(sm.estimate(model, CLUSTER, TASK))


def read_model(given: Bytes) -> None:
    options = documents("models")
    sound(sm.estimate(sm.model(mutated(options[given.below(len(options))], given)), CLUSTER, TASK))


def read_cluster(given: Bytes) -> None:
    options = documents("clusters")
    table = mutated(options[given.below(len(options))], given)
    if given.below(2):
        machines = documents("accelerators")
        table = {**table, "accelerator": mutated(machines[given.below(len(machines))], given)}
    sound(sm.estimate("llama3_8b", sm.cluster(table), TASK))


def read_groups(given: Bytes) -> None:
    options = documents("composed")
    model = sm.compose(mutated(options[given.below(len(options))], given))
    plan = sm.GroupStrategy({slot.name: "ddp" for slot in model.slots if not slot.experts})
    sound(sm.estimate(model, CLUSTER, SMALL, plan))


def read_script(given: Bytes) -> None:
    framework, text = scripts()[given.below(len(scripts()))]
    sm.read_settings(framework, garbled(text.encode(), given).decode("utf-8", "replace"))


def read_mapping(given: Bytes) -> None:
    framework, text = scripts()[given.below(len(scripts()))]
    try:
        table = json.loads(text)
    except ValueError:
        table = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "seq_length": 128}
    sm.read_settings(framework, mutated(table, given))


def read_trace(given: Bytes) -> None:
    import tempfile

    options = recordings()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace")
        path.write_bytes(garbled(options[given.below(len(options))], given))
        if given.below(2):
            sm.read_kineto(path).steps()
        else:
            sm.read_chakra(path)


TARGETS: tuple[Callable[[Bytes], None], ...] = (
    read_configuration,
    read_model,
    read_cluster,
    read_groups,
    read_script,
    read_mapping,
    read_trace,
)


def one_input(data: bytes) -> bool:
    """Reads one mutated document; True for an answer, False for a refusal with its reason."""
    given = Bytes(data)
    target = TARGETS[given.below(len(TARGETS))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # unknown keys are reported so
        try:
            target(given)
            return True
        except sm.ScaleModelError as error:
            reason = str(error)
    assert reason.strip()
    return False


# ------------------------------------------------------------------------------------------ runs
def random_inputs(seed: int) -> Callable[[], bytes]:
    draw = random.Random(seed)
    return lambda: draw.randbytes(draw.randrange(4, 64))


def main(arguments: list[str]) -> int:
    """Runs until a limit is reached; what fails is left in the file crash-input."""
    try:
        import atheris  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        atheris = None
    if atheris is not None:
        atheris.instrument_all()
        atheris.Setup([sys.argv[0], *arguments], one_input)
        atheris.Fuzz()
    given = dict(each.lstrip("-").split("=") for each in arguments if each.startswith("-"))
    runs, seconds = int(given.get("runs", -1)), float(given.get("max_total_time", -1))
    draw = random_inputs(int(given.get("seed", 1)))
    begin, done, answered = time.monotonic(), 0, 0
    while (runs < 0 or done < runs) and (seconds < 0 or time.monotonic() - begin < seconds):
        data = draw()
        try:
            answered += one_input(data)
        except BaseException:
            Path("crash-input").write_bytes(data)
            raise
        done += 1
    elapsed = time.monotonic() - begin
    print(f"{done} executions in {elapsed:.0f} s, {answered} answers, {done - answered} refusals")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
