"""Why a serving plan cannot run, in words, and the least instance that can."""

from __future__ import annotations

import scalemodel._core as _core
from scalemodel.base.numbers import divisors
from scalemodel.base.text import size_text, values_text
from scalemodel.resolve import Cluster, Model
from scalemodel.serving.plan import ServingPlan, instance_of, ranks_of

#: What is wrong, and what would be legal; values of `_facts` in braces.
_TEMPLATES = {
    "out_of_memory": "{weights} of weights, {activations} of activations and {reserve} of reserve "
    "leave no room for the cache of a request: {accelerator} has {capacity}.",
    "mesh": "{replicas} x {ranks} accelerators are more than the {accelerators} of the cluster.",
    "pp_layers": "pp={pp} but the model has {layers} layers.",
    "tp_heads": "tp={tp} cannot split {heads} heads; each rank takes whole ones: tp in "
    "{tp_values}.",
    "tp_ffn": "tp={tp} cannot split a feed-forward layer of width {ffn} in equal parts.",
    "ep_mesh": "ep={ep} does not divide the {expert_mesh} ranks that experts lie on: ep in "
    "{ep_mesh_values}.",
    "ep_experts": "ep={ep} cannot split {experts}.",
    "etp_ffn": "experts of width {expert_ffn} cannot be split over the {expert_split} ranks that "
    "share each: {expert_mesh} ranks, ep={ep}.",
}


def layout_text(layout: _core.ServingLayout) -> str:
    """Degrees above 1.

    Examples
    --------
    >>> layout_text(_core.ServingLayout(tp=8, ep=8)), layout_text(_core.ServingLayout())
    ('tp8 ep8', 'tp1')
    >>> layout_text(_core.ServingLayout(tp=8, two_batch_overlap=True))
    'tp8 two_batch_overlap'
    """
    named = [
        name if value is True else f"{name}{value}"
        for name, value in layout.to_dict().items()
        if value > 1 or value is True
    ]
    return " ".join(named) or "tp1"


def _capacity(plan: ServingPlan, layout: _core.ServingLayout) -> _core.CacheCapacity:
    question = (plan.model, plan.cluster, plan.task, layout, plan.engine)
    instance, _ = instance_of(*question, plan.engine_limits, plan.expert_cluster)
    return instance.capacity(plan.task.input_tokens, plan.task.output_tokens)


def why_illegal(
    reason: str, model: Model, cluster: Cluster, layout: _core.ServingLayout, replicas: int
) -> str:
    """What is wrong with a layout, and what would be legal.

    Parameters
    ----------
    reason : str
        As `_core.check_serving_layout` gives it, or ``mesh``.

    Examples
    --------
    >>> import scalemodel as sm
    >>> model, cluster = sm.model("llama3_8b"), sm.cluster("dgx_h100")
    >>> why_illegal("mesh", model, cluster, sm.ServingLayout(tp=4), 3)
    '3 x 4 accelerators are more than the 8 of the cluster.'
    """
    return _TEMPLATES[reason].format_map(_facts(model, cluster, layout, replicas))


def why_too_large(needed_bytes: float, cluster: Cluster, what: str) -> str:
    """What does not fit into the memory of an accelerator.

    Examples
    --------
    >>> import scalemodel as sm
    >>> why_too_large(100 * 2**30, sm.cluster("dgx_h100"), "One image")
    'One image needs 100 GiB per accelerator: h100_sxm_80 has 80.0 GiB.'
    """
    capacity = size_text(cluster.core.accelerator.memory_capacity_bytes)
    return (
        f"{what} needs {size_text(needed_bytes)} per accelerator: {cluster.accelerator} has "
        f"{capacity}."
    )


def _facts(
    model: Model, cluster: Cluster, layout: _core.ServingLayout, replicas: int
) -> dict[str, object]:
    shape, core = model.shape, cluster.core
    mesh = layout.expert_ranks or layout.tp * layout.cp * layout.dp
    experts = shape.experts + layout.redundant_experts
    return {
        **layout.to_dict(),
        "replicas": replicas,
        "ranks": ranks_of(layout),
        "accelerators": cluster.accelerators,
        "accelerator": cluster.accelerator,
        "capacity": size_text(core.accelerator.memory_capacity_bytes),
        "layers": shape.layers,
        "heads": shape.heads,
        "tp_values": values_text(divisors(max(1, shape.heads), cluster.accelerators)),
        "ffn": shape.ffn,
        "experts": f"{experts} experts" if shape.experts else "a model without experts",
        "expert_ffn": shape.expert_ffn or shape.ffn,
        "expert_mesh": mesh,
        "ep_mesh_values": values_text(divisors(mesh)),
        "expert_split": mesh // layout.ep,
    }


def least_layout(plan: ServingPlan) -> _core.ServingLayout | None:
    """Of the fewest accelerators of the plan's cluster that hold the model and a request.

    None where all of them do not, or where experts have a pool of their own.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=1000, output_tokens=200)
    >>> least_layout(sm.serve("llama3_70b", "dgx_h100", task))
    ServingLayout(tp=2)
    """
    if plan.layout.expert_ranks:
        return None
    cluster = plan.cluster
    layouts = _core.serving_layouts(plan.model.core, cluster.core, cluster.accelerators)
    # Of as many accelerators those with whole replicas of attention hold the fewest copies of it.
    layouts.sort(key=lambda layout: (ranks_of(layout), layout.dp, layout.cp, layout.pp))
    for layout in layouts:
        if _capacity(plan, layout).max_running_sequences >= 1:
            return layout
    return None


class ToldPlan(ServingPlan):
    """A plan that says why it cannot run."""

    def __str__(self) -> str:
        return repr(self) if self.fits else f"{self!r}\n{self.why_not()}"

    def why_not(self) -> str:
        """What keeps the plan from running, and the smallest instance that runs; empty if it does.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Inference(input_tokens=1000, output_tokens=200)
        >>> print(sm.serve("llama3_70b", "dgx_h100", task).why_not())
        131 GiB of weights, ... leave no room for the cache of a request: h100_sxm_80 has 80.0 GiB.
        The smallest instance that holds it: ServingLayout(tp=2); plan_serving or --goal finds ...
        >>> print(sm.serve("llama3_70b", "dgx_h100", task, sm.ServingLayout(tp=3)).why_not())
        tp=3 cannot split 64 heads; each rank takes whole ones: tp in {1, 2, 4, 8}.
        ...
        """
        if self.fits:
            return ""
        facts = _facts(self.model, self.cluster, self.layout, self.replicas)
        reason = self.verdict.removeprefix("illegal:")
        if reason == "out_of_memory":
            held = _capacity(self, self.layout)
            facts |= {
                "weights": size_text(held.memory_weights_bytes),
                "activations": size_text(held.memory_activations_bytes),
                "reserve": size_text(held.memory_reserve_bytes),
            }
        lines = [_TEMPLATES[reason].format_map(facts)]
        least = least_layout(self)
        if least is not None:
            best = "plan_serving or --goal finds the best"
            lines.append(f"The smallest instance that holds it: {least}; {best}.")
        elif not self.layout.expert_ranks:
            lines.append(f"No instance of {self.cluster.accelerators} accelerators holds it.")
        return "\n".join(lines)
