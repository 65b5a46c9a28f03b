"""What definitions of features promise beyond the tests of the parts they are made of."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scalemodel as sm
import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.cli import main, make_parser
from scalemodel.resolve.engines import engine as engine_constants
from scalemodel.serving.plan import instance_for

REPOSITORY = Path(__file__).resolve().parents[2]
CHAT = sm.Inference(input_tokens=1000, output_tokens=200, precision="bf16")


# -------------------------------------------------------------------------------------- workloads
def test_vision_attends_to_the_full_map() -> None:
    for name in catalog.names("composed"):
        groups = sm.compose(name).groups
        seeing = [
            group
            for before, group in itertools.pairwise(groups)
            if isinstance(before, sm.PatchEmbedding) and isinstance(group, sm.Transformer)
        ]
        assert not any(group.causal for group in seeing), name
        for group in seeing:
            causal = dataclasses.replace(group, causal=True)
            assert causal.core.forward_flop(1) < group.core.forward_flop(1)


def test_copied_key_value_heads_are_told() -> None:
    """Eight heads over 16 tensor ranks are there twice; over 8 ranks nothing is copied."""
    cluster = sm.cluster("dgx_h100", nodes=4)
    task = sm.Training(global_batch=64, sequence=4096)
    told = {
        tp: sm.estimate("llama3_70b", cluster, task, sm.Strategy(tp=tp)).explain().inputs
        for tp in (8, 16)
    }
    assert told[16]["key_value_heads"] == "8 over 16 tensor ranks: each keeps a copy of one"
    assert "key_value_heads" not in told[8]


def serving(model: str, cluster: str = "dgx_h200", **task: Any) -> sm.Serving:
    return sm.serve(model, cluster, CHAT.replace(**task), sm.ServingLayout(tp=8), replicas=1)


def test_the_latent_cache_of_deepseek_v2() -> None:
    plan = serving("deepseek_v2")
    block = plan.instance.capacity(1000, 200).block_bytes
    assert block / engine_constants(plan.engine).block_tokens == (512 + 64) * 60 * 2 == 69_120


def test_the_cache_has_a_format_of_its_own() -> None:
    """Half the bytes of a cache entry, the weights as they were."""
    wide, narrow = (
        serving("llama3_70b", kv_precision=kv).instance.capacity(1000, 200)
        for kv in ("bf16", "fp8")
    )
    assert wide.block_bytes == 2 * narrow.block_bytes
    assert wide.memory_weights_bytes == narrow.memory_weights_bytes


def test_four_bit_weights_carry_their_block_scales() -> None:
    """NVFP4: a byte of scale per 16 values. MXFP4: one per 32, experts alone."""
    shape = sm.model("gpt_oss_120b").shape
    experts = 3 * shape.layers * shape.experts * shape.hidden * shape.expert_ffn
    dense = serving("gpt_oss_120b").instance.capacity(1000, 200).memory_weights_bytes
    narrow = serving("gpt_oss_120b", precision="mxfp4").instance.capacity(1000, 200)
    saved = 8 * 8 * (dense - narrow.memory_weights_bytes) / experts
    assert 16 - saved == pytest.approx(4.25, rel=1e-3)


# ------------------------------------------------------------------------------------ parallelism
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_equal_tensor_degrees_are_the_plain_case(tp: int) -> None:
    """Experts split like attention are what leaving their degree open means."""
    where, task = sm.cluster("dgx_h100", nodes=2), sm.Training(global_batch=64, sequence=4096)
    named, plain, whole = (
        sm.estimate("mixtral_8x7b", where, task, sm.Strategy(tp=tp, etp=etp)).core
        for etp in (tp, 0, 1)
    )
    assert named == plain
    assert (whole == plain) == (tp == 1)


def test_resharding_between_meshes_is_charged() -> None:
    model = sm.compose(
        "ranking",
        groups=[
            sm.Mlp(name="bottom_mlp", widths=(1024, 512, 128), after=()),
            sm.Mlp(name="top_mlp", widths=(128, 1024, 1024, 1)),
        ],
    )
    where = sm.cluster("zionex", nodes=2)
    task = sm.Training(global_batch=65536, sequence=1, precision="tf32")
    one_mesh, two_meshes = (
        sm.estimate(model, where, task, sm.GroupStrategy({"mlp": "ddp", **more}))
        for more in ({}, {"top_mlp": "tp@8+ddp"})
    )
    assert one_mesh.exposed_reshard_s == 0 < two_meshes.exposed_reshard_s


@pytest.mark.parametrize("stack", catalog.names("stacks"))
def test_the_factor_of_contention_has_a_source(stack: str) -> None:
    entry = catalog.load("stacks", stack)
    text = (Path(catalog.__file__).parent / "stacks" / f"{stack}.toml").read_text(encoding="utf-8")
    assert "contention" in entry["stack"]
    line = next(row for row in text.splitlines() if row.startswith("contention"))
    assert "source" in line


# ---------------------------------------------------------------------------------------- network
def distances(neighbours: dict[int, set[int]], start: int) -> dict[int, int]:
    far, queue = {start: 0}, deque([start])
    while queue:
        here = queue.popleft()
        for there in neighbours[here] - far.keys():
            far[there] = far[here] + 1
            queue.append(there)
    return far


def most_flow(links: list[tuple[int, int]], left: set[int], right: set[int]) -> int:
    """Cables to be cut between two sets of nodes: a flow along shortest augmenting paths."""
    room: dict[int, dict[int, int]] = {}
    for source, destination in links:
        room.setdefault(source, {}).setdefault(destination, 0)
        room.setdefault(destination, {}).setdefault(source, 0)
        room[source][destination] += 1
    for flow in itertools.count():
        came = dict.fromkeys(left, -1)
        queue, at = deque(left), -1
        while queue and at not in right:
            here = queue.popleft()
            for there, free in room[here].items():
                if free and there not in came:
                    came[there] = here
                    queue.append(there)
                    if there in right:
                        at = there
                        break
        if at not in right:
            return flow
        while came[at] != -1:
            before = came[at]
            room[before][at] -= 1
            room[at][before] += 1
            at = before
    raise AssertionError


@pytest.mark.parametrize(
    "fabric, cables, bisection, diameter",
    [
        # k ports: k^3/4 NICs and as many cables in each of three tiers, all of which every half
        # of the NICs may use; three switches up and two down between two of them.
        (sm.Fabric.fat_tree(ports=4), 3 * 16, 8, 6),
        (sm.Fabric.fat_tree(ports=8), 3 * 128, 64, 6),
        # A leaf per unit and rail, and from each of the four as many cables as it has NICs.
        (
            sm.Fabric.rail_optimised(servers=4, gpus=2, servers_per_unit=2, spines=2),
            8 + 4 * 2,
            4,
            4,
        ),
        # Beside the cable of a node one along each axis; half way around is farthest, and the
        # cut across the longest axis meets every ring along it twice.
        (sm.Fabric.torus(shape=(4, 4)), 3 * 16, 2 * 4, 2 + 4),
        (sm.Fabric.torus(shape=(4, 8)), 3 * 32, 2 * 4, 2 + 6),
        (sm.Fabric.torus(shape=(4, 4, 6)), 4 * 96, 2 * 16, 2 + 7),
    ],
    ids=["fat tree 4", "fat tree 8", "rails", "torus 4x4", "torus 4x8", "torus 4x4x6"],
)
def test_links_bisection_and_diameter_of_topologies(
    fabric: sm.Fabric, cables: int, bisection: int, diameter: int
) -> None:
    links = fabric.links()
    assert len(links) == 2 * cables
    pairs = list(zip(links.source.tolist(), links.destination.tolist(), strict=True))
    neighbours: dict[int, set[int]] = {}
    for source, destination in pairs:
        neighbours.setdefault(source, set()).add(destination)
    ends = links[links.source_kind == "nic"].sort_values("source_number")
    nics, switches = ends.source.tolist(), ends.destination.tolist()
    assert len(nics) == fabric.nics
    assert max(distances(neighbours, nics[0])[nic] for nic in nics) == diameter
    # Between the switches of the lower and of the upper half of the NICs.
    between = [pair for pair in pairs if not set(pair) & set(nics)]
    half = len(nics) // 2
    assert most_flow(between, set(switches[:half]), set(switches[half:])) == bisection


# -------------------------------------------------------------------------------------- inference
def test_a_chunk_as_long_as_the_prompt_is_no_chunk() -> None:
    """Whether prompts may be cut matters only where one is longer than a step's tokens."""
    model, cluster = sm.model("llama3_8b"), sm.cluster("dgx_h100")
    plan = sm.serve(model, cluster, CHAT, sm.ServingLayout(tp=1), requests_per_s=0.5, replicas=1)
    # So far apart that no two prompts share a step.
    arrivals, prompts = 30.0 * np.arange(5), np.full(5, 1000.0)

    def first_tokens(**changed: Any) -> list[float]:
        constants = engine_constants(plan.engine).replace(
            mixed_batches=True, tunes_limits=False, **changed
        )
        built, _ = instance_for(
            model, cluster, "bf16", "bf16", 1.0, plan.layout, plan.engine, constants
        )
        mix = _core.RequestMix(input_tokens=1000, output_tokens=20)
        served, _ = built.simulate(mix, arrivals, prompts, np.full(5, 20.0))
        return [float(value) for value in served[:, 1] - arrivals]

    whole = first_tokens(chunked_prefill=False, max_batched_tokens=1000)
    assert first_tokens(chunked_prefill=True, max_batched_tokens=1000) == whole
    assert first_tokens(chunked_prefill=True, max_batched_tokens=4000) == whole
    assert min(first_tokens(chunked_prefill=True, max_batched_tokens=250)) > max(whole)


# -------------------------------------------------------------------------------------- economics
@pytest.mark.parametrize("name", catalog.names("prices"))
def test_every_list_price_makes_a_cost_per_million_tokens(name: str) -> None:
    """Price times accelerator-hours, on a cluster of the accelerators that the price is of."""
    accelerator = catalog.load("prices", name)["accelerator"]
    # A part that the catalogue has no cluster of stands in another one's node.
    cluster = next(
        (
            known
            for known in catalog.names("clusters")
            if catalog.load("clusters", known)["accelerator"] == accelerator
        ),
        {**catalog.load("clusters", "dgx_h100"), "name": "server", "accelerator": accelerator},
    )
    formats = ("bf16", "fp16")  # no accelerator lacks both
    tasks = [sm.Training(global_batch=64, sequence=2048, precision=narrow) for narrow in formats]
    answers = (sm.estimate("gpt3_125m", cluster, task) for task in tasks)
    est = next(answer for answer in answers if answer.fits)
    run = sm.training_run(est, tokens=1e9, price=name, reliability=0)
    assert run.cost_usd is not None
    assert run.price_usd_per_hour is not None
    hours = est.cluster.accelerators * run.time_s / 3600
    assert run.cost_usd == pytest.approx(run.price_usd_per_hour * hours)
    assert run.usd_per_million_tokens == pytest.approx(run.cost_usd / 1e3)


# ------------------------------------------------------------------------------------- experience
#: Verbs that answer a whole question, and the command that asks it.
COMMANDS = {
    "estimate": "estimate",
    "training_run": "estimate",
    "search": "search",
    "explain_choice": "search",
    "sweep": "sweep",
    "codesign": "codesign",
    "scaling": "scaling",
    "route": "route",
    "serve": "serve",
    "plan_serving": "serve",
    "launch": "launch",
    "compare_log": "compare-log",
    "project": "project",
    "compare_bench": "compare-bench",
    "list_catalog": "list",
    "validate": "validate",
    "calibrate": "calibrate",
}


@pytest.mark.parametrize("command", sorted({*COMMANDS.values(), "merge"}))
def test_every_verb_has_a_command_that_prints_json(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert set(COMMANDS) <= set(sm.__all__)
    with pytest.raises(SystemExit):
        make_parser().parse_args([command, "--help"])
    assert "--json" in capsys.readouterr().out


def test_codesign_prints_the_numbers_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--cluster", "dgx_h100", "--global-batch", "64", "--sequence", "4096"]
    vary = ["--vary", "fabric.bandwidth=0.5,1,2", "--vary", "accelerator.memory.capacity=1,2"]
    assert main(["codesign", "llama3_8b", *asked, *vary, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    table = sm.codesign(
        "llama3_8b",
        sm.cluster("dgx_h100"),
        sm.Training(global_batch=64, sequence=4096),
        vary={"fabric.bandwidth": [0.5, 1, 2], "accelerator.memory.capacity": [1, 2]},
    )
    assert [row["step_time_s"] for row in printed["points"]] == table.step_time_s.tolist()
    assert [row["fabric.bandwidth"] for row in printed["points"]] == [
        *table["fabric.bandwidth"].tolist()
    ]


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem
)
def test_notebooks_assert_their_key_numbers(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert re.search(r"^assert ", "".join(code[-1]["source"]), re.MULTILINE)
    assert any(cell["outputs"] for cell in code)  # committed as they ran
    wrong = [out for cell in code for out in cell["outputs"] if out["output_type"] == "error"]
    assert not wrong


def test_three_packages_are_all_that_is_needed() -> None:
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    block = re.search(r"^dependencies = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    names = re.findall(r'^\s*"([a-z]+)', block[1], re.MULTILINE)
    # tomli is what Python 3.11 has of its own.
    assert set(names) - {"tomli"} == {"numpy", "pandas", "matplotlib"}
    assert "tomli; python_version" in block[1]
