"""Mutated files of every kind the project reads: one answer or one clear error, soon and small.

``python tests/fuzz/hostile.py [-files=N] [-seed=N] [KIND...]`` mutates N files of each kind and
prints a line per kind. Each kind runs in a process of its own that may allocate 500 MiB beyond what
it holds when it starts, and must be done with each file after a second of processor time. Nothing
may run: starting a program, opening a connection or writing outside the folder of the run ends it.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import random
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import scalemodel as sm
import scalemodel._core as _core
from scalemodel import catalog, cli, validation
from scalemodel.calibration import calibrate
from scalemodel.interop.jobs.logs import read_log
from scalemodel.search.ranking_file import read as read_ranking
from scalemodel.search.ranking_file import to_json
from scalemodel.search.table_file import merge_tables
from scalemodel.validation.published import PARTS, published_table

LONGEST_S, LARGEST_BYTES, HANGS_S = 1.0, 500 * 2**20, 20
CLUSTER = "dgx_h100"
TASK = sm.Training(global_batch=16, sequence=2048)
#: What starts a program, connects, or ends the process.
FORBIDDEN = (
    *(
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "os.startfile",
        "os.system",
    ),
    *("pty.spawn", "socket.connect", "socket.bind", "subprocess.Popen", "urllib.Request"),
)
#: Pieces that mean something to a parser, a shell, a spreadsheet, a terminal or a plot.
PIECES = (
    *(b"\0", b"\n", b"\r", b"\x1b[31m", b'"', b"'", b"\\", b"{", b"[", b"]", b"}", b",", b":"),
    *(b"$(touch ran)", b"`touch ran`", b"; touch ran #", b"\ntouch ran\n", b"=cmd|' /C calc'!A0"),
    *(b"$\\frac{", b"<script>", b"\xff\xfe", b"\xe2\x80\xae", b"\\ud800", b"%s%n", b"../../x"),
    *(b"-1", b"0", b"1e999", b"NaN", b"Infinity", b"-0.0", b"9" * 25, b"9" * 5000, b"1_0", b"null"),
    *(b"true", b"[" * 3000, b"{" * 3000, b'{"a":' * 3000, b"a." * 3000, b" " * 20_000, b"1/1 ["),
)


class Kind(NamedTuple):
    """Real files of a kind, and what reads one of them."""

    files: Callable[[], tuple[bytes, ...]]
    read: Callable[[Path], object]
    name: str = "file"
    partly: bool = False  # whether some of the files are refused as they are


# --------------------------------------------------------------------------------------- mutations
def mutated(raw: bytes, draw: random.Random) -> bytes:
    """A copy with parts changed, doubled, swapped, cut out or cut off."""
    result = bytearray(raw)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        at = draw.randrange(len(result) + 1)
        length = min(draw.choice((1, 1, 4, 16, 64, 512)), len(result) - at)
        action = draw.randrange(9)
        if action == 0 and length:
            result[at] = draw.randrange(256)
        elif action in (1, 2, 3):
            result[at : at + draw.choice((0, length))] = draw.choice(PIECES)
        elif action == 4:
            del result[at : at + length]
        elif action == 5:
            result[at:at] = result[at : at + length] * draw.choice((1, 1, 100))
        elif action == 6:
            _swap_words(result, draw)
        elif action == 7:
            _swap_lines(result, draw)
        elif draw.random() < 0.3:
            del result[at:]
    return bytes(result)


def _swap_words(result: bytearray, draw: random.Random) -> None:
    """A number or word becomes another one: what has the right form and the wrong meaning."""
    words = result.split()
    if len(words) > 1:
        old, new = draw.sample(words, 2)
        result[:] = result.replace(old, new, 1)


def _swap_lines(result: bytearray, draw: random.Random) -> None:
    lines = result.split(b"\n")
    old, new = draw.randrange(len(lines)), draw.randrange(len(lines))
    lines[old] = lines[new]
    result[:] = b"\n".join(lines)


# ------------------------------------------------------------------------------------------- kinds
@cache
def _configurations() -> tuple[bytes, ...]:
    from fuzz.importers import configurations

    return tuple(json.dumps(each, indent=1).encode() for each in configurations())


def _entries(kind: str) -> Callable[[], tuple[bytes, ...]]:
    """The entries of the catalogue that an answer of `_ask` needs, or a few where none."""
    usual = {
        "accelerators": ("h100_sxm_80",),
        "clusters": ("dgx_h100",),
        "composed": ("vit_b",),
        "models": ("llama3_8b",),
        "stacks": ("plain",),
    }
    return lambda: tuple(
        catalog.path_of(kind, name).read_bytes()
        for name in usual.get(kind, catalog.names(kind))[:40]
    )


def _sound(est: Any) -> None:
    for name, value in est.to_dict().items():
        if isinstance(value, float) and not math.isfinite(value):
            raise AssertionError(f"{name}={value}")


def _entry(kind: str) -> Callable[[Path], object]:
    """Reads an entry as a private one under each name that a question asks for."""

    def read(path: Path) -> object:
        text = path.read_bytes()
        folder = path.parent / "catalogue" / kind
        folder.mkdir(parents=True, exist_ok=True)
        stem = _named(kind, text)
        file = folder / f"{stem}.toml"
        file.write_bytes(text)
        os.environ["SCALEMODEL_CATALOG_PATH"] = str(folder.parent)
        catalog.forget()
        try:
            catalog.list_catalog(kind)
            return _ask(kind, stem)
        finally:
            file.unlink()
            del os.environ["SCALEMODEL_CATALOG_PATH"]
            catalog.forget()

    return read


@cache
def _stems(kind: str) -> dict[bytes, str]:
    return {catalog.path_of(kind, name).read_bytes()[:60]: name for name in catalog.names(kind)}


def _named(kind: str, text: bytes) -> str:
    """The entry that a text was made of, by its beginning; the first one where that is gone."""
    return _stems(kind).get(text[:60], min(_stems(kind).values()))


def _ask(kind: str, name: str) -> object:
    """A question that needs an entry."""
    if kind == "models":
        return _sound(sm.estimate(name, CLUSTER, TASK))
    if kind == "composed":
        return sm.compose(name).parameters
    if kind == "clusters":
        return _sound(sm.estimate("llama3_8b", name, TASK))
    if kind == "accelerators":
        return _sound(sm.estimate("llama3_8b", {"accelerator": name}, TASK))
    if kind == "stacks":
        return _sound(sm.estimate("llama3_8b", CLUSTER, TASK, stack=name))
    if kind in ("engines", "kernels"):
        engine = name if kind == "engines" else "vllm"
        task = sm.Inference(input_tokens=500, output_tokens=50)
        return sm.serve("llama3_8b", CLUSTER, task, engine=engine).verdict
    if kind == "interconnects":
        scale_up = catalog.load(kind, name).get("kind") == "scale_up"
        part = "scale_up" if scale_up else "fabric"
        return sm.cluster({"base": CLUSTER, part: {"class": name}})
    return _sound(sm.estimate("llama3_8b", CLUSTER, TASK))


@cache
def _traces(kind: str) -> tuple[bytes, ...]:
    est = sm.estimate("llama3_8b", sm.cluster(CLUSTER), TASK, sm.Strategy(tp=4, pp=2))
    write = sm.write_kineto if kind == "kineto" else sm.write_chakra
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for path in write(est.timeline(), folder)[:2]:
            raw = path.read_bytes()
            plain = gzip.decompress(raw) if kind == "kineto" else raw
            found += [raw, _short(plain)] if kind == "kineto" else [plain]
    return tuple(found)


def _short(trace: bytes) -> bytes:
    """A trace of JSON with a few of its events."""
    table = json.loads(trace)
    table["traceEvents"] = table["traceEvents"][:60]
    return json.dumps(table).encode()


@cache
def _logs() -> tuple[bytes, ...]:
    lines = (
        " iteration {}/ 9 | elapsed time per iteration (ms): 3000.0 | throughput per GPU "
        "(TFLOP/s/GPU): 400.1 |",
        "step: {} loss: 2.1 memory: 40.2GiB(50%) tps: 8,123 tflops: 401.2 mfu: 40%",
        "global_step: {} | train_step_timing in s: 3.1",
        "global_step={}, RunningAvgSamplesPerSec=1.0, CurrSamplesPerSec=1.1, MaxMemAllocated=1.2GB",
        "[batch={}/9]:\n\t Train throughput/device/tokens_per_sec: 8000.1",
        "completed step: {}, seconds: 3.2, TFLOP/s/device: 210.1, Tokens/s/device: 8000.2",
        "{}/9 [00:30<20:20, 2.50s/it]",
    )
    head = "  tensor_model_parallel_size ........ 8\n  world_size ........ 16\n"
    printed = tuple(
        (head + "\n".join(line.format(step) for step in range(1, 9))).encode() for line in lines
    )
    recorded = Path(__file__).parents[1] / "frameworks" / "recorded"
    tables = ("trainer_state.json", "output.log", "metrics.csv", "steps.jsonl", "*.tfevents")
    return printed + tuple(
        file.read_bytes()[:6000] for name in tables for file in sorted(recorded.rglob(name))
    )


@cache
def _benches() -> tuple[bytes, ...]:
    flat = {
        **{"backend": "vllm", "completed": 9, "duration": 3.5, "request_rate": "inf"},
        **{"max_concurrency": 4, "total_input_tokens": 900, "total_output_tokens": 90},
        **{"request_throughput": 2.6, "output_throughput": 26.0, "mean_ttft_ms": 30.5},
    }
    names = ("request_throughput", "output_token_throughput", "input_sequence_length")
    names += ("output_sequence_length", "time_to_first_token", "inter_token_latency")
    found = {"successful": {"mean": 2.5, "percentiles": {"p99": 3.5}}}
    metrics = ("requests_per_second", "request_concurrency", "output_tokens_per_second")
    metrics += ("prompt_token_count", "output_token_count", "time_to_first_token_ms")
    each = {"value": 9.5, "avg": 2.5, "p50": 2.4, "p99": 3.5, "std": 0.3, "unit": "ms"}
    times = {"request_start_ns": 10, "request_end_ns": 2_000_000_000}
    request = {"metadata": times, "metrics": dict.fromkeys(names, each)}
    texts = (
        json.dumps({**flat, "num_prompts": 9}, indent=1),
        "\n".join(2 * [json.dumps({**flat, "mean_e2e_latency_ms": 90.5})]),
        json.dumps({**dict.fromkeys(names, each), "input_config": {"concurrency": 4}}, indent=1),
        json.dumps({"benchmarks": [{"metrics": dict.fromkeys(metrics, found)}]}, indent=1),
        "\n".join(3 * [json.dumps(request)]),
        json.dumps(2 * [{"conc": 4, "isl": 1024, "osl": 128, "tp": 2, "output_tput_per_gpu": 9.5}]),
    )
    return tuple(map(str.encode, texts))


def _log(path: Path) -> object:
    read_log(path)
    return sm.compare_log(path, _estimate())


@cache
def _estimate() -> sm.Estimate:
    return sm.estimate("llama3_8b", CLUSTER, TASK, sm.Strategy(tp=2))


_KERNELS = ("gemm", "attention", "elementwise", "collectives")
_VALIDATED = ("training", "inference", "moe", "power", *_KERNELS)


@cache
def _measurements() -> tuple[bytes, ...]:
    """The first rows of each table of measurements of the package."""
    found = []
    for name in dict.fromkeys(part for parts in PARTS.values() for part in parts):
        table = published_table(name)
        text = StringIO()
        csv.writer(text, lineterminator="\n").writerows([table.header, *table.rows[:5]])
        found.append(text.getvalue().encode())
    return tuple(found)


def _by_size(path: Path, kinds: tuple[str, ...]) -> str:
    """One of the kinds, drawn by the file itself, so that a run can be repeated."""
    return kinds[sum(path.read_bytes()[:200]) % len(kinds)]


@cache
def _timings() -> tuple[bytes, ...]:
    """Tables of one machine, as `calibrate` takes them."""
    sizes = [(m, n, k) for m in (128, 1024, 4096) for n in (512, 4096) for k in (512, 2048, 8192)]
    products = [
        f"A100-SXM4-80GB,bfloat16,{m},{n},{k},{5 + m * n * k / 1e8:.2f}" for m, n, k in sizes
    ]
    calls = [f"A100-SXM4-80GB,8,all_reduce,{2**b},{20 + 2**b / 1.5e5:.2f}" for b in range(10, 30)]
    return (
        "\n".join(["gpu,dtype,m,n,k,time_us", *products, ""]).encode(),
        *["\n".join(["gpu,gpus,op,bytes,time_us", *calls, ""]).encode()] * 7,
    )


def _validate(path: Path) -> object:
    return validation.validate(_by_size(path, _VALIDATED), path)


def _calibrate(path: Path) -> object:
    return calibrate("gemm" if b"dtype" in path.read_bytes()[:20] else "collectives", path)


@cache
def _ranking() -> sm.Ranking:
    space = sm.Space(tp=[1, 2], pp=1, cp=1, micro_batch=1, recompute="full")
    return sm.search("llama3_8b", CLUSTER, TASK, space, top=2)


def _rankings() -> tuple[bytes, ...]:
    return (to_json(_ranking()).encode(),)


@cache
def _sweeps(suffix: str) -> tuple[bytes, ...]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, f"rows{suffix}")
        words = "sweep llama3_8b --cluster dgx_h100 --global-batch 16 --sequence 2048 --pp 1"
        words += " --cp 1 --tp 2 --recompute full --out"
        with open(os.devnull, "w", encoding="utf-8") as quiet, redirect_stdout(quiet):
            assert cli.main([*words.split(), str(out)]) == 0
        return (out.read_bytes(),)


def _merge(path: Path) -> object:
    return merge_tables([path], path.with_name(f"merged{path.suffix}"), partial=True)


@cache
def _settings(suffix: str) -> tuple[bytes, ...]:
    texts = []
    for framework in ("megatron", "torchtitan", "deepspeed", "accelerate"):
        job = sm.launch(_estimate(), framework)
        texts += [job.script()] if suffix == ".sh" else list(job.files.values())
    if suffix == ".toml":
        return (b"[parallelism]\ntensor_parallel_degree = 2\n[training]\nseq_len = 128\n",)
    endings = {".json": "{", ".yaml": "compute", ".sh": ""}
    return tuple(text.encode() for text in texts if text.startswith(endings[suffix]))


def _read_settings(path: Path) -> object:
    frameworks = {
        **{".sh": ("megatron", "torchtitan"), ".json": ("deepspeed", "megatron", "nemo")},
        **{".yaml": ("accelerate", "nemo"), ".toml": ("torchtitan",)},
    }[path.suffix]
    return sm.read_settings(_by_size(path, frameworks), path, accelerators=8)


KINDS: dict[str, Kind] = {
    "config.json": Kind(
        _configurations, lambda path: sm.model(path).parameters, "config.json", True
    ),
    **{kind: Kind(_entries(kind), _entry(kind)) for kind in catalog.KINDS},
    "kineto": Kind(lambda: _traces("kineto"), lambda path: sm.read_kineto(path).steps()),
    "chakra": Kind(lambda: _traces("chakra"), sm.read_chakra),
    "log": Kind(_logs, _log),
    "bench": Kind(_benches, sm.read_bench, "bench.json"),
    "validate": Kind(_measurements, _validate, "rows.csv", True),
    "calibrate": Kind(_timings, _calibrate, "rows.csv"),
    "ranking": Kind(_rankings, read_ranking),
    **{
        f"sweep{suffix}": Kind(lambda suffix=suffix: _sweeps(suffix), _merge, f"rows{suffix}")
        for suffix in (".csv", ".parquet")
    },
    **{
        f"settings{suffix}": Kind(
            lambda suffix=suffix: _settings(suffix), _read_settings, f"job{suffix}"
        )
        for suffix in (".sh", ".json", ".yaml", ".toml")
    },
}


# -------------------------------------------------------------------------------------------- runs
class Result(NamedTuple):
    """What became of the files of a kind."""

    answers: int
    refusals: int
    longest_s: float
    largest_bytes: int
    failures: list[str]


def run_here(name: str, count: int, seed: int, folder: Path) -> Result:
    """Reads mutated files one by one in this process, which must be one of its own."""
    kind, draw = KINDS[name], random.Random(f"{name} {seed}")
    originals = kind.files()
    path = folder / kind.name
    for raw in originals:  # loads what is loaded once, and shows that unchanged files are read
        path.write_bytes(raw)
        outcome = _outcome(kind, path)
        assert not outcome or kind.partly, f"{name}: {outcome}"
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _limit(folder)
    answers, failures, longest_s = 0, [], 0.0
    for number in range(count):
        path.write_bytes(mutated(draw.choice(originals), draw))
        begin = time.process_time()
        signal.alarm(HANGS_S)
        outcome = _outcome(kind, path)
        signal.alarm(0)
        taken_s = time.process_time() - begin
        longest_s = max(longest_s, taken_s)
        answers += outcome == ""
        if outcome.startswith("!") or taken_s > LONGEST_S:
            failures.append(f"{name} {number}: {outcome or 'answer'} after {taken_s:.2f} s")
            (folder / f"failure-{name}-{number}").write_bytes(path.read_bytes())
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held)
    return Result(answers, count - answers, longest_s, grown, failures)


def _outcome(kind: Kind, path: Path) -> str:
    """Empty for an answer, the reason of a refusal, an exclamation mark before anything else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            kind.read(path)
        except sm.ScaleModelError as error:
            reason = str(error)
            return reason if reason.isprintable() and reason else f"!unclear: {reason!r}"
        except BaseException as error:
            return f"!{type(error).__name__}: {error}"
    return ""


def _limit(folder: Path) -> None:
    """From here on: bounded memory, an alarm that ends a hang, and nothing that runs."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + LARGEST_BYTES,) * 2)

    def hang(*_: object) -> None:
        raise TimeoutError(f"more than {HANGS_S} s")

    signal.signal(signal.SIGALRM, hang)
    home = os.path.realpath(folder)

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in FORBIDDEN:
            raise PermissionError(f"{event}{arguments}")
        writes = event == "open" and isinstance(arguments[0], str) and arguments[2] & os.O_ACCMODE
        if writes and not os.path.realpath(arguments[0]).startswith(home):
            raise PermissionError(f"writes {arguments[0]}")

    sys.addaudithook(audit)


def run(name: str, count: int, seed: int = 1) -> Result:
    """`run_here` in a child process, which may not come back."""
    KINDS[name].files()
    with tempfile.TemporaryDirectory() as folder:
        receiver, sender = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(receiver)
            result = run_here(name, count, seed, Path(folder))
            with os.fdopen(sender, "wb") as pipe:
                pipe.write(json.dumps(result).encode())
            os._exit(0)
        os.close(sender)
        with os.fdopen(receiver, "rb") as pipe:
            raw = pipe.read()
        _, status = os.waitpid(child, 0)
    if status or not raw:
        return Result(0, 0, 0.0, 0, [f"{name}: the process ended with {status}"])
    return Result(*json.loads(raw))


def main(arguments: list[str]) -> int:
    """Prints a line per kind and what failed; 1 where something did."""
    given = dict(each.lstrip("-").split("=") for each in arguments if each.startswith("-"))
    names = [each for each in arguments if not each.startswith("-")] or list(KINDS)
    failed = False
    print(f"scalemodel {_core.__version__}\n{'kind':<16}{'answers':>9}{'errors':>9}{'longest':>10}")
    for name in names:
        found = run(name, int(given.get("files", 100)), int(given.get("seed", 1)))
        failed |= bool(found.failures)
        mib = found.largest_bytes / 2**20
        counts = f"{found.answers:>9}{found.refusals:>9}{found.longest_s:>8.2f} s"
        print(f"{name:<16}{counts}{mib:>7.0f} MiB  {len(found.failures)} failed", flush=True)
        print("".join(f"  {text[:300]}\n" for text in found.failures[:8]), end="", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main(sys.argv[1:]))
