"""What an explorer asks at the moment, and the answer; it needs no notebook."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.words import named_arguments
from scalemodel.codesign.vary import Hardware
from scalemodel.estimator.estimate import Estimate, estimate
from scalemodel.explorer.controls import Controls
from scalemodel.explorer.settings import (
    ACCELERATOR,
    MACHINE,
    MODEL,
    QUESTION,
    STACK,
    STRATEGY,
    TASK,
    Setting,
)
from scalemodel.explorer.view import view_html
from scalemodel.layer_groups.model import is_composed
from scalemodel.resolve import Cluster, Model, Network
from scalemodel.resolve.clusters import ClusterLike
from scalemodel.resolve.models import ModelLike
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.resolve.tasks import Training
from scalemodel.search.search import search
from scalemodel.search.space import Space

if TYPE_CHECKING:
    from scalemodel.reports import Report


_KNOBS = (
    *("tp", "cp", "pp", "vpp", "ep", "micro_batch", "schedule", "sharding", "recompute"),
    *("sequence_parallel", "offload_optimizer"),
)
_SCALED = (
    *("accelerator.peak", "accelerator.memory.bandwidth", "accelerator.memory.capacity"),
    *("scale_up.bandwidth", "fabric.bandwidth"),
)
_SCALES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
_RATIOS = (0.25, 0.5, 1, 2, 4)


def _ordered(values: Sequence[Any], own: object) -> tuple[Any, ...]:
    """The values with the present one among them, ascending where they are numbers."""
    listed = list(dict.fromkeys([*values, own]))
    numeric = all(isinstance(item, int) and not isinstance(item, bool) for item in listed)
    return tuple(sorted(listed) if numeric else listed)


def _around(own: int) -> tuple[int, ...]:
    """Whole multiples and parts of a count."""
    return tuple(int(own * ratio) for ratio in _RATIOS if own * ratio == int(own * ratio) >= 1)


def _named(kind: str, own: str) -> tuple[str, ...]:
    """Names of the catalogue, the given one first where it is none of them."""
    names = catalog.names(kind)
    return tuple(names) if own in names else (own, *names)


class Explorer:
    """A question with sliders. Made by `explore`; in a notebook it shows itself.

    Attributes
    ----------
    settings : dict
        What can be turned, by name: ``model``, ``accelerator`` and ``stack``, knobs of the
        strategy, fields of the task, ``nodes`` and scales of the machine's quantities
        (``"fabric.bandwidth"`` and others, 1 as it is).
    values : dict
        What each is set to.
    estimate : Estimate
        The answer.
    pinned : Estimate or None
        What it is compared with; see `pin`.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> explorer = sm.explore("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
    >>> faster = explorer.set(tp=1, micro_batch=2)
    >>> explorer.estimate == faster, explorer.values["tp"]
    (True, 1)
    """

    def __init__(
        self,
        model: ModelLike,
        cluster: Cluster,
        task: Training,
        strategy: _core.Strategy,
        stack: str,
    ) -> None:
        own = resolve.model(model)
        self.pinned: Estimate | None = None
        self._task, self._strategy = task, strategy
        self._models = {own.name: own}
        self._machines = {cluster.accelerator: Hardware(cluster)}
        self._listeners: list[Callable[[], None]] = []
        self._controls: Any = None
        self._first = {
            **strategy.to_dict(),
            **task.core.to_dict(),
            MODEL: own.name,
            ACCELERATOR: cluster.accelerator,
            STACK: stack,
            "nodes": max(1, round(cluster.nodes)),
        }
        self.settings = self._settings(own.name, cluster.accelerator)
        self.values = {name: self._first.get(name, 1.0) for name in self.settings}
        self.estimate = self._answer(self.settings, self.values)

    @property
    def model(self) -> Model:
        """The model asked about at the moment."""
        return self._model(self.values[MODEL])

    @property
    def stack(self) -> str:
        """The software stack at the moment."""
        return str(self.values[STACK])

    def _model(self, name: str) -> Model:
        """The given model, or another of the catalogue by name."""
        if name not in self._models:
            self._models[name] = resolve.model(name)
        return self._models[name]

    def _machine(self, accelerator: str) -> Hardware:
        """The given machine, or one of as many nodes with other accelerators.

        What the catalogue does not say of a node that has no name is its default.
        """
        if accelerator not in self._machines:
            table = {"name": accelerator, "accelerator": accelerator}
            cluster = resolve.cluster(table, nodes=self._first["nodes"])
            self._machines[accelerator] = Hardware(cluster)
        return self._machines[accelerator]

    def _settings(self, model_name: str, accelerator: str) -> dict[str, Setting]:
        model, hardware = self._model(model_name), self._machine(accelerator)
        found = {
            name: Setting(QUESTION, _named(kind, self._first[name]))
            for name, kind in ((MODEL, "models"), (ACCELERATOR, "accelerators"), (STACK, "stacks"))
        }
        automatic = Space().values(model, hardware.cluster, self._task)
        choices = {row["name"]: row.get("choices", ()) for row in _core.Strategy.fields()}
        own = self._strategy.to_dict()
        for name in _KNOBS:
            values = automatic.get(name) or choices[name]
            if name != "ep" or model.shape.experts:
                found[name] = Setting(STRATEGY, _ordered(values, own[name]))
        batch, sequence = self._task.global_batch, self._task.sequence
        found["global_batch"] = Setting(TASK, _around(batch))
        found["sequence"] = Setting(TASK, _around(sequence))
        rates = hardware.cluster.core.accelerator.peak_flop_per_s
        known = [name for name, rate in zip(_core.precisions(), rates, strict=True) if rate > 0]
        found["precision"] = Setting(TASK, _ordered(known, self._task.precision))
        found["nodes"] = Setting(MACHINE, _around(self._first["nodes"]))
        for path in _SCALED:
            if hardware.quantity(path).scales:
                found[path] = Setting(MACHINE, _SCALES, scales=True)
        return found

    # ------------------------------------------------------------------------------ the question
    def _cluster(self, settings: dict[str, Setting], values: dict[str, Any]) -> Cluster:
        hardware = self._machine(values[ACCELERATOR])
        scales = {name: values[name] for name, each in settings.items() if each.scales}
        changed: dict[str, object] = {name: by for name, by in scales.items() if by != 1}
        if values["nodes"] != round(hardware.cluster.nodes):
            changed["nodes"] = str(values["nodes"])
        return hardware.build(hardware.design(changed))

    def _question(
        self, settings: dict[str, Setting], values: dict[str, Any]
    ) -> tuple[Cluster, Training, _core.Strategy]:
        groups: dict[str, dict[str, Any]] = {QUESTION: {}, STRATEGY: {}, TASK: {}, MACHINE: {}}
        for name, value in values.items():
            groups[settings[name].group][name] = value
        plan = self._strategy.replace(dp=0, **groups[STRATEGY])
        if "ep" not in settings:  # of a model with experts before
            plan = plan.replace(ep=1, etp=0)
        return self._cluster(settings, values), self._task.replace(**groups[TASK]), plan

    def _answer(self, settings: dict[str, Setting], values: dict[str, Any]) -> Estimate:
        cluster, task, plan = self._question(settings, values)
        return estimate(self._model(values[MODEL]), cluster, task, plan, stack=values[STACK])

    def set(self, **values: Any) -> Estimate:
        """Turn one or more settings and answer again; paths go in as ``**{"fabric.bandwidth": 2}``.

        Parameters
        ----------
        **values
            Names of `settings` and values; also values that no slider offers. Another accelerator
            comes in nodes of the catalogue's usual kind, with those of the explored machine; each
            model and machine has its own settings.

        Returns
        -------
        Estimate

        Raises
        ------
        ScaleModelError : no such setting, or a value out of range; nothing is changed then.
        """
        chosen = {name: values.get(name, self.values[name]) for name in (MODEL, ACCELERATOR)}
        settings = self.settings
        if any(chosen[name] != self.values[name] for name in chosen):
            settings = self._settings(chosen[MODEL], chosen[ACCELERATOR])
        for name in values:
            if name not in settings:
                raise ScaleModelError(f"{name}: no such setting; {nearest(name, settings)}")
        known = {**self._first, **self.values, **values}
        wanted = {name: known.get(name, 1.0) for name in settings}
        self.estimate = self._answer(settings, wanted)
        self.settings, self.values = settings, wanted
        self._tell()
        return self.estimate

    def pin(self) -> None:
        """Compare what follows with the present answer."""
        self.pinned = None if self.estimate.illegal else self.estimate
        self._tell()

    def search(self, *, threads: int | None = None) -> Estimate:
        """Turn the strategy to the fastest one for the present task and machine.

        Raises
        ------
        ScaleModelError : nothing fits; the message says why.
        """
        cluster, task, _ = self._question(self.settings, self.values)
        found = search(self.model, cluster, task, top=1, stack=self.stack, threads=threads)
        if not found:
            raise ScaleModelError(f"nothing fits: {found.why_infeasible()}", code="infeasible")
        self._strategy = found[0].strategy
        plan = self._strategy.to_dict()
        return self.set(**{name: plan[name] for name in self.settings if name in plan})

    def report(self, **options: Any) -> Report:
        """The present strategy on one HTML page; options as of `sm.report`."""
        from scalemodel.reports import report

        est = self.estimate
        space = Space(**est.strategy.to_dict())
        # What is shown may fill the memory: its page is asked for all the same.
        options = {"headroom": 0.0, **options}
        return report(est.model, est.cluster, est.task, space, stack=self.stack, **options)

    # -------------------------------------------------------------------------------- what it shows
    def listen(self, tell: Callable[[], None]) -> None:
        """Call a function after every change."""
        self._listeners.append(tell)

    def _tell(self) -> None:
        for tell in self._listeners:
            tell()

    def html(self) -> str:
        """The answer, beside the pinned one, as HTML."""
        return view_html(self.estimate, self.pinned)

    @property
    def widget(self) -> Any:
        """Sliders and answer for a notebook (extra ``explore``).

        Raises
        ------
        ScaleModelError : ipywidgets is not installed.
        """
        if self._controls is None:
            self._controls = Controls(self)
        return self._controls.box

    def _ipython_display_(self) -> None:
        importlib.import_module("IPython.display").display(self.widget)

    def __repr__(self) -> str:
        return f"Explorer({self.model.name}, {self.estimate!r})"


@named_arguments
def explore(
    model: ModelLike,
    cluster: ClusterLike,
    task: Training,
    strategy: _core.Strategy | None = None,
    *,
    stack: str = DEFAULT_STACK,
    network: Network = None,
) -> Explorer:
    """A question with sliders for a notebook: every turn is answered at once.

    Menus choose another model, accelerator or software stack of the catalogue. Sliders turn the
    strategy's knobs, batch, sequence and number format, and the machine: its nodes, and how much
    faster or larger its parts are. Buttons pin an answer to compare with,
    search the fastest strategy, say what would help and write the present answer as a page.

    Parameters
    ----------
    model, cluster, task, strategy, stack, network : as in `estimate`
        Where the sliders stand at first.

    Returns
    -------
    Explorer
        Also without a notebook: `Explorer.set` turns, `Explorer.estimate` answers.

    Raises
    ------
    ScaleModelError : malformed question, or a model of layer groups.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=1024, sequence=8192)
    >>> explorer = sm.explore("llama3_70b", sm.cluster("dgx_h100", nodes=64), task,
    ...                       sm.Strategy(tp=8, pp=4))
    >>> before = explorer.estimate.step_time_s
    >>> explorer.set(**{"scale_up.bandwidth": 2.0}).step_time_s < before
    True
    """
    if is_composed(model):
        raise ScaleModelError(f"model={model!r}: only decoders have sliders")
    if not isinstance(task, Training):
        raise ScaleModelError(f"task={task!r}: must be a Training or FineTuning")
    strategy = _core.Strategy() if strategy is None else strategy
    if not isinstance(strategy, _core.Strategy):
        raise ScaleModelError(f"strategy={strategy!r}: must be a Strategy")
    where = resolve.with_network(resolve.cluster(cluster), network)
    return Explorer(model, where, task, strategy, stack)
