"""Traces: what files say is read whole or refused, and what changes of a trace keep."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import os
import tracemalloc
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

import scalemodel as sm
from scalemodel.base.errors import ScaleModelError
from scalemodel.serving.traces import checking

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:17:03.9799600,4808,10\n"
    "2023-11-16 18:17:04.0319600,3180,8\n"
    "2023-11-16 18:17:05.9799600,110,27\n"
)
MOONCAKE = (
    '{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}\n'
    '{"timestamp": 2500, "input_length": 600, "output_length": 6, "hash_ids": [0, 3]}\n'
    '{"timestamp": 9000, "input_length": 1600, "output_length": 7, "hash_ids": [0, 1, 4, 5]}\n'
)
BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type,Session ID\n"
    "5,ChatGPT,472,18,490,Conversation log,a1\n"
    "45,ChatGPT,1087,0,1087,API log,\n"
    "50,GPT-4,417,276,693,Conversation log,a1\n"
    "60,GPT-4,41,27,68,API log,\n"
)


def written(folder: Path, text: str | bytes, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def given(name: str) -> Path:
    """A recorded trace, of the directory of corpora."""
    path = Path(os.environ.get("SCALEMODEL_DATA", "")) / "traces" / name
    if not os.environ.get("SCALEMODEL_DATA"):
        path = Path(__file__).resolve().parents[4] / "shared" / "data" / "traces" / name
    if not path.is_file():
        pytest.skip(f"{name} is not there: recorded traces are no part of the repository")
    return path


def random_trace(requests: int = 400, seed: int = 0) -> sm.Trace:
    """Sessions that grow, of prompts that share a system prompt."""
    random = np.random.default_rng(seed)
    rows, fresh = [], 1
    for session in range(requests // 4):
        at, chain = float(random.uniform(0, 900)), [0]
        for turn in range(4):
            chain = chain + list(range(fresh, fresh + int(random.integers(1, 6))))
            fresh = chain[-1] + 1
            wait = float(random.exponential(20)) if turn else 0.0
            rows.append((at, 32 * len(chain), int(random.integers(1, 90)), session, wait, chain))
            at += 1 + wait
    rows.sort(key=lambda row: row[0])
    offsets = np.cumsum([0, *(len(row[5]) for row in rows)])
    return sm.Trace(
        *(np.array([row[place] for row in rows], float) for place in range(3)),
        session=np.array([row[3] for row in rows]),
        tool_wait_s=np.array([row[4] for row in rows]),
        tenant=np.array([row[3] % 3 for row in rows]),
        block_offsets=offsets,
        block_ids=np.concatenate([row[5] for row in rows]),
        block_tokens=32,
    )


# ------------------------------------------------------------------------------------- reading
def test_formats_are_told_by_their_columns(tmp_path: Path) -> None:
    azure = sm.read_trace(written(tmp_path, AZURE))
    assert azure.arrival_s.tolist() == pytest.approx([0, 0.052, 2.0])
    assert azure.input_tokens.tolist() == [4808, 3180, 110]
    images = AZURE.replace("Tokens\n", "Tokens,NumImages\n").replace("0,1", "0,1,2")
    lines = [line + ",1" * (line.count(",") < 3) for line in images.splitlines()]
    assert sm.read_trace(written(tmp_path, "\r\n".join(lines))).output_tokens[1] == 8
    mooncake = sm.read_trace(written(tmp_path, MOONCAKE, "trace.jsonl"))
    assert mooncake.arrival_s.tolist() == [0, 2.5, 9]
    assert mooncake.block_tokens == 512
    assert mooncake.block_offsets.tolist() == [0, 3, 5, 9]
    burst = sm.read_trace(written(tmp_path, BURSTGPT))
    assert (len(burst), burst.dropped) == (3, 1)
    assert burst.session[0] == burst.session[1] != burst.session[2]
    assert burst.turn.tolist() == [0, 1, 0]
    with pytest.raises(ScaleModelError, match="line 3: Response tokens='0'"):
        sm.read_trace(written(tmp_path, BURSTGPT), drop_empty=False)


def test_zones_of_dates_are_read(tmp_path: Path) -> None:
    zoned = AZURE.replace("9600,", "96+00:00,")
    assert sm.read_trace(written(tmp_path, zoned)) == sm.read_trace(
        written(tmp_path, AZURE, "b.csv")
    )


def test_a_trace_is_served_as_a_stream_is() -> None:
    trace = random_trace()
    task = sm.Inference(input_tokens=300, output_tokens=45)
    plan = sm.serve("llama3_8b", "dgx_h100", task, requests_per_s=1, replicas=1)
    plain = sm.serving.RequestStream(trace.arrival_s, trace.input_tokens, trace.output_tokens)
    found, same = plan.simulate(trace), plan.simulate(plain)
    assert np.array_equal(found.finished_s, same.finished_s)
    assert found.summary() == same.summary()


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".jsonl.gz", ".csv.gz", ".parquet"])
def test_a_trace_survives_a_file(suffix: str, tmp_path: Path) -> None:
    trace = random_trace()
    path = tmp_path / f"trace{suffix}"
    trace.write(path)
    assert sm.read_trace(path) == trace
    plain = sm.Trace(trace.arrival_s, trace.input_tokens, trace.output_tokens)
    plain.write(path)
    assert sm.read_trace(path) == plain != trace
    packed = suffix.endswith(".gz")
    assert path.read_bytes()[:2] == b"\x1f\x8b" or not packed


FAULTS = {
    "time back": (AZURE.replace("17:05", "17:01"), "line 4: TIMESTAMP='2023.*must not lie before"),
    "negative length": (AZURE.replace("3180", "-3"), "line 3: ContextTokens='-3': .*from 1"),
    "no length": (AZURE.replace(",8\n", ",0\n"), "line 3: GeneratedTokens='0': .*drop_empty"),
    "not whole": (AZURE.replace(",8\n", ",8.5\n"), "line 3: GeneratedTokens='8.5': .*whole"),
    "NaN": (AZURE.replace("3180", "nan"), "line 3: ContextTokens='nan'"),
    "infinite": (AZURE.replace("3180", "inf"), "line 3: ContextTokens='inf'"),
    "text": (AZURE.replace("3180", "many"), "line 3: ContextTokens='many'"),
    "empty cell": (AZURE.replace("3180", ""), "line 3: ContextTokens=''"),
    "no date": (AZURE.replace("2023-11-16 18:17:04.0319600", "noon"), "line 3: TIMESTAMP='noon'"),
    "no time": (AZURE.replace("2023-11-16 18:17:04.0319600", "NaT"), "line 3: TIMESTAMP='NaT'"),
    "other zone": (AZURE.replace("04.0319600", "04-0700"), "line 3: TIMESTAMP='2023.*must be a d"),
    "no month": (AZURE.replace("2023-11-16 18:17:04", "2023-13-16 18:17:04"), "line 3: TIMESTAMP="),
    "missing column": (AZURE.replace("GeneratedTokens", "x"), "line 1: column GeneratedTokens m"),
    "unknown columns": ("a,b\n1,2\n", "line 1: columns a, b: must be those of scalemodel"),
    "short row": (AZURE.replace(",3180,8", ",3180"), "line 3: 2 columns: must be 3"),
    "open quote": (AZURE.replace("3180", '"31'), "line 4: broken CSV|line break in a quoted cell"),
    "not UTF-8": (AZURE.encode().replace(b"3180", b"\xff"), "line 3: not UTF-8"),
    "empty file": (b"", "empty: must hold one request"),
    "blank file": ("\n\n", "empty: must hold one request"),
    "header alone": (AZURE.splitlines()[0], "no request"),
    "broken JSON": (MOONCAKE.replace("[0, 3]}", "[0, 3"), "line 2: not JSON"),
    "JSON list": (f"[{MOONCAKE}]", "line 1: not JSON of a request"),
    "JSON NaN": (MOONCAKE.replace(": 600,", ": NaN,"), "line 2: input_length=nan"),
    "JSON bool": (MOONCAKE.replace(": 600,", ": true,"), "line 2: input_length=True"),
    "JSON null": (MOONCAKE.replace(": 600,", ": null,"), "line 2: input_length=None"),
    "JSON huge": (MOONCAKE.replace(": 600,", ": 1e400,"), "line 2: input_length=inf"),
    "missing key": (MOONCAKE.replace('"output_length": 6, ', ""), "line 2: output_length missing"),
    "JSON back": (MOONCAKE.replace("9000", "90"), "line 3: timestamp=90: .*before 2500"),
    "negative block": (MOONCAKE.replace("[0, 3]", "[0, -3]"), "line 2: hash_ids=.*2\\^64"),
    "half a block": (MOONCAKE.replace("[0, 3]", "[0, 3.5]"), "line 2: hash_ids"),
    "blocks no list": (MOONCAKE.replace("[0, 3]", "7"), "line 2: hash_ids=7"),
    "late blocks": (
        MOONCAKE.replace(', "hash_ids": [0, 1, 2]', ""),
        "line 2: hash_ids: must be in every line or in none",
    ),
    "blocks that end": (MOONCAKE.replace(', "hash_ids": [0, 3]', ""), "line 2: hash_ids missing"),
    "column twice": (
        AZURE.replace("Tokens\n", "Tokens,ContextTokens\n"),
        "line 1: column ContextTokens: stands there twice",
    ),
    "huge tenant": (
        "arrival_s,input_tokens,output_tokens,tenant\n0,1,1,3000000000\n",
        "line 2: tenant='3000000000': must be a whole number below",
    ),
    "too many blocks": (MOONCAKE.replace("[0, 3]", "[0, 3, 8]"), "line 2: hash_ids.*at most one"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_is_named_by_line_and_column(fault: str, tmp_path: Path) -> None:
    text, message = FAULTS[fault]
    with pytest.raises(ScaleModelError, match=message) as found:
        sm.read_trace(written(tmp_path, text))
    assert str(found.value).startswith(str(tmp_path / "trace.csv"))
    assert "\n" not in str(found.value)


def test_a_fault_in_a_later_part_has_its_own_line(tmp_path: Path) -> None:
    rows = [f"{at},{at + 1},2" for at in range(300_000)]
    rows[250_000] = "250000,0.5,2"
    text = "arrival_s,input_tokens,output_tokens\n" + "\n".join(rows)
    with pytest.raises(ScaleModelError, match=r"line 250002: input_tokens='0\.5'"):
        sm.read_trace(written(tmp_path, text))


def test_gzip_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(AZURE.encode() * 1)
    assert len(sm.read_trace(written(tmp_path, packed, "trace.csv.gz"))) == 3
    for broken in (packed[:-12], packed[:20], packed[:-8] + b"12345678", b"\x1f\x8b"):
        with pytest.raises(ScaleModelError, match=r"line \d+: the gzip file is cut short or brok"):
            sm.read_trace(written(tmp_path, broken, "trace.csv.gz"))


def test_a_broken_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    random_trace().write(path)
    whole = path.read_bytes()
    with pytest.raises(ScaleModelError, match="must be a whole Parquet file"):
        sm.read_trace(written(tmp_path, whole[:-30], "cut.parquet"))
    import pyarrow
    import pyarrow.parquet

    columns = {"arrival_s": [0.0, 1.0], "input_tokens": [5, None], "output_tokens": [1, 1]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    with pytest.raises(ScaleModelError, match=r"row 2: input_tokens=None"):
        sm.read_trace(path)


def test_files_of_changed_bytes_are_read_whole_or_refused(tmp_path: Path) -> None:
    whole = [AZURE.encode(), MOONCAKE.encode(), BURSTGPT.encode(), gzip.compress(AZURE.encode())]
    for name in ("own.csv", "own.jsonl", "own.parquet"):
        random_trace(40).write(tmp_path / name)
        whole.append((tmp_path / name).read_bytes())
    random = np.random.default_rng(1)
    refused = []
    for number in range(350):
        changed = bytearray(whole[number % len(whole)])
        for place in random.integers(0, len(changed), random.integers(1, 4)).tolist():
            if random.uniform() < 0.7:
                changed[place : place + 1] = random.choice(
                    list(b'0-.,"{}[\n\r\0eN \xff')
                ).tobytes()[:1]
            else:
                del changed[place : place + int(random.integers(1, 9))]
        try:
            sm.read_trace(written(tmp_path, bytes(changed)))
        except ScaleModelError as error:
            refused.append(str(error))
    assert len(refused) > 200
    assert not any("\n" in complaint for complaint in refused)


def test_unknown_formats_and_files_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, AZURE)
    with pytest.raises(ScaleModelError, match="format='azur': no such format; did you mean 'azure"):
        sm.read_trace(path, "azur")
    with pytest.raises(ScaleModelError, match="column timestamp, input_length, output_length mis"):
        sm.read_trace(path, "mooncake")
    with pytest.raises(ScaleModelError, match="cannot be read"):
        sm.read_trace(tmp_path / "none.csv")
    with pytest.raises(ScaleModelError, match="must end in"):
        random_trace().write(tmp_path / "trace.txt")


def test_memory_of_reading_does_not_hold_the_text(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"arrival_s,input_tokens,output_tokens,note\n")
        for at in range(12_000):
            file.write(b"%d,9,2,%s\n" % (at, b"x" * 8000))
    tracemalloc.start()
    trace = sm.read_trace(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(trace) == 12_000
    assert peak < 40e6 < 12_000 * 8000


# ------------------------------------------------------------------------------------ hit rates
def lru_hits(trace: sm.Trace, blocks: int | None) -> tuple[int, int]:
    """Blocks that hit, of all: another implementation, over an ordered dictionary."""
    cache: OrderedDict[int, None] = OrderedDict()
    hits, ends = 0, trace.block_offsets.tolist()
    ids = trace.block_ids.tolist()
    for start, end in itertools.pairwise(ends):
        prompt = ids[start:end]
        for block in prompt:
            if block not in cache:
                break
            hits += 1
        for block in prompt:
            cache[block] = None
            cache.move_to_end(block)
            if blocks is not None and len(cache) > blocks:
                cache.popitem(last=False)
    return hits, len(ids)


@pytest.mark.parametrize("blocks", [1, 20, 100, 400, None])
def test_hits_are_those_of_another_cache(blocks: int | None) -> None:
    trace = random_trace()
    found = trace.prefix_hits(blocks)
    assert (found.hit_blocks, found.blocks) == lru_hits(trace, blocks)


@pytest.mark.parametrize("name", ["mooncake_conversation_trace", "mooncake_synthetic_trace"])
def test_hits_of_recorded_traces_are_the_computed_ones(name: str) -> None:
    trace = sm.read_trace(given(f"{name}.jsonl"))
    with given("hit_rates.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["trace"] == f"{name}.jsonl"]
    assert len(rows) >= 5
    for row in rows:
        blocks = int(row["capacity_blocks"]) if row["capacity_blocks"] else None
        found = trace.prefix_hits(blocks)
        hits, total = lru_hits(trace, blocks)
        assert found.hit_blocks / found.blocks == pytest.approx(hits / total, abs=0.01)
        fraction = float(row["hit_fraction_blocks"])
        assert found.hit_blocks / found.blocks == pytest.approx(fraction, abs=6e-5)
        if row["hit_fraction_tokens"]:
            assert found.fraction == pytest.approx(float(row["hit_fraction_tokens"]), abs=6e-5)


# ------------------------------------------------------------------------- sessions and changes
def test_prefixes_tell_the_sessions() -> None:
    trace = random_trace()
    bare = sm.Trace(
        *(trace.arrival_s, trace.input_tokens, trace.output_tokens),
        block_offsets=trace.block_offsets,
        block_ids=trace.block_ids,
        block_tokens=32,
    )
    told = bare.with_sessions().session
    pairs = set(zip(told.tolist(), trace.session.tolist(), strict=True))
    assert len(pairs) == len(set(told.tolist())) == len(set(trace.session.tolist()))


def test_a_summary_tells_what_it_says() -> None:
    trace = random_trace()
    found = trace.summary()
    assert found["requests"] == len(trace) == 400
    assert found["sessions"] == 100
    assert found["turns_mean"] == 4
    assert found["tenants"] == 3
    assert found["hit_fraction"] == trace.prefix_hits().fraction
    assert found["tree_roots"] == 1
    assert found["distinct_blocks"] == np.unique(trace.block_ids).size
    assert found["input_tokens_p99"] == np.quantile(trace.input_tokens, 0.99)
    random = sm.Trace(
        np.sort(np.random.default_rng(1).uniform(0, 1e5, 50_000)), *[np.ones(50_000)] * 2
    )
    assert random.summary()["gap_cv"] == pytest.approx(1, abs=0.02)
    assert random.summary()["dispersion"] == pytest.approx(1, abs=0.1)
    json.dumps(found, allow_nan=False)
    assert "hit_fraction" in trace._repr_html_()


def test_windows_are_parts_of_a_trace() -> None:
    trace = random_trace()
    middle = float(np.median(trace.arrival_s))
    one, two = trace.window(0, middle), trace.window(middle, np.inf)
    assert len(one) + len(two) == len(trace)
    assert np.array_equal(np.concatenate([one.block_ids, two.block_ids]), trace.block_ids)
    assert two.arrival_s + middle == pytest.approx(trace.arrival_s[len(one) :])
    with pytest.raises(ScaleModelError, match="must hold a request"):
        trace.window(1e6, 2e6)


@pytest.mark.parametrize("rate", [0.25, 0.5, 1.0, 2.0, 2.5, 4.0])
def test_scaling_keeps_lengths_sessions_and_hits(rate: float) -> None:
    trace = random_trace(2000)
    scaled = trace.scaled(rate, seed=3)
    assert len(scaled) == pytest.approx(rate * len(trace), abs=4)
    assert scaled.arrival_s.min() >= trace.arrival_s[0]
    assert scaled.arrival_s.max() <= trace.arrival_s[-1]
    before, after = trace.summary(), scaled.summary()
    assert after["turns_mean"] == before["turns_mean"]
    for name in ("input_tokens_median", "output_tokens_p90", "input_tokens_mean"):
        assert after[name] == pytest.approx(before[name], rel=0.15 if rate < 1 else 0.05)
    assert after["hit_fraction"] == pytest.approx(before["hit_fraction"], abs=0.03)
    assert scaled == trace.scaled(rate, seed=3)
    if rate not in (1.0,):
        assert scaled != trace.scaled(rate, seed=4)


@pytest.mark.parametrize("rate", [0, -1, np.inf, np.nan, True, "2"])
def test_scaling_by_no_rate_is_refused(rate: object) -> None:
    with pytest.raises(ScaleModelError, match=r"rate=.*must be a number above 0"):
        random_trace().scaled(rate)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"session": [0]}, "session: must be a column of 2 whole numbers"),
        ({"session": [0.5, 1]}, "session: must be a column of 2 whole numbers"),
        ({"turn": [0, 1]}, "turn: needs the column session"),
        ({"session": [0, 0], "tool_wait_s": [0, -1]}, "tool_wait_s: must be seconds from 0"),
        ({"block_ids": [1, 2]}, "must be given together"),
        ({"block_ids": [1], "block_offsets": [0, 1, 2], "block_tokens": 4}, "must rise from 0 to"),
        ({"block_ids": [1, 2], "block_offsets": [0, 2, 2], "block_tokens": 9}, "no more blocks"),
        ({"block_ids": [], "block_offsets": [0, 0, 0], "block_tokens": -1}, "block_tokens=-1"),
        ({"arrival_s": [1.0, 0.0]}, r"arrival_s\[1\]=0: must not lie before"),
        ({"input_tokens": [5.0, 0.0]}, r"input_tokens\[1\]=0: must be a whole number"),
        ({"output_tokens": [5.0]}, "output_tokens: must be as long as arrival_s"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns: dict[str, object], message: str) -> None:
    named = {"arrival_s": [0.0, 1.0], "input_tokens": [5, 6], "output_tokens": [7, 8]}
    with pytest.raises(ScaleModelError, match=message):
        sm.Trace(**(named | columns))  # type: ignore[arg-type]


def test_more_than_memory_holds_is_refused_with_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine of 2,000 bytes: 20 requests of 24 bytes fit into half of it, and some blocks."""
    lines = [
        json.dumps(
            {"timestamp": 100 * i, "input_length": 1024, "output_length": 5, "hash_ids": [i, 9]}
        )
        for i in range(100)
    ]
    path = written(tmp_path, "\n".join(lines) + "\n", "trace.jsonl")
    monkeypatch.setattr(checking, "memory_bytes", lambda: 2_000)
    with pytest.raises(ScaleModelError, match=r"line 100: 100 req.*\(start_s, end_s\) or with"):
        sm.read_trace(path)
    with pytest.raises(ScaleModelError, match=r"take 2.34 KiB, more than 1000 B, half") as caught:
        sm.read_trace(path, blocks=False)
    assert "blocks" not in str(caught.value)
    assert len(sm.read_trace(path, blocks=False, end_s=2.0)) == 20
    monkeypatch.setattr(checking, "memory_bytes", lambda: 2 * 100 * (24 + 8 + 16))
    assert len(sm.read_trace(path)) == 100
