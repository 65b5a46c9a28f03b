"""Every plot draws every kind of answer that it says it draws, and what it draws can be read."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.text import Text

import scalemodel as sm
from golden import plots
from scalemodel import plot
from scalemodel.base.errors import ScaleModelError

pytestmark = pytest.mark.usefixtures("agg")

TASK = sm.Training(global_batch=512, sequence=8192)
LONG = sm.Strategy(tp=4, cp=2, pp=4, vpp=5, recompute="selective", micro_batch=2)
CHAT = sm.Inference(input_tokens=1000, output_tokens=200)
RL = sm.Rl(prompts=16, generations=16, prompt_tokens=128, generated_tokens=800, limit_tokens=4096)
RL_PLAN = sm.Strategy(tp=2, recompute="full")


class Answers:
    """What the verbs return, each asked once."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in self._known:
            self._known[name] = getattr(type(self), f"make_{name}")(self)
        return self._known[name]

    def make_estimate(self) -> Any:
        return sm.estimate("llama3_70b", sm.cluster("dgx_h100", nodes=64), TASK, LONG)

    def make_too_big(self) -> Any:
        return sm.estimate("llama3_70b", sm.cluster("dgx_h100", nodes=64), TASK)

    def make_fleet(self) -> Any:
        task = sm.Inference(input_tokens=4000, output_tokens=100)
        plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=2)
        return sm.simulate_fleet(self.trace, plan, router="prefix_aware")

    def make_fleets(self) -> Any:
        task = sm.Inference(input_tokens=1000, output_tokens=100)
        plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=1)
        drawn = sm.request_stream(task, requests=500, requests_per_s=50)
        return sm.study_fleets(drawn, [(plan, n) for n in (1, 2, 4)], limits={"ttft_s": 0.2})

    def make_tuned(self) -> Any:
        task = sm.FineTuning(global_batch=64, sequence=8192, lora_rank=16)
        return sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))

    def make_groups(self) -> Any:
        task = sm.Training(global_batch=4096, sequence=197)
        return sm.estimate(sm.compose("vit_b"), sm.cluster("dgx_h100"), task)

    def make_rl_step(self) -> Any:
        return sm.estimate_rl("llama3_8b", "dgx_h100", RL, RL_PLAN)

    def make_rl_apart(self) -> Any:
        one = sm.cluster("dgx_h100")
        return sm.estimate_rl("llama3_8b", one, RL, RL_PLAN, rollout=one, staleness=1)

    def make_tuning_apart(self) -> Any:
        task = sm.Distillation(
            teacher="llama3_70b",
            prompts=64,
            prompt_tokens=200,
            generated_tokens=800,
            limit_tokens=4096,
        )
        one, plan = sm.cluster("dgx_h100"), sm.Strategy(tp=8)
        return sm.estimate_tuning("llama3_8b", one, task, plan, teacher_cluster=one)

    def make_timeline(self) -> Any:
        return self.estimate.timeline()

    def make_sweep(self) -> Any:
        space = {"tp": [2, 4, 8], "pp": [1, 2, 4], "cp": 1, "placement": "tp-cp-dp-pp"}
        return sm.sweep("llama3_70b", sm.cluster("dgx_h100", nodes=64), TASK, space)

    def make_front(self) -> Any:
        return sm.pareto(self.sweep, minimize=["step_time_s", "memory_bytes"])

    def make_ranking(self) -> Any:
        return sm.search("llama3_8b", sm.cluster("dgx_h100"), TASK, top=30)

    def make_group_sweep(self) -> Any:
        task = sm.Training(global_batch=4096, sequence=197)
        return sm.sweep(sm.compose("vit_b"), sm.cluster("dgx_h100"), task)

    def make_curve(self) -> Any:
        return sm.scaling("llama2_7b", "dgx_h100", TASK, [8, 16, 64, 256], rule="fsdp")

    def make_crossovers(self) -> Any:
        return sm.scaling.crossovers("llama2_7b", "dgx_h100", TASK, [8, 64])

    def make_study(self) -> Any:
        vary = {"fabric.bandwidth": [0.5, 1, 2], "scale_up.bandwidth": [0.5, 1, 2]}
        cluster = sm.cluster("dgx_h100", nodes=2)
        return sm.codesign("llama3_8b", cluster, TASK, {"cp": 1, "pp": [1, 2]}, vary=vary)

    def make_sensitivity(self) -> Any:
        paths = ["accelerator.peak", "accelerator.memory.bandwidth", "fabric.bandwidth"]
        cluster = sm.cluster("dgx_h100", nodes=2)
        return sm.codesign.sensitivity("llama3_8b", cluster, TASK, {"cp": 1, "pp": 1}, paths=paths)

    def make_routed(self) -> Any:
        fabric = sm.Fabric.leaf_spine()
        return sm.route(fabric, sm.Traffic.paper_mix(fabric, jobs=2, ring=2), policy="ecmp")

    def make_training_jobs(self) -> Any:
        fabric = sm.Fabric.leaf_spine(leaves=4, spines=4, nics_per_leaf=8)
        job = ("llama3_8b", sm.Strategy(tp=2, pp=2), TASK)
        cluster = sm.cluster("dgx_h100", nodes=4)
        return sm.route(cluster, [job], policy="ecmp", fabric=fabric, placement="random_nics")

    def make_runs(self) -> Any:
        fabric = sm.Fabric.leaf_spine()
        jobs = sm.Traffic.paper_mix(fabric, jobs=2, ring=2)
        return sm.simulate_network(fabric, jobs, epochs=2, reoptimise_every_s=1.0)

    def make_plans(self) -> Any:
        return sm.plan_serving("llama3_8b", "dgx_h100", CHAT)

    def make_served(self) -> Any:
        return sm.serve("llama3_8b", "dgx_h100", CHAT, requests_per_s=2, replicas=1)

    def make_stream(self) -> Any:
        return self.served.simulate(requests=200)

    def make_rates(self) -> Any:
        return sm.serving.rate_table(self.served)

    def make_trace(self) -> Any:
        random = np.random.default_rng(0)
        whose = random.integers(0, 60, 900)
        return sm.Trace(
            np.sort(random.uniform(0, 7200, 900)),
            random.integers(65, 97, 900),
            random.integers(1, 2000, 900),
            block_offsets=np.arange(0, 2701, 3),
            block_ids=np.stack([whose % 3, 10 + whose, 100 + whose], axis=1).ravel(),
            block_tokens=32,
        )

    def make_gemms(self) -> Any:
        return plot.gemm_table("h100_sxm_80", m=[256, 1024], n=[256, 1024], k=[8192])

    def make_collectives(self) -> Any:
        sizes = [2.0**i for i in range(10, 31, 4)]
        return plot.collective_table("dgx_h100", "all_reduce", ranks=[2, 8], sizes_bytes=sizes)

    def make_steps(self) -> Any:
        return pd.DataFrame(
            {"source": ["a", "b"], "gpu": ["H100", "A100"]}
            | {"norm_step_time_s": [1.0, 2.0], "predicted_step_time_s": [1.1, 1.9]}
        )

    def make_calls(self) -> Any:
        return pd.DataFrame(
            {"source": ["a", "b"], "gpu": ["H100", "A100"]}
            | {"time_us": [3.0, 2e4], "predicted_time_us": [4.0, 1.9e4]}
        )


Kinds = dict[str, Callable[[Answers], Axes]]
ESTIMATES: dict[str, Callable[[Answers], Any]] = {
    "an estimate": lambda a: a.estimate,
    "one that does not fit": lambda a: a.too_big,
    "fine-tuning": lambda a: a.tuned,
    "layer groups": lambda a: a.groups,
    "several": lambda a: [a.estimate, a.too_big, a.groups],
    "a ranking": lambda a: a.ranking,
}
LINKS: dict[str, Callable[[Answers], Any]] = {
    "patterns": lambda a: a.routed,
    "training jobs": lambda a: a.training_jobs,
    "links of patterns": lambda a: a.routed.links(),
    "links of training jobs": lambda a: a.training_jobs.links(),
}


def projected() -> sm.Projection:
    """A job of one node that takes a tenth longer than predicted, on more of them."""
    task = sm.Training(global_batch=16, sequence=8192)
    est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
    return sm.project(1.1 * est.step_time_s, est, nodes=[1, 8, 64])


def each(function: Callable[[Any], Axes], given: dict[str, Callable[[Answers], Any]]) -> Kinds:
    def drawn(get: Callable[[Answers], Any]) -> Callable[[Answers], Axes]:
        return lambda answers: function(get(answers))

    return {name: drawn(get) for name, get in given.items()}


KINDS: dict[str, Kinds] = {
    "breakdown": each(plot.breakdown, ESTIMATES),
    "memory": each(plot.memory, ESTIMATES),
    "timeline": {
        "a timeline": lambda a: plot.timeline(a.timeline),
        "all streams": lambda a: plot.timeline(a.timeline, streams=None, window_s=(0, 1)),
        "events": lambda a: plot.timeline(a.timeline.events),
    },
    "memory_timeline": {
        "a timeline": lambda a: plot.memory_timeline(a.timeline),
        "memory": lambda a: plot.memory_timeline(a.timeline.memory, rank=1),
    },
    "pareto": {
        "a front": lambda a: plot.pareto(a.front),
        "with its sweep": lambda a: plot.pareto(a.front, frame=a.sweep, knees=2),
        "throughput": lambda a: plot.pareto(
            sm.pareto(a.sweep, minimize="memory_bytes", maximize="tokens_per_s")
        ),
        "a ranking": lambda a: plot.pareto(a.ranking, "step_time_s", "memory_bytes"),
        "layer groups": lambda a: plot.pareto(
            sm.pareto(a.group_sweep, minimize=["step_time_s", "memory_bytes"])
        ),
        "a study": lambda a: plot.pareto(sm.pareto(a.study, ["step_time_s", "energy_j"])),
    },
    "heat_map": {
        "a sweep": lambda a: plot.heat_map(a.sweep),
        "a ranking": lambda a: plot.heat_map(a.ranking, "tokens_per_s", "tp", "micro_batch"),
    },
    "parallel_coordinates": {
        "a sweep": lambda a: plot.parallel_coordinates(a.sweep, ["tp", "pp", "step_time_s"]),
        "a ranking": lambda a: plot.parallel_coordinates(a.ranking),
    },
    "scaling": {
        "a study": lambda a: plot.scaling(a.curve),
        "by label": lambda a: plot.scaling({"a": a.curve, "b": a.curve}, "mfu_fraction"),
        "split": lambda a: plot.scaling(
            a.curve.assign(cluster="x"), "step_time_s", by="cluster", measured={64: 3.0}
        ),
    },
    "scaling_breakdown": {"a study": lambda a: plot.scaling_breakdown(a.curve)},
    "projection": {"a job": lambda a: plot.projection(projected().table())},
    "crossovers": {"a table": lambda a: plot.crossovers(a.crossovers)},
    "tornado": {"sensitivities": lambda a: plot.tornado(a.sensitivity)},
    "iso_performance": {
        "a study": lambda a: plot.iso_performance(
            a.study, "fabric.bandwidth_scale", "scale_up.bandwidth_scale", "step_time_s"
        )
    },
    "link_loads": each(plot.link_loads, LINKS),
    "link_load_cdf": {
        **each(plot.link_load_cdf, LINKS),
        "several": lambda a: plot.link_load_cdf({"one": a.training_jobs, "two": a.training_jobs}),
    },
    "network_map": {
        **each(plot.network_map, LINKS),
        "a fabric": lambda a: plot.network_map(sm.Fabric.leaf_spine(leaves=4, spines=2)),
    },
    "job_slowdowns": {
        "patterns": lambda a: plot.job_slowdowns(a.routed),
        "training jobs": lambda a: plot.job_slowdowns(a.training_jobs),
        "tables": lambda a: plot.job_slowdowns({"one": a.routed.jobs(), "two": a.routed}),
        "slowdowns": lambda a: plot.job_slowdowns(a.training_jobs.slowdowns()),
    },
    "completion_times": {
        "a run": lambda a: plot.completion_times(a.runs),
        "several": lambda a: plot.completion_times({"one": a.runs, "two": a.runs}, of="ring"),
    },
    "network_efficiency": {
        "a run": lambda a: plot.network_efficiency(a.runs),
        "several": lambda a: plot.network_efficiency({"one": a.runs, "two": a.runs}),
    },
    "serving_front": {
        "plans": lambda a: plot.serving_front(a.plans, tpot_s=0.02),
        "a table": lambda a: plot.serving_front(a.plans.front),
        "several": lambda a: plot.serving_front({"one": a.plans, "two": a.plans.front}),
    },
    "serving_rates": {"a table": lambda a: plot.serving_rates(a.rates)},
    "cache_occupancy": {
        "a stream": lambda a: plot.cache_occupancy(a.stream),
        "a table": lambda a: plot.cache_occupancy(a.stream.occupancy(100)),
    },
    "request_rate": {
        "a trace": lambda a: plot.request_rate(a.trace),
        "several": lambda a: plot.request_rate({"one": a.trace, "two": a.trace.scaled(2.0)}),
    },
    "request_lengths": {
        "a trace": lambda a: plot.request_lengths(a.trace),
        "a stream": lambda a: plot.request_lengths(a.stream.stream),
        "several": lambda a: plot.request_lengths({"one": a.trace, "two": a.trace}),
    },
    "fleet_load": {
        **{
            kind: lambda a, kind=kind: plot.fleet_load(a.fleet, kind)
            for kind in ("rate", "queue", "hits", "replicas", "ttft_p99")
        },
        "several": lambda a: plot.fleet_load({"one": a.fleet, "two": a.fleet}, "queue", parts=9),
    },
    "latency_percentiles": {
        "a fleet": lambda a: plot.latency_percentiles(a.fleet, "tpot_s", limit_s=0.05),
        "several": lambda a: plot.latency_percentiles({"one": a.fleet, "two": a.fleet}),
    },
    "fleet_front": {
        "a table": lambda a: plot.fleet_front(a.fleets),
        "several": lambda a: plot.fleet_front({"one": a.fleets, "two": a.fleets}),
    },
    "hit_curve": {
        "a trace": lambda a: plot.hit_curve(a.trace),
        "several": lambda a: plot.hit_curve({"one": a.trace, "two": a.trace}, blocks=[9, 99]),
    },
    "gemm_efficiency": {"a table": lambda a: plot.gemm_efficiency(a.gemms)},
    "rl_step": {
        "one pool": lambda a: plot.rl_step(a.rl_step),
        "two pools": lambda a: plot.rl_step(a.rl_apart),
        "a teacher beside its student": lambda a: plot.rl_step(a.tuning_apart),
    },
    "roofline": {
        "an estimate": lambda a: plot.roofline(a.estimate),
        "fine-tuning": lambda a: plot.roofline(a.tuned),
        "one that does not fit": lambda a: plot.roofline(a.too_big),
    },
    "bus_bandwidth": {"a table": lambda a: plot.bus_bandwidth(a.collectives)},
    "validation": {
        "steps": lambda a: plot.validation(a.steps),
        "calls": lambda a: plot.validation(a.calls),
    },
}
CASES = [(name, kind) for name, kinds in KINDS.items() for kind in kinds]


@pytest.fixture(scope="module")
def answers() -> Answers:
    return Answers()


def shown(axis: Axis) -> list[Text]:
    """Labels of ticks within the limits."""
    low, high = sorted(axis.get_view_interval())
    room = 1e-6 * (high - low)
    ticks = [t for t in axis.get_major_ticks() if low - room <= t.get_loc() <= high + room]
    labels = [tick.label1 for tick in ticks] + [tick.label2 for tick in ticks]
    return [label for label in labels if label.get_visible() and label.get_text()]


def test_every_plot_is_tried() -> None:
    assert set(KINDS) == {name for name, _ in plots.functions()}


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_plot_draws_what_it_says_it_draws(name: str, kind: str, answers: Answers) -> None:
    ax = KINDS[name][kind](answers)
    assert isinstance(ax, Axes)
    figure: Any = ax.figure
    assert ax.has_data()
    assert ax.get_xlabel() or ax.get_ylabel() or name in ("network_map", "parallel_coordinates")
    figure.canvas.draw()
    # Nothing is too small to be read, and no two ticks of an axis run into each other.
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text():
            assert text.get_fontsize() >= 7.99, text
    for axis in itertools.chain.from_iterable((a.xaxis, a.yaxis) for a in figure.axes):
        assert not axis.get_offset_text().get_text(), "a label of a tick is the value itself"
        boxes = [label.get_window_extent() for label in shown(axis)]
        if any(label.get_rotation() % 90 for label in shown(axis)):
            continue  # slanted ones overlap by their boxes, not by their letters
        for one, other in itertools.combinations(boxes, 2):
            assert not one.overlaps(other), (name, kind, shown(axis))


@pytest.mark.parametrize("name", ["breakdown", "memory"])
def test_bars_have_most_of_the_figure(name: str, answers: Answers) -> None:
    draw = getattr(plot, name)
    for given in (answers.estimate, [answers.estimate, answers.too_big]):
        ax = draw(given)
        ax.figure.canvas.draw()
        assert ax.get_position().width > 0.5
    alone = draw(answers.estimate)
    assert "tp4 cp2 pp4 vpp5" in alone.get_title(loc="left")
    assert not alone.get_yticks().size


def test_markers_of_a_scaling_study_are_whole(answers: Answers) -> None:
    ax = plot.scaling(answers.curve)
    ax.figure.canvas.draw()
    line = ax.lines[0]
    top = ax.transData.transform(np.asarray(line.get_xydata())).max(axis=0)[1]
    radius = line.get_markersize() / 2 * ax.figure.dpi / 72
    assert top + radius <= ax.get_window_extent().y1
    assert ax.get_ylim()[0] == 0


@pytest.mark.parametrize("ends", [(24, 45), (3, 90), (1, 900), (1e-3, 1e6), (950, 1050), (0.7, 9)])
def test_ticks_of_a_log_axis_are_few_and_apart(ends: tuple[float, float]) -> None:
    from scalemodel.plot.canvas import log_ticks

    figure, ax = plt.subplots(figsize=(4, 3))
    ax.plot(ends, ends)
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    for axis in (ax.xaxis, ax.yaxis):
        log_ticks(axis)
    figure.canvas.draw()
    for axis in (ax.xaxis, ax.yaxis):
        boxes = [label.get_window_extent() for label in shown(axis)]
        assert 2 <= len(boxes) <= 12
        assert not any(one.overlaps(two) for one, two in itertools.combinations(boxes, 2))


@pytest.mark.parametrize("given", [None, 7, [None]])
def test_what_is_no_estimate_is_named(given: Any) -> None:
    with pytest.raises(ScaleModelError, match="must be an Estimate or a list of them"):
        plot.memory(given)


def test_bars_thinner_than_pixels_become_shares_of_the_time(answers: Answers) -> None:
    est = sm.estimate(
        "llama3_70b",
        sm.cluster("dgx_h100", nodes=16),
        sm.Training(global_batch=1024, sequence=4096),
        sm.Strategy(tp=8, pp=4, vpp=5),
    )
    run = est.timeline()
    ax = plot.timeline(run)
    assert len(ax.collections) <= 4 * 4  # one area of each kind on each stage, not a bar an event
    events = run.events
    for rank in range(4):
        for kind in ("forward", "backward"):
            of_kind = events[(events["rank"] == rank) & (events.kind == kind)]
            busy = of_kind[of_kind.stream.astype(str) == "compute"].duration_s.sum()
            drawn = [
                area_of(each, rank)
                for each in ax.collections
                if each.get_facecolor()[0][:3] == pytest.approx(to_rgb(COLOUR_OF[kind]))
            ]
            assert sum(drawn) == pytest.approx(busy, rel=0.01)
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["forward", "backward", "optimizer"]
    few = plot.timeline(answers.timeline, window_s=(0, 0.3))
    assert len(few.collections[0].get_paths()) > 1


COLOUR_OF = {"forward": "#3f90da", "backward": "#ffa90e"}


def area_of(collection: Any, rank: int) -> float:
    """Seconds that an area in the lane of a rank stands for, a lane being 0.9 high."""
    found = 0.0
    for path in collection.get_paths():
        x, y = path.vertices.T
        middle = 1.6 * rank
        if abs(y.mean() - middle) < 0.8:
            found += abs(np.trapezoid(y, x)) / 0.9
    return found


def test_axes_of_whole_numbers_have_whole_ticks(answers: Answers) -> None:
    ax = plot.link_loads(answers.training_jobs)
    ax.figure.canvas.draw()
    for axis in (ax.xaxis, ax.yaxis):
        assert all(float(label.get_text()).is_integer() for label in shown(axis))


def test_lines_of_equal_performance_have_labels_of_their_own(answers: Answers) -> None:
    ax = KINDS["iso_performance"]["a study"](answers)
    labels = [text.get_text() for text in ax.texts]
    assert len(set(labels)) == len(labels) >= 3


def test_bars_fill_the_height_of_a_ranking(answers: Answers) -> None:
    ax = plot.breakdown(answers.ranking)
    bottom, top = ax.get_ylim()
    assert (bottom, top) == (len(answers.ranking) - 0.4, -0.6)


def test_a_front_of_layer_groups_is_labelled_by_meshes(answers: Answers) -> None:
    ax = KINDS["pareto"]["layer groups"](answers)
    assert any("@8" in text.get_text() for text in ax.texts)
    assert not any("recompute" in text.get_text() for text in ax.texts)
