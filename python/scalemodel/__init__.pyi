# Names of the package and where they come from; the package reads this list itself.
from scalemodel import plot as plot
from scalemodel._core import (
    Ablation as Ablation,
)
from scalemodel._core import (
    ServingLayout as ServingLayout,
)
from scalemodel._core import (
    __version__ as __version__,
)
from scalemodel.base.errors import ScaleModelError as ScaleModelError
from scalemodel.calibration import calibrate as calibrate
from scalemodel.calibration.spread import calibrate_spread as calibrate_spread
from scalemodel.catalog import list_catalog as list_catalog
from scalemodel.codesign import codesign as codesign
from scalemodel.economics import (
    DataLoading as DataLoading,
)
from scalemodel.economics import (
    Reliability as Reliability,
)
from scalemodel.economics import (
    Replan as Replan,
)
from scalemodel.economics import (
    Stage as Stage,
)
from scalemodel.economics import (
    StagePlan as StagePlan,
)
from scalemodel.economics import (
    TrainingRun as TrainingRun,
)
from scalemodel.economics import (
    compare_clusters as compare_clusters,
)
from scalemodel.economics import (
    compute_optimal as compute_optimal,
)
from scalemodel.economics import (
    data_loading as data_loading,
)
from scalemodel.economics import (
    plan_checkpoints as plan_checkpoints,
)
from scalemodel.economics import (
    plan_spares as plan_spares,
)
from scalemodel.economics import (
    plan_stages as plan_stages,
)
from scalemodel.economics import (
    plan_training as plan_training,
)
from scalemodel.economics import (
    power_caps as power_caps,
)
from scalemodel.economics import (
    reliability as reliability,
)
from scalemodel.economics import (
    replan as replan,
)
from scalemodel.economics import (
    training_run as training_run,
)
from scalemodel.estimator.comparison import compare as compare
from scalemodel.estimator.diagnosis import diagnose as diagnose
from scalemodel.estimator.estimate import Estimate as Estimate
from scalemodel.estimator.estimate import estimate as estimate
from scalemodel.estimator.knobs import Strategy as Strategy
from scalemodel.estimator.mixed import (
    MixedCluster as MixedCluster,
)
from scalemodel.estimator.mixed import (
    MixedEstimate as MixedEstimate,
)
from scalemodel.estimator.mixed import (
    estimate_mixed as estimate_mixed,
)
from scalemodel.estimator.mixed import (
    mixed_cluster as mixed_cluster,
)
from scalemodel.estimator.outer_steps import (
    OuterStepEstimate as OuterStepEstimate,
)
from scalemodel.estimator.outer_steps import (
    outer_steps as outer_steps,
)
from scalemodel.estimator.timeline import Timeline as Timeline
from scalemodel.explorer import Explorer as Explorer
from scalemodel.explorer import explore as explore
from scalemodel.interop.benchmarks import (
    BenchComparison as BenchComparison,
)
from scalemodel.interop.benchmarks import (
    compare_bench as compare_bench,
)
from scalemodel.interop.benchmarks import (
    read_bench as read_bench,
)
from scalemodel.interop.jobs import (
    LogComparison as LogComparison,
)
from scalemodel.interop.jobs import (
    Projection as Projection,
)
from scalemodel.interop.jobs import (
    StepTimeMonitor as StepTimeMonitor,
)
from scalemodel.interop.jobs import (
    compare_log as compare_log,
)
from scalemodel.interop.jobs import (
    project as project,
)
from scalemodel.interop.post_training_settings import (
    RlSettings as RlSettings,
)
from scalemodel.interop.post_training_settings import (
    TuningSettings as TuningSettings,
)
from scalemodel.interop.post_training_settings import (
    launch_rl as launch_rl,
)
from scalemodel.interop.post_training_settings import (
    launch_tuning as launch_tuning,
)
from scalemodel.interop.post_training_settings import (
    read_rl as read_rl,
)
from scalemodel.interop.post_training_settings import (
    read_tuning as read_tuning,
)
from scalemodel.interop.serving_settings import (
    ServingSettings as ServingSettings,
)
from scalemodel.interop.serving_settings import (
    read_serving as read_serving,
)
from scalemodel.interop.settings import (
    Launch as Launch,
)
from scalemodel.interop.settings import (
    Settings as Settings,
)
from scalemodel.interop.settings import (
    launch as launch,
)
from scalemodel.interop.settings import (
    read_settings as read_settings,
)
from scalemodel.interop.torch_modules import (
    RecordedLayers as RecordedLayers,
)
from scalemodel.interop.torch_modules import (
    from_torch as from_torch,
)
from scalemodel.interop.traces import (
    read_chakra as read_chakra,
)
from scalemodel.interop.traces import (
    read_kineto as read_kineto,
)
from scalemodel.interop.traces import (
    write_chakra as write_chakra,
)
from scalemodel.interop.traces import (
    write_kineto as write_kineto,
)
from scalemodel.layer_groups import (
    BatchInference as BatchInference,
)
from scalemodel.layer_groups import (
    ComposedModel as ComposedModel,
)
from scalemodel.layer_groups import (
    Convolution as Convolution,
)
from scalemodel.layer_groups import (
    EmbeddingTables as EmbeddingTables,
)
from scalemodel.layer_groups import (
    GroupEstimate as GroupEstimate,
)
from scalemodel.layer_groups import (
    GroupStrategy as GroupStrategy,
)
from scalemodel.layer_groups import (
    Head as Head,
)
from scalemodel.layer_groups import (
    Interaction as Interaction,
)
from scalemodel.layer_groups import (
    Mlp as Mlp,
)
from scalemodel.layer_groups import (
    PatchEmbedding as PatchEmbedding,
)
from scalemodel.layer_groups import (
    TokenEmbedding as TokenEmbedding,
)
from scalemodel.layer_groups import (
    Transformer as Transformer,
)
from scalemodel.layer_groups import (
    compose as compose,
)
from scalemodel.post_training import Distillation as Distillation
from scalemodel.post_training import Preference as Preference
from scalemodel.post_training import Rl as Rl
from scalemodel.post_training import RlEstimate as RlEstimate
from scalemodel.post_training import RlRanking as RlRanking
from scalemodel.post_training import TuningEstimate as TuningEstimate
from scalemodel.post_training import estimate_rl as estimate_rl
from scalemodel.post_training import estimate_tuning as estimate_tuning
from scalemodel.post_training import search_rl as search_rl
from scalemodel.reports import Report as Report
from scalemodel.reports import report as report
from scalemodel.resolve import (
    Cluster as Cluster,
)
from scalemodel.resolve import (
    Model as Model,
)
from scalemodel.resolve import (
    cluster as cluster,
)
from scalemodel.resolve import (
    model as model,
)
from scalemodel.resolve.tasks import FineTuning as FineTuning
from scalemodel.resolve.tasks import Training as Training
from scalemodel.routing import (
    Fabric as Fabric,
)
from scalemodel.routing import (
    NetworkReport as NetworkReport,
)
from scalemodel.routing import (
    RoutingReport as RoutingReport,
)
from scalemodel.routing import (
    design_topology as design_topology,
)
from scalemodel.routing import (
    pack_trees as pack_trees,
)
from scalemodel.routing import (
    plan_paths as plan_paths,
)
from scalemodel.routing import (
    simulate_network as simulate_network,
)
from scalemodel.routing import (
    time_shifts as time_shifts,
)
from scalemodel.routing.route import route as route
from scalemodel.routing.traffic import Traffic as Traffic
from scalemodel.routing.traffic import traffic as traffic
from scalemodel.scaling import scaling as scaling
from scalemodel.search.choice import explain_choice as explain_choice
from scalemodel.search.layer_groups import GroupRanking as GroupRanking
from scalemodel.search.layer_groups import GroupSpace as GroupSpace
from scalemodel.search.mixed import search_mixed as search_mixed
from scalemodel.search.pareto import pareto as pareto
from scalemodel.search.ranking import Ranking as Ranking
from scalemodel.search.recompute import RecomputeOption as RecomputeOption
from scalemodel.search.recompute import RecomputePlan as RecomputePlan
from scalemodel.search.recompute import plan_recompute as plan_recompute
from scalemodel.search.schedules import ScheduleComparison as ScheduleComparison
from scalemodel.search.schedules import ScheduleOption as ScheduleOption
from scalemodel.search.schedules import compare_schedules as compare_schedules
from scalemodel.search.search import (
    search as search,
)
from scalemodel.search.search import (
    sweep as sweep,
)
from scalemodel.search.search import (
    sweep_chunks as sweep_chunks,
)
from scalemodel.search.space import Space as Space
from scalemodel.serving import (
    Autoscaler as Autoscaler,
)
from scalemodel.serving import (
    CacheTier as CacheTier,
)
from scalemodel.serving import (
    Failures as Failures,
)
from scalemodel.serving import (
    Generation as Generation,
)
from scalemodel.serving import (
    Inference as Inference,
)
from scalemodel.serving import (
    Outage as Outage,
)
from scalemodel.serving import (
    PromptRequest as PromptRequest,
)
from scalemodel.serving import (
    RouterPolicy as RouterPolicy,
)
from scalemodel.serving import (
    SchedulerLimits as SchedulerLimits,
)
from scalemodel.serving import (
    Serving as Serving,
)
from scalemodel.serving import (
    Shedding as Shedding,
)
from scalemodel.serving import (
    cache_tiers as cache_tiers,
)
from scalemodel.serving import (
    compare_serving as compare_serving,
)
from scalemodel.serving import (
    coverage as coverage,
)
from scalemodel.serving import (
    plan_expert_pools as plan_expert_pools,
)
from scalemodel.serving import (
    plan_fleet as plan_fleet,
)
from scalemodel.serving import (
    plan_serving as plan_serving,
)
from scalemodel.serving import (
    plan_split as plan_split,
)
from scalemodel.serving import (
    prefix_hits as prefix_hits,
)
from scalemodel.serving import (
    replay_schedule as replay_schedule,
)
from scalemodel.serving import (
    request_stream as request_stream,
)
from scalemodel.serving import (
    serve_encoders as serve_encoders,
)
from scalemodel.serving import (
    serve_split as serve_split,
)
from scalemodel.serving import (
    simulate_fleet as simulate_fleet,
)
from scalemodel.serving import (
    simulate_pools as simulate_pools,
)
from scalemodel.serving import (
    startup_s as startup_s,
)
from scalemodel.serving import (
    study_fleets as study_fleets,
)
from scalemodel.serving import (
    tier_table as tier_table,
)
from scalemodel.serving import (
    what_if_fleet as what_if_fleet,
)
from scalemodel.serving import (
    what_if_plan as what_if_plan,
)
from scalemodel.serving.launch import (
    ServingLaunch as ServingLaunch,
)
from scalemodel.serving.launch import (
    launch_serving as launch_serving,
)
from scalemodel.serving.serve import serve as serve
from scalemodel.serving.traces import (
    Trace as Trace,
)
from scalemodel.serving.traces import (
    TrafficProfile as TrafficProfile,
)
from scalemodel.serving.traces import (
    fit_traffic as fit_traffic,
)
from scalemodel.serving.traces import (
    read_trace as read_trace,
)
from scalemodel.validation import validate as validate
