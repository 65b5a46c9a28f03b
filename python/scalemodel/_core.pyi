"""
The scalemodel engine. Private: use the functions and types of `scalemodel`.
"""
from __future__ import annotations
import collections.abc
import numpy
import numpy.typing
import typing
__all__: list[str] = ['ACTIVITIES', 'Ablation', 'Accelerator', 'Adapters', 'AttentionKernels', 'Autoscaler', 'BatchPass', 'BatchState', 'Cable', 'CacheCapacity', 'CacheTier', 'CappedStep', 'CheckpointWrite', 'ChipProcess', 'ClockPower', 'Cluster', 'CollectiveFit', 'ComposedModel', 'Controller', 'CustomAllReduce', 'DataPath', 'DecodeKernel', 'DecodeLoad', 'DecoderShape', 'Degrees', 'DispatchKernel', 'Draft', 'Dragonfly', 'DynamicSampling', 'ElementwiseKernels', 'EncoderPass', 'Engine', 'Enumeration', 'Estimate', 'ExpertPool', 'Fabric', 'FailingJob', 'Failures', 'FatTree', 'FittedField', 'Flows', 'GemmFormat', 'GemmKernels', 'GenerationPass', 'GroupEstimate', 'GroupLayout', 'GroupSpace', 'GroupTables', 'GroupedGemmKernel', 'GuidedDecoding', 'HostLevels', 'InSwitchFit', 'Instance', 'JobSchedule', 'LatentGrid', 'LayerGroup', 'LayeredModel', 'LeafSpine', 'LinkGraph', 'LogGP', 'LogitFormat', 'LookupKernel', 'LossLaw', 'MAX_FLOW_SIZES', 'MAX_LINK_UNITS', 'MeasuredCurve', 'MeasuredRun', 'MixedStep', 'NetworkShares', 'Outage', 'OuterSteps', 'Packing', 'PoolLoad', 'PowerPhases', 'PrefillKernel', 'PrefixTimes', 'Rails', 'Recovery', 'RefitCosts', 'ReplicaLayout', 'ReplicaTotals', 'RequestMix', 'RingJob', 'RlPasses', 'RlPhases', 'RouteOptions', 'RouterPolicy', 'STREAMS', 'ScaleUp', 'ScalingPoint', 'ScanKernels', 'SchedulerLimits', 'Searcher', 'ServerParts', 'ServingKernels', 'ServingLayout', 'ServingPower', 'Shedding', 'SimulationPlan', 'Space', 'SparePool', 'Stack', 'StartUp', 'SteadyState', 'StepPhases', 'StepTime', 'StoredSample', 'Strategy', 'StreamTotals', 'StreamingKernel', 'SwitchCosts', 'Tables', 'Task', 'TierReach', 'TierTotals', 'TileGemm', 'Timeline', 'TimelineOptions', 'Torus', 'TuningPasses', 'TuningPhases', 'VisionShape', 'WeightSet', 'WorkKernel', 'accelerator_share_kg', 'amortised', 'answer_lengths', 'answers_in_flight', 'asynchronous_s', 'asynchronous_stage_bytes', 'attention_bound_s', 'availability_interval_s', 'batch_pass', 'batch_power_w', 'batch_state_at', 'best_algorithm', 'break_even_repair_s', 'cache_token_bytes', 'canonical', 'check_draft', 'check_serving_layout', 'check_vision', 'checkpoint_background_s', 'checkpoint_blocking_s', 'checkpoint_flows', 'checkpoint_host_memory_bytes', 'collective_bound_s', 'collective_time_s', 'collective_times_s', 'columns', 'communicator_groups', 'conformal_bound', 'convolution_group', 'custom_all_reduce_times_s', 'daly_interval_s', 'decode_activity', 'decode_time_s', 'decoder_groups', 'die_kg', 'direct_connect', 'dispatch_time_s', 'draft_candidates', 'draft_paths', 'draw_slowdown', 'ecmp_hash', 'embedding_tables_group', 'energy_over_run_j', 'ettr_with_spares', 'exact_ettr', 'expected_maximum', 'expert_layer_time_s', 'expert_loads', 'exposed_loading_s', 'facility_energy_j', 'first_order_ettr', 'fit_collective', 'fit_decode', 'fit_dispatch', 'fit_elementwise', 'fit_fabric', 'fit_flash', 'fit_prefill', 'fit_roofline_gemm', 'fit_stack', 'fit_tile_gemm', 'fixed_ratio_split', 'flop_for_energy', 'flop_for_money', 'forward_pass_time_s', 'full_batches', 'gemm_bound_s', 'gemm_kernel_time_s', 'gemm_time_s', 'gemm_work', 'generation_time', 'goodput', 'group_columns', 'grouped_call_time_s', 'head_factor', 'head_group', 'implied_grid_g_per_kwh', 'instance_power_w', 'instance_price_usd_per_s', 'interaction_group', 'jain_index', 'joint_factor', 'judge_routing', 'kernel_work', 'latencies_alone_s', 'latent_places', 'learning_memory_bytes', 'least_loss_split', 'loading_cores_needed', 'loading_rate_per_s', 'loading_rates', 'loggp_s', 'logit_bytes', 'logit_time_s', 'logp_broadcast_s', 'lookup_time_s', 'loss', 'marginal_return', 'maximum_deviation', 'mean_over_run_w', 'mean_power_w', 'mean_repeated_s', 'mean_time_to_failure_s', 'memory_beside_frozen_bytes', 'memory_bound_s', 'memory_kg', 'mesh_of_experts', 'mesh_suits', 'mesh_text', 'mixed_by_replica', 'mixed_by_stage', 'mixed_with_layers', 'mlp_group', 'moved_kernel', 'node_logits_bytes', 'node_power_w', 'operational_kg', 'outer_round', 'outer_state_bytes', 'overtakes_at_s', 'owned_price_usd_per_s', 'p2p_time_s', 'pack_documents', 'pack_trees', 'packed_batch', 'padded_batch', 'padded_dispatch_s', 'pareto_front', 'patch_embedding_group', 'path_columns', 'pattern_flows', 'pattern_steps', 'precisions', 'prefill_time_s', 'prefix_hits', 'prefix_times', 'rank_imbalance', 'reached_tier', 'reasons', 'received_logits_bytes', 'recorded_group', 'reference_swap_time_s', 'refit_bytes', 'refit_time_s', 'reload_time_s', 'rental_cost_usd', 'replicas_on_spares', 'resolve_degrees', 'restarting', 'ring_strides', 'ring_traffic', 'rl_phases', 'rl_starts_s', 'rl_step_time_s', 'rollout_period_s', 'route_flows', 'run_network', 'running_sequences', 'sampling_rounds', 'scaling_efficiency', 'scaling_point', 'schedule_requests', 'score', 'search_groups', 'search_pools', 'search_serving', 'sequence_lengths', 'serving_layouts', 'serving_power_w', 'shares_under_repair', 'simulate_best', 'simulate_fleet', 'simulate_runs', 'slowest_fabric', 'spared_memory_bytes', 'staffed_fraction', 'startup_s', 'step_messages', 'step_under_cap', 'strategy_flows', 'streaming_time_s', 'sustained_rollout_s', 'sweep', 'sweep_groups', 'switch_time_s', 'teacher_swap_time_s', 'teaching_memory_bytes', 'textbook_collective_s', 'time_shifts', 'timeline', 'token_embedding_group', 'tokens_in', 'tokens_per_step', 'training_time_s', 'transformer_group', 'tree_acceptance', 'trend_cache_bytes', 'tuning_phases', 'tuning_starts_s', 'tuning_step_time_s', 'two_level_ettr', 'variables', 'verified_drafts', 'waiting', 'weight_set', 'weight_versions', 'weights_bytes_per_s', 'why_no_answers', 'without_replicas', 'work_done_s', 'work_kernel_time_s', 'work_per_paid_node', 'young_interval_s']
class TileGemm:
    """
    Constants of the tile form of a matrix multiplication.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: TileGemm) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, launch_s: float = 0.0, tau_cycles: float = 0.0, burst_fraction: float = 0.0, sustained_fraction: float = 0.0, throttle_s: float = 0.0, memory_fraction: float = 0.0, cache_bytes_per_clock: float = 0.0, epilogue_bytes_per_clock: float = 0.0, wave_weight: float = 0.0, split_s: float = 0.0, split_passes: float = 4.0, memory_ramp_s: float = 0.0, blend: float = 3.0, quantise_passes: float = 0.0, host_floor_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> TileGemm:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def blend(self) -> float:
        """
        exponent of the smooth maximum
        """
    @property
    def burst_fraction(self) -> float:
        """
        fraction of peak, short kernels
        """
    @property
    def cache_bytes_per_clock(self) -> float:
        """
        operands into a multiprocessor; 0 = no limit
        """
    @property
    def epilogue_bytes_per_clock(self) -> float:
        """
        results out of a multiprocessor; 0 = no limit
        """
    @property
    def host_floor_s(self) -> float:
        """
        CPU overhead of a launch: least time of a call
        """
    @property
    def launch_s(self) -> float:
        """
        fixed time of a call
        """
    @property
    def memory_fraction(self) -> float:
        """
        fraction of memory bandwidth
        """
    @property
    def memory_ramp_s(self) -> float:
        """
        most that filling the memory pipeline adds
        """
    @property
    def quantise_passes(self) -> float:
        """
        passes to quantise activations
        """
    @property
    def split_passes(self) -> float:
        """
        bytes per partial result of a split
        """
    @property
    def split_s(self) -> float:
        """
        fixed time of a split-k reduction
        """
    @property
    def sustained_fraction(self) -> float:
        """
        fraction of peak, long kernels
        """
    @property
    def tau_cycles(self) -> float:
        """
        shortest 64-deep tile step, clocks
        """
    @property
    def throttle_s(self) -> float:
        """
        kernel time of half the drop
        """
    @property
    def wave_weight(self) -> float:
        """
        cost of a partial wave
        """
class GemmKernels:
    """
    How matrix multiplications run on an accelerator.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: GemmKernels) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, tiled: bool = False, dense16: TileGemm = ..., fp8: TileGemm = ..., fp4: TileGemm = ..., tile_rows: collections.abc.Sequence[float] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), tile_columns: collections.abc.Sequence[float] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), wave_targets: int = 1, resident_elements: float = 0.0, resident_most: int = 1, warm_factor: float = 1.0, rows_of_4_fraction: float = 1.0, rows_of_2_fraction: float = 1.0, reference_peak_flop_per_s: float = 0.0, roofline_compute_fraction: float = 0.0, roofline_memory_fraction: float = 0.0, roofline_launch_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> GemmKernels:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def dense16(self) -> TileGemm:
        """
        FP16 and BF16 constants
        """
    @property
    def fp4(self) -> TileGemm:
        """
        FP4 constants
        """
    @property
    def fp8(self) -> TileGemm:
        """
        FP8 constants
        """
    @property
    def reference_peak_flop_per_s(self) -> float:
        """
        BF16 peak of the fit
        """
    @property
    def resident_elements(self) -> float:
        """
        outputs a multiprocessor works on at once; 0 = one tile
        """
    @property
    def resident_most(self) -> int:
        """
        most tiles of a multiprocessor at once
        """
    @property
    def roofline_compute_fraction(self) -> float:
        """
        fraction of peak, roofline form
        """
    @property
    def roofline_launch_s(self) -> float:
        """
        fixed time, roofline form
        """
    @property
    def roofline_memory_fraction(self) -> float:
        """
        fraction of memory bandwidth, roofline form
        """
    @property
    def rows_of_2_fraction(self) -> float:
        """
        rate where rows are whole 2 bytes only
        """
    @property
    def rows_of_4_fraction(self) -> float:
        """
        rate where rows are whole 4 or 8 bytes only
        """
    @property
    def tile_columns(self) -> tuple:
        """
        columns of the tile shapes
        """
    @property
    def tile_rows(self) -> tuple:
        """
        rows of the tile shapes; 0 = none
        """
    @property
    def tiled(self) -> bool:
        """
        whether the tile form was fitted
        """
    @property
    def warm_factor(self) -> float:
        """
        gain of operands left in the cache
        """
    @property
    def wave_targets(self) -> int:
        """
        whole waves that split-k may fill
        """
class AttentionKernels:
    """
    Rates of flash-attention kernels.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: AttentionKernels) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, flash2_forward: float = 0.0, flash2_backward: float = 0.0, flash3_forward: float = 0.0, flash3_backward: float = 0.0, flash3_narrow: float = 0.33, tile: float = 128.0, launch_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> AttentionKernels:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def flash2_backward(self) -> float:
        """
        fraction of 16-bit peak
        """
    @property
    def flash2_forward(self) -> float:
        """
        fraction of 16-bit peak
        """
    @property
    def flash3_backward(self) -> float:
        """
        fraction of 16-bit peak
        """
    @property
    def flash3_forward(self) -> float:
        """
        fraction of 16-bit peak
        """
    @property
    def flash3_narrow(self) -> float:
        """
        exponentials over products at head size 128, forward
        """
    @property
    def launch_s(self) -> float:
        """
        fixed time of a call
        """
    @property
    def tile(self) -> float:
        """
        queries that a kernel masks together
        """
class ElementwiseKernels:
    """
    Rates of memory-bound kernels.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: ElementwiseKernels) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, add_fraction: float = 0.0, norm_fraction: float = 0.0, softmax_fraction: float = 0.0, activation_fraction: float = 0.0, launch_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> ElementwiseKernels:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def activation_fraction(self) -> float:
        """
        fraction of memory bandwidth; 0: as additions
        """
    @property
    def add_fraction(self) -> float:
        """
        fraction of memory bandwidth
        """
    @property
    def launch_s(self) -> float:
        """
        fixed time of a call
        """
    @property
    def norm_fraction(self) -> float:
        """
        fraction of memory bandwidth
        """
    @property
    def softmax_fraction(self) -> float:
        """
        fraction of memory bandwidth
        """
class ScanKernels:
    """
    Constants of the scans of recurrent mixers.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: ScanKernels) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, compute_fraction: float = 1.0, memory_fraction: float = 1.0, step_s: float = 0.0, launch_s: float = 0.0, backward: float = 2.5, blend: float = 1.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> ScanKernels:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def backward(self) -> float:
        """
        work of the backward pass over the forward one
        """
    @property
    def blend(self) -> float:
        """
        exponent of the smooth maximum of chain and work
        """
    @property
    def compute_fraction(self) -> float:
        """
        fraction of 16-bit peak
        """
    @property
    def launch_s(self) -> float:
        """
        fixed time of a scan
        """
    @property
    def memory_fraction(self) -> float:
        """
        fraction of memory bandwidth
        """
    @property
    def step_s(self) -> float:
        """
        one chunk after another of a sequence
        """
class PowerPhases:
    """
    Power of an accelerator by phase.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: PowerPhases) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, limit_w: float = 0.0, idle_w: float = 0.0, compute_fraction: float = 0.0, exposed_fraction: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> PowerPhases:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def compute_fraction(self) -> float:
        """
        of the limit, computing
        """
    @property
    def exposed_fraction(self) -> float:
        """
        of the limit, waiting on a network
        """
    @property
    def idle_w(self) -> float:
        """
        power of an idle accelerator
        """
    @property
    def limit_w(self) -> float:
        """
        sustained power limit
        """
class Accelerator:
    """
    An accelerator.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Accelerator) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, peak_flop_per_s: collections.abc.Sequence[float] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0), multiprocessors: int = 0, clock_hz: float = 0.0, memory_capacity_bytes: float = 0.0, memory_bandwidth_bytes_per_s: float = 0.0, l2_bytes: float = 0.0, host_bandwidth_bytes_per_s: float = 0.0, host_slowdown: float = 1.0, gemm: GemmKernels = ..., attention: AttentionKernels = ..., elementwise: ElementwiseKernels = ..., scan: ScanKernels = ..., power: PowerPhases = ...) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Accelerator:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def attention(self) -> AttentionKernels:
        """
        attention constants
        """
    @property
    def clock_hz(self) -> float:
        """
        boost clock
        """
    @property
    def elementwise(self) -> ElementwiseKernels:
        """
        memory-bound kernel constants
        """
    @property
    def gemm(self) -> GemmKernels:
        """
        matrix multiplication constants
        """
    @property
    def host_bandwidth_bytes_per_s(self) -> float:
        """
        one direction
        """
    @property
    def host_slowdown(self) -> float:
        """
        CPU overhead of an operation of a framework over that of an x86 server
        """
    @property
    def l2_bytes(self) -> float:
        """
        last-level cache
        """
    @property
    def memory_bandwidth_bytes_per_s(self) -> float:
        """
        peak bandwidth
        """
    @property
    def memory_capacity_bytes(self) -> float:
        """
        device memory
        """
    @property
    def multiprocessors(self) -> int:
        """
        streaming multiprocessors
        """
    @property
    def peak_flop_per_s(self) -> tuple:
        """
        dense peak by precision; 0 = unsupported
        """
    @property
    def power(self) -> PowerPhases:
        """
        power by phase
        """
    @property
    def scan(self) -> ScanKernels:
        """
        constants of recurrent scans
        """
class CollectiveFit:
    """
    Constants of one collective inside a domain.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: CollectiveFit) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, start1_s: float = 0.0, per_rank1_s: float = 0.0, bandwidth_fraction1: float = 0.0, start2_s: float = 0.0, per_rank2_s: float = 0.0, bandwidth_fraction2: float = 0.0, pipeline_fill_s: float = 0.0, own_share: float = 0.0, host_share: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> CollectiveFit:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def bandwidth_fraction1(self) -> float:
        """
        of the link, latency branch
        """
    @property
    def bandwidth_fraction2(self) -> float:
        """
        of the link, bandwidth branch
        """
    @property
    def host_share(self) -> float:
        """
        slowdown by every rank beyond two, across host memory
        """
    @property
    def own_share(self) -> float:
        """
        traffic beyond the ring's, shares of a rank
        """
    @property
    def per_rank1_s(self) -> float:
        """
        time per ring step, latency branch
        """
    @property
    def per_rank2_s(self) -> float:
        """
        time per ring step, bandwidth branch
        """
    @property
    def pipeline_fill_s(self) -> float:
        """
        constant of the pipeline fill
        """
    @property
    def start1_s(self) -> float:
        """
        fixed time, latency branch
        """
    @property
    def start2_s(self) -> float:
        """
        fixed time, bandwidth branch
        """
class InSwitchFit:
    """
    Constants of reduction inside the switch of a domain.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: InSwitchFit) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, start_s: float = 0.0, bandwidth_fraction: float = 0.0, pipeline_fill_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> InSwitchFit:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def bandwidth_fraction(self) -> float:
        """
        of the link; 0 = no reduction
        """
    @property
    def pipeline_fill_s(self) -> float:
        """
        constant of the pipeline fill
        """
    @property
    def start_s(self) -> float:
        """
        fixed time
        """
class MeasuredCurve:
    """
    Measured times of one collective on one shape of group.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: MeasuredCurve) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, op: str = 'all_reduce', ranks: int = 0, domains: int = 1, size_bytes: collections.abc.Sequence[float] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), time_s: collections.abc.Sequence[float] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> MeasuredCurve:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def domains(self) -> int:
        """
        scale-up domains the group spanned
        """
    @property
    def op(self) -> str:
        """
        collective that was timed
        """
    @property
    def ranks(self) -> int:
        """
        of the group; 0 = no curve
        """
    @property
    def size_bytes(self) -> tuple:
        """
        ascending sizes, in nccl-tests convention; 0 = unused
        """
    @property
    def time_s(self) -> tuple:
        """
        measured times; 0 = unused
        """
class HostLevels:
    """
    Switches and sockets of a host, and what crosses between them.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: HostLevels) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, switched: int = 0, beyond_switch_bytes_per_s: float = 0.0, socket: int = 0, beyond_socket_bytes_per_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> HostLevels:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def beyond_socket_bytes_per_s(self) -> float:
        """
        of all that crosses between sockets, one direction
        """
    @property
    def beyond_switch_bytes_per_s(self) -> float:
        """
        of all that crosses between switches, one direction
        """
    @property
    def socket(self) -> int:
        """
        accelerators of one socket; 0 = all
        """
    @property
    def switched(self) -> int:
        """
        accelerators below one switch; 0 = all
        """
class ScaleUp:
    """
    The network inside a scale-up domain.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: ScaleUp) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, domain: int = 1, bandwidth_bytes_per_s: float = 0.0, all_reduce: CollectiveFit = ..., all_gather: CollectiveFit = ..., reduce_scatter: CollectiveFit = ..., all_to_all: CollectiveFit = ..., p2p_latency_s: float = 0.0, p2p_fraction: float = 0.0, in_switch: InSwitchFit = ..., carries_fabric: bool = False, levels: HostLevels = ...) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> ScaleUp:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def all_gather(self) -> CollectiveFit:
        """
        constants of the operation
        """
    @property
    def all_reduce(self) -> CollectiveFit:
        """
        constants of the operation
        """
    @property
    def all_to_all(self) -> CollectiveFit:
        """
        constants of the operation
        """
    @property
    def bandwidth_bytes_per_s(self) -> float:
        """
        per accelerator, one direction
        """
    @property
    def carries_fabric(self) -> bool:
        """
        adapters share the links
        """
    @property
    def domain(self) -> int:
        """
        accelerators joined
        """
    @property
    def in_switch(self) -> InSwitchFit:
        """
        reduction inside the switch
        """
    @property
    def levels(self) -> HostLevels:
        """
        switches and sockets of a host
        """
    @property
    def p2p_fraction(self) -> float:
        """
        of the bandwidth, one large transfer
        """
    @property
    def p2p_latency_s(self) -> float:
        """
        one transfer
        """
    @property
    def reduce_scatter(self) -> CollectiveFit:
        """
        constants of the operation
        """
class NetworkShares:
    """
    Parts of the ideal bandwidth that each axis gets.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: NetworkShares) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, tp: float = 1.0, cp: float = 1.0, ep: float = 1.0, pp: float = 1.0, dp: float = 1.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> NetworkShares:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def cp(self) -> float:
        """
        of context-parallel groups
        """
    @property
    def dp(self) -> float:
        """
        of data-parallel groups
        """
    @property
    def ep(self) -> float:
        """
        of expert-parallel groups
        """
    @property
    def pp(self) -> float:
        """
        of neighbouring pipeline stages
        """
    @property
    def tp(self) -> float:
        """
        of tensor-parallel groups
        """
class Fabric:
    """
    The network between domains.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Fabric) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, bandwidth_bytes_per_s: float = 0.0, oversubscription: float = 1.0, pod: int = 0, ring_hop_ll128_s: float = 0.0, ring_hop_simple_s: float = 0.0, tree_hop_ll128_s: float = 0.0, tree_hop_simple_s: float = 0.0, latency_factor: float = 1.0, bandwidth_fraction: float = 0.0, all_to_all_fraction: float = 0.0, p2p_latency_s: float = 0.0, p2p_fraction: float = 0.0, in_network_reduction: bool = False, shares: NetworkShares = ...) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Fabric:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def all_to_all_fraction(self) -> float:
        """
        all-to-all
        """
    @property
    def bandwidth_bytes_per_s(self) -> float:
        """
        per accelerator, one direction
        """
    @property
    def bandwidth_fraction(self) -> float:
        """
        rings and trees
        """
    @property
    def in_network_reduction(self) -> bool:
        """
        switches reduce
        """
    @property
    def latency_factor(self) -> float:
        """
        measured over tabulated latency
        """
    @property
    def oversubscription(self) -> float:
        """
        between pods
        """
    @property
    def p2p_fraction(self) -> float:
        """
        of the bandwidth, one large transfer
        """
    @property
    def p2p_latency_s(self) -> float:
        """
        one transfer
        """
    @property
    def pod(self) -> int:
        """
        accelerators at full bandwidth; 0 = all
        """
    @property
    def ring_hop_ll128_s(self) -> float:
        """
        ring step, LL128 protocol
        """
    @property
    def ring_hop_simple_s(self) -> float:
        """
        ring step, Simple protocol
        """
    @property
    def shares(self) -> NetworkShares:
        """
        of the bandwidth that each axis gets
        """
    @property
    def tree_hop_ll128_s(self) -> float:
        """
        tree step, LL128 protocol
        """
    @property
    def tree_hop_simple_s(self) -> float:
        """
        tree step, Simple protocol
        """
class Cluster:
    """
    A cluster.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Cluster) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, accelerator: Accelerator = ..., accelerators: int = 1, node_accelerators: int = 1, host_power_w: float = 0.0, host_memory_bytes: float = 0.0, scale_up: ScaleUp = ..., fabric: Fabric = ..., pue: float = 1.0, price_usd_per_s: float = 0.0, measured: collections.abc.Sequence[MeasuredCurve] = ...) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Cluster:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def accelerator(self) -> Accelerator:
        """
        the accelerator
        """
    @property
    def accelerators(self) -> int:
        """
        in the job
        """
    @property
    def fabric(self) -> Fabric:
        """
        network between domains
        """
    @property
    def host_memory_bytes(self) -> float:
        """
        of a node
        """
    @property
    def host_power_w(self) -> float:
        """
        of a node beside its accelerators
        """
    @property
    def measured(self) -> tuple:
        """
        timed collectives; they win over the model
        """
    @property
    def node_accelerators(self) -> int:
        """
        in a node
        """
    @property
    def price_usd_per_s(self) -> float:
        """
        per accelerator; 0 = unknown
        """
    @property
    def pue(self) -> float:
        """
        facility power over equipment power
        """
    @property
    def scale_up(self) -> ScaleUp:
        """
        network inside a domain
        """
class Cable:
    """
    A kind of cable.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Cable) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, bandwidth_bytes_per_s: float = 12500000000.0, latency_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Cable:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def bandwidth_bytes_per_s(self) -> float:
        """
        one direction
        """
    @property
    def latency_s(self) -> float:
        """
        one traversal
        """
class LeafSpine:
    """
    Two tiers of switches.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: LeafSpine) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, leaves: int = 64, spines: int = 32, nics_per_leaf: int = 32, cables: int = 1, host: Cable = ..., fabric: Cable = ...) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> LeafSpine:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def cables(self) -> int:
        """
        between a leaf and a spine
        """
    @property
    def fabric(self) -> Cable:
        """
        leaf to spine
        """
    @property
    def host(self) -> Cable:
        """
        NIC to leaf
        """
    @property
    def leaves(self) -> int:
        """
        leaf switches
        """
    @property
    def nics_per_leaf(self) -> int:
        """
        NICs under a leaf
        """
    @property
    def spines(self) -> int:
        """
        spine switches
        """
class FatTree:
    """
    Three tiers of equal switches.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: FatTree) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, ports: int = 4, host: Cable = ..., fabric: Cable = ...) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> FatTree:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def fabric(self) -> Cable:
        """
        between switches
        """
    @property
    def host(self) -> Cable:
        """
        NIC to leaf
        """
    @property
    def ports(self) -> int:
        """
        of a switch, even
        """
class Rails:
    """
    One leaf per accelerator of a server.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Rails) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, servers: int = 32, gpus: int = 8, servers_per_unit: int = 32, spines: int = 0, host: Cable = ..., fabric: Cable = ..., scale_up: Cable = ...) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Rails:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def fabric(self) -> Cable:
        """
        leaf to spine
        """
    @property
    def gpus(self) -> int:
        """
        accelerators of a server
        """
    @property
    def host(self) -> Cable:
        """
        NIC to leaf
        """
    @property
    def scale_up(self) -> Cable:
        """
        accelerator to scale-up switch; no bandwidth = none
        """
    @property
    def servers(self) -> int:
        """
        servers
        """
    @property
    def servers_per_unit(self) -> int:
        """
        servers that share leaves
        """
    @property
    def spines(self) -> int:
        """
        spine switches; 0 = rail-only
        """
class Dragonfly:
    """
    Fully joined groups of fully joined routers.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Dragonfly) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, routers: int = 4, nics: int = 2, global_cables: int = 2, host: Cable = ..., local: Cable = ..., between: Cable = ...) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Dragonfly:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def between(self) -> Cable:
        """
        between groups
        """
    @property
    def global_cables(self) -> int:
        """
        of a router
        """
    @property
    def host(self) -> Cable:
        """
        NIC to router
        """
    @property
    def local(self) -> Cable:
        """
        between routers of a group
        """
    @property
    def nics(self) -> int:
        """
        of a router
        """
    @property
    def routers(self) -> int:
        """
        of a group
        """
class Torus:
    """
    A torus of up to three dimensions.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Torus) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, x: int = 4, y: int = 4, z: int = 1, host: Cable = ..., fabric: Cable = ...) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Torus:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def fabric(self) -> Cable:
        """
        between nodes
        """
    @property
    def host(self) -> Cable:
        """
        NIC to node
        """
    @property
    def x(self) -> int:
        """
        nodes along the first dimension
        """
    @property
    def y(self) -> int:
        """
        nodes along the second dimension
        """
    @property
    def z(self) -> int:
        """
        nodes along the third dimension
        """
class LinkGraph:
    """
    A network as a directed graph of links.
    """
    __hash__: typing.ClassVar[None] = None
    def __eq__(self, arg0: LinkGraph) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    @typing.overload
    def __init__(self, spec: LeafSpine) -> None:
        ...
    @typing.overload
    def __init__(self, spec: FatTree) -> None:
        ...
    @typing.overload
    def __init__(self, spec: Rails) -> None:
        ...
    @typing.overload
    def __init__(self, spec: Dragonfly) -> None:
        ...
    @typing.overload
    def __init__(self, spec: Torus) -> None:
        ...
    @typing.overload
    def __init__(self, nics: typing.SupportsInt | typing.SupportsIndex, cable: Cable) -> None:
        ...
    @typing.overload
    def __init__(self, nics: typing.SupportsInt | typing.SupportsIndex, switches: typing.SupportsInt | typing.SupportsIndex, edges: collections.abc.Sequence[tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex]]) -> None:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def columns(self) -> dict:
        """
        Source, destination, bandwidth and latency of every link.
        """
    def copy(self) -> LinkGraph:
        """
        An equal graph.
        """
    def fail_node(self, node: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Takes down every cable of a node.
        """
    def kinds(self) -> list:
        """
        Kind of every node.
        """
    def nic_nodes(self) -> list[int]:
        """
        Node of every NIC.
        """
    def scale_cable(self, link: typing.SupportsInt | typing.SupportsIndex, factor: typing.SupportsFloat | typing.SupportsIndex) -> None:
        """
        Gives both directions of a cable this fraction of their capacity as built.
        """
    @property
    def leaves(self) -> int:
        """
        Leaves of a two-tier fabric, otherwise 0.
        """
    @property
    def links(self) -> int:
        """
        Directed links, two per cable.
        """
    @property
    def nics(self) -> int:
        """
        NICs.
        """
    @property
    def nodes(self) -> int:
        """
        Switches and NICs.
        """
    @property
    def planes(self) -> int:
        """
        Paths between two leaves of a two-tier fabric, otherwise 0.
        """
class CustomAllReduce:
    """
    Constants of an all-reduce kernel of a serving engine.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: CustomAllReduce) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, start1_s: float = 0.0, per_rank1_s: float = 0.0, bandwidth_fraction1: float = 1.0, start2_s: float = 0.0, per_rank2_s: float = 0.0, bandwidth_fraction2: float = 1.0, host_share: float = 0.0, host_floor_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> CustomAllReduce:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def bandwidth_fraction1(self) -> float:
        """
        of the link, one-shot
        """
    @property
    def bandwidth_fraction2(self) -> float:
        """
        of the link, two-shot
        """
    @property
    def host_floor_s(self) -> float:
        """
        CPU overhead of a launch: least time of a call
        """
    @property
    def host_share(self) -> float:
        """
        slowdown by every rank beyond two, across host memory
        """
    @property
    def per_rank1_s(self) -> float:
        """
        time per rank, one-shot
        """
    @property
    def per_rank2_s(self) -> float:
        """
        time per rank, two-shot
        """
    @property
    def start1_s(self) -> float:
        """
        fixed time, one-shot
        """
    @property
    def start2_s(self) -> float:
        """
        fixed time, two-shot
        """
class LogGP:
    """
    Parameters of the LogGP model; without gap_per_byte_s, of LogP.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: LogGP) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, latency_s: float = 0.0, overhead_s: float = 0.0, gap_s: float = 0.0, gap_per_byte_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> LogGP:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def gap_per_byte_s(self) -> float:
        """
        G, between the bytes of a message
        """
    @property
    def gap_s(self) -> float:
        """
        g, at least between two messages of a processor
        """
    @property
    def latency_s(self) -> float:
        """
        L, from sender to receiver
        """
    @property
    def overhead_s(self) -> float:
        """
        o, of a processor that sends or receives
        """
class GemmFormat:
    """
    Number formats and peak of a matrix multiplication.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: GemmFormat) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, activation_bytes: float = 2.0, weight_bytes: float = 2.0, peak_flop_per_s: float = 0.0, warm: bool = False) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> GemmFormat:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def activation_bytes(self) -> float:
        """
        per element of A
        """
    @property
    def peak_flop_per_s(self) -> float:
        """
        dense peak of the multiplying units
        """
    @property
    def warm(self) -> bool:
        """
        whether small operands stay in the cache between calls
        """
    @property
    def weight_bytes(self) -> float:
        """
        per element of B
        """
class FittedField:
    """
    What a calibration made of one constant.
    """
    @property
    def at_bound(self) -> bool:
        """
        ends at an end of its range
        """
    @property
    def frozen(self) -> bool:
        """
        the samples cannot see it: kept
        """
    @property
    def name(self) -> str:
        """
        field of the record
        """
    @property
    def prior(self) -> float:
        """
        before the fit
        """
    @property
    def relative_error(self) -> float:
        """
        standard error of the log
        """
    @property
    def value(self) -> float:
        """
        fitted, in base units
        """
class GroupedGemmKernel:
    """
    Constants of a grouped GEMM kernel.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: GroupedGemmKernel) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, math: str = 'bf16', weight_bytes: float = 2.0, launch_s: float = 0.0, expert_s: float = 0.0, active_s: float = 0.0, compute_fraction: float = 1.0, memory_fraction: float = 1.0, cached_speedup: float = 1.0, occupancy_exponent: float = 0.0, tile_rows: float = 0.0, tile_onset: float = 1.0, smallest_tile: float = 0.0, activation_passes: float = 0.0, gather_passes: float = 0.0, computes_remote: bool = False, reserved_rows: float = 0.0, inner_passes: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> GroupedGemmKernel:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def activation_passes(self) -> float:
        """
        over the busiest rank's pairs
        """
    @property
    def active_s(self) -> float:
        """
        per multiprocessor and expert with rows
        """
    @property
    def cached_speedup(self) -> float:
        """
        weights in the last-level cache
        """
    @property
    def compute_fraction(self) -> float:
        """
        of peak, long groups
        """
    @property
    def computes_remote(self) -> bool:
        """
        pairs of other ranks are computed as well
        """
    @property
    def expert_s(self) -> float:
        """
        per expert of the layer
        """
    @property
    def gather_passes(self) -> float:
        """
        over all entering pairs
        """
    @property
    def inner_passes(self) -> float:
        """
        over what lies between both projections, of reserved rows; 0 = activation passes
        """
    @property
    def launch_s(self) -> float:
        """
        fixed time of a call
        """
    @property
    def math(self) -> str:
        """
        format of the tensor-core instructions
        """
    @property
    def memory_fraction(self) -> float:
        """
        of memory bandwidth
        """
    @property
    def occupancy_exponent(self) -> float:
        """
        loss of small grids
        """
    @property
    def reserved_rows(self) -> float:
        """
        of a tile, where tiles are reserved for all tokens that could come; 0 = packed
        """
    @property
    def smallest_tile(self) -> float:
        """
        rows that the only row of a group costs
        """
    @property
    def tile_onset(self) -> float:
        """
        rows per expert that waste half of them
        """
    @property
    def tile_rows(self) -> float:
        """
        rows wasted per expert, at most
        """
    @property
    def weight_bytes(self) -> float:
        """
        bytes per weight, scales included
        """
class DispatchKernel:
    """
    Constants of one direction of token dispatch.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: DispatchKernel) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, launch_s: float = 0.0, doubling_s: float = 0.0, choice_s: float = 0.0, sender_s: float = 0.0, value_bytes: float = 2.0, block_bytes_per_s: float = 0.0, domain_bytes_per_s: float = 0.0, network_bytes_per_s: float = 0.0, blend: float = 1.0, spine_nodes: float = 1.0, spine_fraction: float = 1.0, copies_once: bool = True, counts_ranks: bool = False) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> DispatchKernel:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def blend(self) -> float:
        """
        exponent of the smooth minimum
        """
    @property
    def block_bytes_per_s(self) -> float:
        """
        of one communication block
        """
    @property
    def choice_s(self) -> float:
        """
        per expert a token chooses
        """
    @property
    def copies_once(self) -> bool:
        """
        one copy per rank that holds several choices
        """
    @property
    def counts_ranks(self) -> bool:
        """
        doublings of ranks instead of nodes
        """
    @property
    def domain_bytes_per_s(self) -> float:
        """
        inside the scale-up domain
        """
    @property
    def doubling_s(self) -> float:
        """
        per doubling of nodes or ranks
        """
    @property
    def launch_s(self) -> float:
        """
        fixed time of a call
        """
    @property
    def network_bytes_per_s(self) -> float:
        """
        of a rank's network port
        """
    @property
    def sender_s(self) -> float:
        """
        per token and sending block
        """
    @property
    def spine_fraction(self) -> float:
        """
        of it, between more nodes
        """
    @property
    def spine_nodes(self) -> float:
        """
        nodes at the full network rate
        """
    @property
    def value_bytes(self) -> float:
        """
        bytes per value of a token
        """
class StreamingKernel:
    """
    Constants of an elementwise or row-wise operation.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: StreamingKernel) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, values_moved: float = 2.0, launch_s: float = 0.0, column_s: float = 0.0, memory_fraction: float = 1.0, cached_speedup: float = 1.0, blend: float = 1.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> StreamingKernel:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def blend(self) -> float:
        """
        exponent of the smooth maximum
        """
    @property
    def cached_speedup(self) -> float:
        """
        operands in the last-level cache
        """
    @property
    def column_s(self) -> float:
        """
        per column
        """
    @property
    def launch_s(self) -> float:
        """
        fixed time of a call
        """
    @property
    def memory_fraction(self) -> float:
        """
        of memory bandwidth
        """
    @property
    def values_moved(self) -> float:
        """
        read and written per element
        """
class LookupKernel:
    """
    Constants of an embedding lookup kernel.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: LookupKernel) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, launch_s: float = 0.0, memory_fraction: float = 1.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> LookupKernel:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def launch_s(self) -> float:
        """
        fixed time of a call
        """
    @property
    def memory_fraction(self) -> float:
        """
        of memory bandwidth
        """
class WorkKernel:
    """
    Constants of a kernel by what it works on.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: WorkKernel) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, launch_s: float = 0.0, step_s: float = 0.0, piece_s: float = 0.0, rate_flop_per_s: float = 1e+20, bandwidth_bytes_per_s: float = 1e+20, cached_speedup: float = 1.0, blend: float = 1.0, core_rate_flop_per_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> WorkKernel:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def bandwidth_bytes_per_s(self) -> float:
        """
        memory traffic
        """
    @property
    def blend(self) -> float:
        """
        exponent of the smooth maximum
        """
    @property
    def cached_speedup(self) -> float:
        """
        operands in the last-level cache
        """
    @property
    def core_rate_flop_per_s(self) -> float:
        """
        arithmetic of the core of a module; 0: as the other
        """
    @property
    def launch_s(self) -> float:
        """
        fixed time of a call
        """
    @property
    def piece_s(self) -> float:
        """
        one piece of other work
        """
    @property
    def rate_flop_per_s(self) -> float:
        """
        arithmetic
        """
    @property
    def step_s(self) -> float:
        """
        one step of a chain
        """
class PrefillKernel:
    """
    Constants of an attention kernel that works through prompts.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: PrefillKernel) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, launch_s: float = 0.0, host_s: float = 0.0, flop_factor: float = 1.0, compute_fraction: float = 0.6, diagonal: float = 128.0, step_s: float = 0.0, step_width_s: float = 0.0, wave_s: float = 0.0, wave_rounding: float = 0.0, io_fraction: float = 0.9, cache_passes: float = 1.0, latent_passes: float = 0.0, narrow_penalty: float = 0.0, wide_penalty: float = 0.0, mixed_factor: float = 1.0, unaligned_factor: float = 1.0, odd_head_s: float = 0.0, resident_gain: float = 1.0, resident_scale: float = 1.0, fp8_math_rate: float = 1.0, fp8_math_launch_s: float = 0.0, fp8_cache_rate: float = 1.0, fp8_cache_launch_s: float = 0.0, fp8_passes: float = 1.0, packs_groups: bool = False, skips_window: bool = True, pads_width: bool = False, absorbed: bool = False) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> PrefillKernel:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def absorbed(self) -> bool:
        """
        latent attention works on the latent
        """
    @property
    def cache_passes(self) -> float:
        """
        passes over new keys and values
        """
    @property
    def compute_fraction(self) -> float:
        """
        fraction of the 16-bit peak
        """
    @property
    def diagonal(self) -> float:
        """
        masked block width computed in full
        """
    @property
    def flop_factor(self) -> float:
        """
        work over that of a forward pass
        """
    @property
    def fp8_cache_launch_s(self) -> float:
        """
        further fixed time, 8-bit cache
        """
    @property
    def fp8_cache_rate(self) -> float:
        """
        rate, 8-bit cache only
        """
    @property
    def fp8_math_launch_s(self) -> float:
        """
        further fixed time, 8-bit operands
        """
    @property
    def fp8_math_rate(self) -> float:
        """
        rate, 8-bit operands
        """
    @property
    def fp8_passes(self) -> float:
        """
        multiple of cache_passes, 8-bit cache
        """
    @property
    def host_s(self) -> float:
        """
        CPU overhead of a launch, hidden by the kernel
        """
    @property
    def io_fraction(self) -> float:
        """
        bandwidth fraction, queries and output
        """
    @property
    def latent_passes(self) -> float:
        """
        passes over the cached latent
        """
    @property
    def launch_s(self) -> float:
        """
        fixed time of a call
        """
    @property
    def mixed_factor(self) -> float:
        """
        work, unequal query and value heads
        """
    @property
    def narrow_penalty(self) -> float:
        """
        loss at head sizes below 128
        """
    @property
    def odd_head_s(self) -> float:
        """
        further launches at head size 192
        """
    @property
    def packs_groups(self) -> bool:
        """
        grouped heads share a tile
        """
    @property
    def pads_width(self) -> bool:
        """
        heads padded to a power of two
        """
    @property
    def resident_gain(self) -> float:
        """
        cache bandwidth over memory bandwidth
        """
    @property
    def resident_scale(self) -> float:
        """
        cache sizes per resident byte
        """
    @property
    def skips_window(self) -> bool:
        """
        work outside a sliding window is skipped
        """
    @property
    def step_s(self) -> float:
        """
        shortest tile time per 128 keys
        """
    @property
    def step_width_s(self) -> float:
        """
        shortest tile time per 128 keys and 128 of head
        """
    @property
    def unaligned_factor(self) -> float:
        """
        work, head size no multiple of 16
        """
    @property
    def wave_rounding(self) -> float:
        """
        share of a partial wave charged in full
        """
    @property
    def wave_s(self) -> float:
        """
        start of a tile on every multiprocessor
        """
    @property
    def wide_penalty(self) -> float:
        """
        exponent of the loss above head size 256
        """
class DecodeKernel:
    """
    Constants of an attention kernel with one query per sequence.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: DecodeKernel) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, launch_s: float = 0.0, block_s: float = 0.0, wave_s: float = 0.0, split_s: float = 0.0, waves: float = 1.0, max_splits: float = 1000000.0, max_heads: float = 1000000.0, wave_rounding: float = 0.0, tile_rows: float = 16.0, tensor_fraction: float = 0.2, memory_fraction: float = 0.9, occupancy_exponent: float = 0.5, partial_passes: float = 0.0, odd_head_s: float = 0.0, resident_gain: float = 1.0, resident_scale: float = 1.0, fp8_math: float = 1.0, fp8_rows_s: float = 0.0, fp8_launch_s: float = 0.0, fp8_block: float = 1.0, fp8_memory: float = 1.0, fp8_passes: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> DecodeKernel:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def block_s(self) -> float:
        """
        shortest time per 128 cached tokens at head size 128
        """
    @property
    def fp8_block(self) -> float:
        """
        multiple of the block time, 8-bit cache
        """
    @property
    def fp8_launch_s(self) -> float:
        """
        further fixed time, 8-bit cache
        """
    @property
    def fp8_math(self) -> float:
        """
        rate of the GEMMs, 8-bit cache
        """
    @property
    def fp8_memory(self) -> float:
        """
        multiple of memory_fraction, 8-bit cache
        """
    @property
    def fp8_passes(self) -> float:
        """
        passes to convert an 8-bit cache
        """
    @property
    def fp8_rows_s(self) -> float:
        """
        shortest time of 16 query rows and 128 cached tokens at head size 128, 8-bit cache
        """
    @property
    def launch_s(self) -> float:
        """
        fixed time of a call
        """
    @property
    def max_heads(self) -> float:
        """
        query heads of one tile, at most
        """
    @property
    def max_splits(self) -> float:
        """
        splits of a sequence along its keys, at most
        """
    @property
    def memory_fraction(self) -> float:
        """
        fraction of memory bandwidth
        """
    @property
    def occupancy_exponent(self) -> float:
        """
        bandwidth loss of idle units
        """
    @property
    def odd_head_s(self) -> float:
        """
        further launches at head size 192
        """
    @property
    def partial_passes(self) -> float:
        """
        FP32 output copies moved to combine
        """
    @property
    def resident_gain(self) -> float:
        """
        cache bandwidth over memory bandwidth
        """
    @property
    def resident_scale(self) -> float:
        """
        cache sizes per resident byte
        """
    @property
    def split_s(self) -> float:
        """
        per doubling of the parts of a sequence
        """
    @property
    def tensor_fraction(self) -> float:
        """
        fraction of the 16-bit peak
        """
    @property
    def tile_rows(self) -> float:
        """
        query rows that tensor cores take at a time
        """
    @property
    def wave_rounding(self) -> float:
        """
        share of a partial wave charged in full
        """
    @property
    def wave_s(self) -> float:
        """
        start of a tile on every multiprocessor
        """
    @property
    def waves(self) -> float:
        """
        tiles per multiprocessor aimed at
        """
class DecoderShape:
    """
    A transformer decoder as model cards describe it.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: DecoderShape) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, layers: int = 0, hidden: int = 0, vocab: int = 0, position: str = 'rope', positions: int = 0, tied_embeddings: bool = False, heads: int = 0, kv_heads: int = 0, head_dim: int = 0, v_head_dim: int = 0, q_lora_rank: int = 0, kv_lora_rank: int = 0, qk_rope_head_dim: int = 0, qkv_bias: bool = False, out_bias: bool = False, mlp_bias: bool = False, head_bias: bool = False, qk_norm: bool = False, qk_norm_full: bool = False, attention_sinks: bool = False, window: int = 0, full_attention_every: int = 0, mixers: str = '', feed_forwards: str = '', window_heads: int = 0, window_kv_heads: int = 0, window_head_dim: int = 0, window_v_head_dim: int = 0, attention_gate: str = 'none', attention_experts: bool = False, shared_values: bool = False, index_heads: int = 0, index_dim: int = 0, index_topk: int = 0, near_ratio: int = 0, far_ratio: int = 0, output_groups: int = 0, output_rank: int = 0, recurrence: str = 'none', scan_heads: int = 0, scan_groups: int = 0, scan_key_dim: int = 0, scan_value_dim: int = 0, scan_chunk: int = 0, scan_rank: int = 0, conv_width: int = 0, scan_norm: bool = False, scan_bias: bool = False, conv_bias: bool = False, scan_full_decay: bool = False, ffn: int = 0, second_ffn: int = 0, gated: bool = False, norm: str = 'rmsnorm', norms_per_layer: int = 2, parallel_block: bool = False, embedding_norm: bool = False, experts: int = 0, experts_per_token: int = 0, shared_experts: int = 0, expert_ffn: int = 0, shared_ffn: int = 0, router_bias: bool = False, expert_bias: bool = False, clamped_activation: bool = False, shared_expert_gate: bool = False, expert_latent: int = 0, zero_experts: int = 0, expert_groups: int = 0, groups_per_token: int = 0, first_dense_layers: int = 0, moe_every: int = 1, mtp_layers: int = 0, residual_streams: int = 1, stream_rank: int = 0, attention_residuals: int = 0, layer_embedding: int = 0, layer_embedding_rows: int = 0, ngram_rows: int = 0, kv_shared_layers: int = 0, kv_sources: str = '', residual_rank: int = 0, kv_shared_ffn: int = 0, shared_blocks: int = 0, shared_rank: int = 0, shared_attention_rank: int = 0, loop_start: int = 0, loop_layers: int = 0, loop_passes: int = 1, fused_mixers: bool = False, norm_rank: int = 0, router_rank: int = 0, ffn_receptance: bool = False, bidirectional: bool = False, head_transform: bool = False, encoder_layers: int = 0, encoder_positions: int = 0, encoder_channels: int = 0, encoder_stride: int = 1, encoder_vocab: int = 0, encoder_moe_every: int = 0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> DecoderShape:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def attention_experts(self) -> bool:
        """
        experts project queries and the output of attention too
        """
    @property
    def attention_gate(self) -> str:
        """
        gate on the output of attention
        """
    @property
    def attention_residuals(self) -> int:
        """
        layers between snapshots of the stream that later layers mix in; 0 = none
        """
    @property
    def attention_sinks(self) -> bool:
        """
        one learned logit per head
        """
    @property
    def bidirectional(self) -> bool:
        """
        tokens attend to those behind them too
        """
    @property
    def clamped_activation(self) -> bool:
        """
        what a feed-forward activation reads is clamped first
        """
    @property
    def conv_bias(self) -> bool:
        """
        bias of its convolution
        """
    @property
    def conv_width(self) -> int:
        """
        tokens of its short convolution
        """
    @property
    def embedding_norm(self) -> bool:
        """
        norm after the token embedding
        """
    @property
    def encoder_channels(self) -> int:
        """
        values of a frame that an encoder reads; 0 = source tokens
        """
    @property
    def encoder_layers(self) -> int:
        """
        layers of an encoder that every layer attends to; 0 = none
        """
    @property
    def encoder_moe_every(self) -> int:
        """
        every n-th layer of an encoder has experts, as those of the decoder; 0 = none
        """
    @property
    def encoder_positions(self) -> int:
        """
        positions of every source; 0 = its own length
        """
    @property
    def encoder_stride(self) -> int:
        """
        frames of an encoder's position
        """
    @property
    def encoder_vocab(self) -> int:
        """
        rows of a token embedding of the encoder's own; 0 = the decoder's
        """
    @property
    def expert_bias(self) -> bool:
        """
        biases inside experts
        """
    @property
    def expert_ffn(self) -> int:
        """
        width of a routed expert; 0 = ffn
        """
    @property
    def expert_groups(self) -> int:
        """
        groups that routed experts are divided into; 0 = none
        """
    @property
    def expert_latent(self) -> int:
        """
        width that routed experts read and write; 0 = hidden
        """
    @property
    def experts(self) -> int:
        """
        routed experts; 0 = dense
        """
    @property
    def experts_per_token(self) -> int:
        """
        routed experts of a token
        """
    @property
    def far_ratio(self) -> int:
        """
        tokens of a compressed key, layers H
        """
    @property
    def feed_forwards(self) -> str:
        """
        feed-forward block of every layer, a letter each: D dense, d dense of the other width, E experts, - none
        """
    @property
    def ffn(self) -> int:
        """
        width of one gate or up matrix
        """
    @property
    def ffn_receptance(self) -> bool:
        """
        a square matrix gates the output of a dense block
        """
    @property
    def first_dense_layers(self) -> int:
        """
        leading dense layers
        """
    @property
    def full_attention_every(self) -> int:
        """
        every n-th layer ignores the window
        """
    @property
    def fused_mixers(self) -> bool:
        """
        attention and a recurrent mixer beside it share the matrix behind them
        """
    @property
    def gated(self) -> bool:
        """
        three matrices instead of two
        """
    @property
    def groups_per_token(self) -> int:
        """
        groups in which all experts of a token lie
        """
    @property
    def head_bias(self) -> bool:
        """
        bias on the language-model head
        """
    @property
    def head_dim(self) -> int:
        """
        query and key size; 0 = hidden / heads
        """
    @property
    def head_transform(self) -> bool:
        """
        a square matrix and a norm in front of the LM head
        """
    @property
    def heads(self) -> int:
        """
        query heads
        """
    @property
    def hidden(self) -> int:
        """
        width of the residual stream
        """
    @property
    def index_dim(self) -> int:
        """
        size of an indexer's head
        """
    @property
    def index_heads(self) -> int:
        """
        heads of the indexer that selects keys
        """
    @property
    def index_topk(self) -> int:
        """
        keys of a query that are selected
        """
    @property
    def kv_heads(self) -> int:
        """
        key and value heads; 0 = heads
        """
    @property
    def kv_lora_rank(self) -> int:
        """
        latent key-value rank; 0 = no latent
        """
    @property
    def kv_shared_ffn(self) -> int:
        """
        dense width of the layers that use keys of earlier ones; 0 = ffn
        """
    @property
    def kv_shared_layers(self) -> int:
        """
        last layers that use keys and values of earlier ones
        """
    @property
    def kv_sources(self) -> str:
        """
        a letter per layer: O its own keys and values, S those of an earlier layer
        """
    @property
    def layer_embedding(self) -> int:
        """
        values of a token that every layer looks up; 0 = none
        """
    @property
    def layer_embedding_rows(self) -> int:
        """
        rows of that table
        """
    @property
    def layers(self) -> int:
        """
        transformer layers
        """
    @property
    def loop_layers(self) -> int:
        """
        layers that run several times with the same weights; 0 = none
        """
    @property
    def loop_passes(self) -> int:
        """
        times that they run
        """
    @property
    def loop_start(self) -> int:
        """
        first of the layers that run several times
        """
    @property
    def mixers(self) -> str:
        """
        mixer of every layer, a letter each: F full attention, W window, I selected keys, S selection of the layer before, C and H compressed keys, R recurrent, P attention beside recurrent, p the same with its window, Z recurrent behind a shared block, X attention to a source alone, - none
        """
    @property
    def mlp_bias(self) -> bool:
        """
        bias in the dense feed-forward layer
        """
    @property
    def moe_every(self) -> int:
        """
        every n-th layer has experts
        """
    @property
    def mtp_layers(self) -> int:
        """
        multi-token-prediction modules
        """
    @property
    def near_ratio(self) -> int:
        """
        tokens of a compressed key, layers C
        """
    @property
    def ngram_rows(self) -> int:
        """
        rows of each of the tables that runs of tokens are looked up in; 0 = there are none
        """
    @property
    def norm(self) -> str:
        """
        norm
        """
    @property
    def norm_rank(self) -> int:
        """
        rank of a gate on what attention and experts read; 0 = none
        """
    @property
    def norms_per_layer(self) -> int:
        """
        norms of a layer
        """
    @property
    def out_bias(self) -> bool:
        """
        bias on the attention output
        """
    @property
    def output_groups(self) -> int:
        """
        groups of a low-rank attention output
        """
    @property
    def output_rank(self) -> int:
        """
        rank of a group's attention output
        """
    @property
    def parallel_block(self) -> bool:
        """
        attention and MLP read the same norm
        """
    @property
    def position(self) -> str:
        """
        position encoding
        """
    @property
    def positions(self) -> int:
        """
        rows of a learned position table
        """
    @property
    def q_lora_rank(self) -> int:
        """
        latent query rank; 0 = full rank
        """
    @property
    def qk_norm(self) -> bool:
        """
        norm over each query and key head
        """
    @property
    def qk_norm_full(self) -> bool:
        """
        norm over whole query and key
        """
    @property
    def qk_rope_head_dim(self) -> int:
        """
        rotary part of a latent head
        """
    @property
    def qkv_bias(self) -> bool:
        """
        bias on query, key, value
        """
    @property
    def recurrence(self) -> str:
        """
        kind of the recurrent mixer
        """
    @property
    def residual_rank(self) -> int:
        """
        rank of a learned residual; 0 = none
        """
    @property
    def residual_streams(self) -> int:
        """
        residual streams that blocks mix
        """
    @property
    def router_bias(self) -> bool:
        """
        one number per expert
        """
    @property
    def router_rank(self) -> int:
        """
        width of a router of several matrices; 0 = one matrix
        """
    @property
    def scan_bias(self) -> bool:
        """
        biases of its projections
        """
    @property
    def scan_chunk(self) -> int:
        """
        tokens of a chunk; 0 = one by one
        """
    @property
    def scan_full_decay(self) -> bool:
        """
        full-rank decay of channels
        """
    @property
    def scan_groups(self) -> int:
        """
        heads of its keys and queries; 0 = scan_heads
        """
    @property
    def scan_heads(self) -> int:
        """
        heads of the recurrent mixer
        """
    @property
    def scan_key_dim(self) -> int:
        """
        size of its key or state
        """
    @property
    def scan_norm(self) -> bool:
        """
        norm inside the recurrent mixer
        """
    @property
    def scan_rank(self) -> int:
        """
        rank of its gates or time steps; 0 = full
        """
    @property
    def scan_value_dim(self) -> int:
        """
        values of its head
        """
    @property
    def second_ffn(self) -> int:
        """
        width of one gate or up matrix of layers d
        """
    @property
    def shared_attention_rank(self) -> int:
        """
        rank that every use adds to their queries, keys and values; 0 = nothing
        """
    @property
    def shared_blocks(self) -> int:
        """
        blocks of attention and feed-forward that layers Z use in turn
        """
    @property
    def shared_expert_gate(self) -> bool:
        """
        gate on the shared expert
        """
    @property
    def shared_experts(self) -> int:
        """
        experts every token visits
        """
    @property
    def shared_ffn(self) -> int:
        """
        width of a shared expert; 0 = expert_ffn
        """
    @property
    def shared_rank(self) -> int:
        """
        rank that every use adds to their feed-forward; 0 = nothing
        """
    @property
    def shared_values(self) -> bool:
        """
        keys serve as values in layers without a window
        """
    @property
    def stream_rank(self) -> int:
        """
        rank of what mixes residual streams; 0 = full
        """
    @property
    def tied_embeddings(self) -> bool:
        """
        LM head shares the token embedding
        """
    @property
    def v_head_dim(self) -> int:
        """
        value size; 0 = head_dim
        """
    @property
    def vocab(self) -> int:
        """
        rows of the token embedding
        """
    @property
    def window(self) -> int:
        """
        sliding window, tokens; 0 = none
        """
    @property
    def window_head_dim(self) -> int:
        """
        query and key size of window layers; 0 = head_dim
        """
    @property
    def window_heads(self) -> int:
        """
        query heads of window layers; 0 = heads
        """
    @property
    def window_kv_heads(self) -> int:
        """
        key and value heads of window layers; 0 = kv_heads
        """
    @property
    def window_v_head_dim(self) -> int:
        """
        value size of window layers; 0 = v_head_dim
        """
    @property
    def zero_experts(self) -> int:
        """
        experts that pass tokens on, among those a router chooses from
        """
class VisionShape:
    """
    A vision tower as configurations describe it.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: VisionShape) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, layers: int = 0, hidden: int = 0, heads: int = 0, kv_heads: int = 0, head_dim: int = 0, ffn: int = 0, gated: bool = False, norm: str = 'layernorm', norms_per_layer: int = 2, qkv_bias: bool = False, out_bias: bool = False, mlp_bias: bool = False, qk_norm: bool = False, rotary: bool = False, channels: int = 3, patch: int = 0, temporal_patch: int = 1, patch_bias: bool = False, positions: int = 0, entry_norm: bool = False, final_norm: bool = False, layer_scale: bool = False, window: int = 0, full_layers: int = 0, merge: int = 1, pooled: bool = False, image_patches: int = 0, feature_layers: int = 1, patch_projector: int = 0, projector_inner: int = 0, projector_second: int = 0, projector_gated: int = 0, projector_bias: bool = False, projector_norm: int = 0, downsamplings: int = 0, deepstack: int = 0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> VisionShape:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def channels(self) -> int:
        """
        colours of a pixel; values of a frame of sound
        """
    @property
    def deepstack(self) -> int:
        """
        further projectors, whose tokens early layers of the decoder add
        """
    @property
    def downsamplings(self) -> int:
        """
        3 x 3 convolutions that halve the sides of a map and double its width, before the projector
        """
    @property
    def entry_norm(self) -> bool:
        """
        norm behind the patch embedding
        """
    @property
    def feature_layers(self) -> int:
        """
        layers whose outputs stand side by side in front of the projector
        """
    @property
    def ffn(self) -> int:
        """
        width of one gate or up matrix
        """
    @property
    def final_norm(self) -> bool:
        """
        norm behind the last layer
        """
    @property
    def full_layers(self) -> int:
        """
        layers that ignore the window
        """
    @property
    def gated(self) -> bool:
        """
        three matrices instead of two
        """
    @property
    def head_dim(self) -> int:
        """
        size of a head; 0 = hidden / heads
        """
    @property
    def heads(self) -> int:
        """
        attention heads
        """
    @property
    def hidden(self) -> int:
        """
        width of a patch
        """
    @property
    def image_patches(self) -> int:
        """
        patches of every image; 0 = by its size in pixels
        """
    @property
    def kv_heads(self) -> int:
        """
        heads of keys and values; 0 = heads
        """
    @property
    def layer_scale(self) -> bool:
        """
        a learned scale of what every block adds
        """
    @property
    def layers(self) -> int:
        """
        transformer layers
        """
    @property
    def merge(self) -> int:
        """
        patches along one side of a token of the decoder
        """
    @property
    def mlp_bias(self) -> bool:
        """
        bias in the feed-forward layer
        """
    @property
    def norm(self) -> str:
        """
        norm
        """
    @property
    def norms_per_layer(self) -> int:
        """
        norms of a layer
        """
    @property
    def out_bias(self) -> bool:
        """
        bias on the attention output
        """
    @property
    def patch(self) -> int:
        """
        pixels along one side of a patch
        """
    @property
    def patch_bias(self) -> bool:
        """
        bias of the patch embedding
        """
    @property
    def patch_projector(self) -> int:
        """
        width of two matrices on every patch before patches are merged; 0 = there are none
        """
    @property
    def pooled(self) -> bool:
        """
        patches of a token are averaged, not laid side by side
        """
    @property
    def positions(self) -> int:
        """
        rows of learned position tables
        """
    @property
    def projector_bias(self) -> bool:
        """
        biases in the projector
        """
    @property
    def projector_gated(self) -> int:
        """
        width of one gate or up matrix of a block in the place of its last matrix; 0 = none
        """
    @property
    def projector_inner(self) -> int:
        """
        width behind the projector's first matrix, if it has two; 0 = it has one
        """
    @property
    def projector_norm(self) -> int:
        """
        learned vectors of the norm in front of the projector; 0 = none
        """
    @property
    def projector_second(self) -> int:
        """
        width behind its second matrix, if it has three
        """
    @property
    def qk_norm(self) -> bool:
        """
        norm over each query and key head
        """
    @property
    def qkv_bias(self) -> bool:
        """
        bias on query, key, value
        """
    @property
    def rotary(self) -> bool:
        """
        rotary positions
        """
    @property
    def temporal_patch(self) -> int:
        """
        frames of a patch; a still image is repeated
        """
    @property
    def window(self) -> int:
        """
        patches that attend to each other; 0 = all
        """
class LayeredModel:
    """
    A model as layer groups.
    """
    def __init__(self, shape: DecoderShape, vision: VisionShape | None = None) -> None:
        ...
    def image_tokens(self, height: typing.SupportsInt | typing.SupportsIndex, width: typing.SupportsInt | typing.SupportsIndex) -> float:
        """
        Tokens of the decoder that an image of that many pixels becomes.
        """
    def layer_kind(self, layer: typing.SupportsInt | typing.SupportsIndex) -> int:
        """
        Kind of a layer, counted from 0.
        """
    def with_scalar_head(self) -> LayeredModel:
        """
        One score in place of words, for rewards.
        """
    @property
    def active_parameters(self) -> float:
        """
        Parameters one token meets.
        """
    @property
    def hidden(self) -> int:
        ...
    @property
    def kinds(self) -> int:
        """
        Different kinds of layer.
        """
    @property
    def layers(self) -> int:
        """
        Transformer layers.
        """
    @property
    def parameters(self) -> float:
        """
        Parameters of main stack and vision tower.
        """
    @property
    def reads_source(self) -> bool:
        """
        Whether layers attend to a source: of an encoder, or an image.
        """
    @property
    def source_positions(self) -> int:
        """
        Positions of every source that layers attend to; 0: of its own length, or there is none.
        """
    @property
    def vision_parameters(self) -> float:
        """
        Parameters of the vision tower and its projector.
        """
class Strategy:
    """
    How a model is laid out on a cluster.
    
    Keyword arguments only; zero means derived where the field says so.
    
    Examples
    --------
    >>> plan = Strategy(tp=8, pp=4)
    >>> plan.replace(pp=8, vpp=2)
    Strategy(tp=8, pp=8, vpp=2)
    >>> plan.to_dict()["micro_batch"]
    1
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Strategy) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, tp: int = 1, cp: int = 1, pp: int = 1, dp: int = 0, ep: int = 1, etp: int = 0, vpp: int = 1, micro_batch: int = 1, schedule: str = '1f1b', sharding: str = 'zero1', shard_degree: int = 0, secondary_degree: int = 0, quantized_gather: bool = False, quantized_reduce: bool = False, recompute: str = 'none', recompute_layers: int = 0, context: str = 'ring', sequence_parallel: bool = True, regather: bool = True, split_p2p: bool = True, placement: str = 'tp-cp-dp-pp', offload_weights: bool = False, offload_activations: bool = False, offload_optimizer: bool = False, overlap_grad_reduce: str | bool | None = 'stack', overlap_param_gather: str | bool | None = 'stack', overlap_tp: str = 'stack', linear_precision: str = 'task') -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Strategy:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def context(self) -> str:
        """
        how context parallelism exchanges keys and values
        """
    @property
    def cp(self) -> int:
        """
        context-parallel degree
        """
    @property
    def dp(self) -> int:
        """
        data-parallel degree; 0 = accelerators / (tp cp pp)
        """
    @property
    def ep(self) -> int:
        """
        expert-parallel degree
        """
    @property
    def etp(self) -> int:
        """
        tensor-parallel degree of experts; 0 = 1 with ep, else tp
        """
    @property
    def linear_precision(self) -> str:
        """
        of linear layers, instead of the task's
        """
    @property
    def micro_batch(self) -> int:
        """
        sequences per replica and pass
        """
    @property
    def offload_activations(self) -> bool:
        """
        activations in host memory
        """
    @property
    def offload_optimizer(self) -> bool:
        """
        optimizer states in host memory
        """
    @property
    def offload_weights(self) -> bool:
        """
        weights in host memory
        """
    @property
    def overlap_grad_reduce(self) -> str:
        """
        hide gradient reduction
        """
    @property
    def overlap_param_gather(self) -> str:
        """
        hide parameter gathering
        """
    @property
    def overlap_tp(self) -> str:
        """
        hide tensor-parallel communication
        """
    @property
    def placement(self) -> str:
        """
        mesh axes, innermost first
        """
    @property
    def pp(self) -> int:
        """
        pipeline stages
        """
    @property
    def quantized_gather(self) -> bool:
        """
        ZeRO-3, HSDP: parameters gathered in 8 bits (qwZ)
        """
    @property
    def quantized_reduce(self) -> bool:
        """
        ZeRO-3, HSDP: gradients reduced in 4 bits by all-to-alls (qgZ)
        """
    @property
    def recompute(self) -> str:
        """
        activation recomputation
        """
    @property
    def recompute_layers(self) -> int:
        """
        layers recomputed per pipeline rank; 0 = all
        """
    @property
    def regather(self) -> bool:
        """
        sequence parallelism: inputs gathered again for weight gradients, not kept whole
        """
    @property
    def schedule(self) -> str:
        """
        pipeline schedule; 1f1b with vpp > 1 is interleaved
        """
    @property
    def secondary_degree(self) -> int:
        """
        ZeRO-3, HSDP: ranks that share a second copy of the parameters (hpZ); 0 = none
        """
    @property
    def sequence_parallel(self) -> bool:
        """
        norms and residuals split over tp
        """
    @property
    def shard_degree(self) -> int:
        """
        HSDP: ranks of a shard group; 0 = a node
        """
    @property
    def sharding(self) -> str:
        """
        what data-parallel ranks shard
        """
    @property
    def split_p2p(self) -> bool:
        """
        tensor ranks send a part each to the next stage
        """
    @property
    def tp(self) -> int:
        """
        tensor-parallel degree
        """
    @property
    def vpp(self) -> int:
        """
        virtual stages per pipeline rank
        """
class Task:
    """
    A training step.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Task) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, global_batch: int = 1, sequence: int = 1, batch_is_limit: bool = False, precision: str = 'bf16', attention: str = 'stack', gradient_precision: str = 'stack', fused_norm: str | bool | None = 'stack', dropout: str | bool | None = 'stack', optimizer: str = 'adam', master_bytes: int = 4, moment_bytes: int = 4, imbalance: float = 1.0, method: str = 'full', lora_rank: int = 16, lora_targets: str = 'attention', images: int = 0, image_height: int = 0, image_width: int = 0, frozen_vision: bool = False, source_tokens: int = 0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Task:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def attention(self) -> str:
        """
        attention kernel
        """
    @property
    def batch_is_limit(self) -> bool:
        """
        global_batch is the most: a replica takes global_batch / dp, rounded down
        """
    @property
    def dropout(self) -> str:
        """
        dropout is applied, its masks saved for backward
        """
    @property
    def frozen_vision(self) -> bool:
        """
        the vision tower does not learn; its projector does
        """
    @property
    def fused_norm(self) -> str:
        """
        norms in one kernel
        """
    @property
    def global_batch(self) -> int:
        """
        sequences per optimizer step
        """
    @property
    def gradient_precision(self) -> str:
        """
        gradients as accumulated and reduced
        """
    @property
    def image_height(self) -> int:
        """
        pixels of an image
        """
    @property
    def image_width(self) -> int:
        """
        pixels of an image
        """
    @property
    def images(self) -> int:
        """
        images of a sequence, whose tokens are among its own
        """
    @property
    def imbalance(self) -> float:
        """
        busiest expert rank over the mean
        """
    @property
    def lora_rank(self) -> int:
        """
        rank of the adapters
        """
    @property
    def lora_targets(self) -> str:
        """
        matrices with adapters
        """
    @property
    def master_bytes(self) -> int:
        """
        master copy of a weight; 0 = none
        """
    @property
    def method(self) -> str:
        """
        which parameters learn
        """
    @property
    def moment_bytes(self) -> int:
        """
        one optimizer state of a weight, unless the optimizer says
        """
    @property
    def optimizer(self) -> str:
        """
        optimizer
        """
    @property
    def precision(self) -> str:
        """
        format of matrix multiplications
        """
    @property
    def sequence(self) -> int:
        """
        tokens per sequence
        """
    @property
    def source_tokens(self) -> int:
        """
        tokens of the source that an encoder reads of every sequence; 0 = the sequence's
        """
class Stack:
    """
    One version of a software stack.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Stack) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, gemm_efficiency: float = 1.0, memory_efficiency: float = 1.0, host_launch_s: float = 0.0, host_computes: bool = False, overlap_efficiency: float = 1.0, attention: str = 'flash2', selective: str = 'core_attention', selective_modules: str = 'stack', fused_norm: bool = True, joint_norm_gradients: bool = False, fused_activation: bool = True, fused_rope: bool = True, fused_loss: bool = False, softmax_loss: bool = False, fused_mixer: bool = True, autocast: bool = False, cuda_graphs: bool = False, graphed_attention: bool = True, graphed_scans: bool = True, graphed_routing: bool = True, grouped_launch: bool = False, drops_tokens: bool = False, fused_experts: bool = False, fused_expert_bias: bool = True, fused_clamp: bool = True, fp8_attention: bool = False, row_scales: bool = False, dropout: bool = False, rope_by_document: bool = False, deterministic: bool = False, vocab_multiple: int = 1, gradients_fp32: bool = True, overlap_grad_reduce: bool = True, overlap_param_gather: bool = True, overlap_tp: bool = False, overlap_tp_in_node: bool = False, overlap_p2p: bool = False, overlap_ep: bool = False, overlap_ep_between: bool = False, unstaged_pairs: float = 1.0, deduplicated_dispatch: bool = False, fused_accumulation: bool = True, split_gate: bool = False, async_tp: bool = False, ends_as_layers: bool = False, serial_p2p: bool = False, whole_p2p: bool = False, all_reduces_gradients: bool = False, reduces_fp32: bool = False, tensor_gathers: bool = False, early_stop: bool = False, deduplicated_between: bool = False, pads_experts: bool = False, fp32_router: bool = False, biased_gradient_slowdown: float = 1.0, sequential_experts: bool = False, weighted_activation: bool = False, narrow_dispatch: bool = False, batch_first: bool = False, narrow_gather: bool = False, exchange_by_document: bool = False, repeated_kv: bool = False, optimizer_copy_bytes: float = 0.0, loss_per_logit_bytes: float = 14.0, split_loss_per_logit_bytes: float = 14.0, whole_logits: bool = False, keep_gathered: bool = False, keep_stage_outputs: bool = False, master_shards: bool = False, unused_gradients: bool = False, narrow_gradients: bool = False, narrow_weights: bool = False, narrow_activations: bool = False, master_remainders: bool = False, update_copies_gradients: bool = False, update_copies_moments: bool = False, memory_report: str = 'allocated', contention: float = 0.1, kernel_spread: float = 0.0, module_operations: float = 0.0, collective_operations: float = 0.0, update_launches: float = 1.0, step_overhead_s: float = 0.0, fragmentation_fraction: float = 0.0, reserve_bytes: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Stack:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def all_reduces_gradients(self) -> bool:
        """
        gradients are all-reduced even where optimizer states are sharded
        """
    @property
    def async_tp(self) -> bool:
        """
        backward tensor-parallel exchange under the weight gradient's GEMM
        """
    @property
    def attention(self) -> str:
        """
        attention kernel
        """
    @property
    def autocast(self) -> bool:
        """
        weights stay in FP32 and are cast in every pass, their gradients cast back
        """
    @property
    def batch_first(self) -> bool:
        """
        gathers along the sequence are copied into place
        """
    @property
    def biased_gradient_slowdown(self) -> float:
        """
        time of input gradients of experts with biases over that without
        """
    @property
    def collective_operations(self) -> float:
        """
        CPU overhead of a collective among tensor or context ranks, in operations of the framework
        """
    @property
    def contention(self) -> float:
        """
        slowdown of compute, seconds per second of hidden communication
        """
    @property
    def cuda_graphs(self) -> bool:
        """
        layers launched as CUDA graphs: the CPU launches single experts only
        """
    @property
    def deduplicated_between(self) -> bool:
        """
        one copy of a token per scale-up domain
        """
    @property
    def deduplicated_dispatch(self) -> bool:
        """
        one copy of a token per rank, not one per expert
        """
    @property
    def deterministic(self) -> bool:
        """
        recurrent mixers in operations of the framework, whose sums have one order
        """
    @property
    def dropout(self) -> bool:
        """
        dropout is applied, its masks saved for backward
        """
    @property
    def drops_tokens(self) -> bool:
        """
        experts have a capacity: tokens beyond it are dropped
        """
    @property
    def early_stop(self) -> bool:
        """
        recomputation ends at the last tensor that is needed
        """
    @property
    def ends_as_layers(self) -> bool:
        """
        pipeline stages count embedding, final norm and LM head as layers
        """
    @property
    def exchange_by_document(self) -> bool:
        """
        context ranks that exchange heads order packs document by document
        """
    @property
    def fp32_router(self) -> bool:
        """
        scores of experts in FP32
        """
    @property
    def fp8_attention(self) -> bool:
        """
        attention of narrow runs in FP8
        """
    @property
    def fragmentation_fraction(self) -> float:
        """
        share lost by the allocator, of the memory it hands out and takes back
        """
    @property
    def fused_accumulation(self) -> bool:
        """
        weight gradients add up inside their GEMMs
        """
    @property
    def fused_activation(self) -> bool:
        """
        activations in one kernel
        """
    @property
    def fused_clamp(self) -> bool:
        """
        clamps inside the kernel of an activation
        """
    @property
    def fused_expert_bias(self) -> bool:
        """
        biases of experts inside their GEMMs
        """
    @property
    def fused_experts(self) -> bool:
        """
        experts with activation and quantisation fused
        """
    @property
    def fused_loss(self) -> bool:
        """
        cross-entropy in one kernel
        """
    @property
    def fused_mixer(self) -> bool:
        """
        norm and output projection of a state space computed again inside its scan
        """
    @property
    def fused_norm(self) -> bool:
        """
        norms in one kernel
        """
    @property
    def fused_rope(self) -> bool:
        """
        rotary embedding in one kernel
        """
    @property
    def gemm_efficiency(self) -> float:
        """
        speed of GEMMs in a step over the same in a tight loop
        """
    @property
    def gradients_fp32(self) -> bool:
        """
        gradients accumulated and reduced in FP32
        """
    @property
    def graphed_attention(self) -> bool:
        """
        graphs hold attention, and feed-forward layers that do not route
        """
    @property
    def graphed_routing(self) -> bool:
        """
        graphs hold what routed layers do besides their experts
        """
    @property
    def graphed_scans(self) -> bool:
        """
        graphs hold recurrent mixers
        """
    @property
    def grouped_launch(self) -> bool:
        """
        all experts in one kernel
        """
    @property
    def host_computes(self) -> bool:
        """
        the CPU that launches kernels runs them too: launches add to their times
        """
    @property
    def host_launch_s(self) -> float:
        """
        CPU overhead of a kernel launch
        """
    @property
    def joint_norm_gradients(self) -> bool:
        """
        gradients of a fused norm's input and scale in one kernel
        """
    @property
    def keep_gathered(self) -> bool:
        """
        gathered inputs are saved for the backward pass
        """
    @property
    def keep_stage_outputs(self) -> bool:
        """
        micro-batches in flight save their stage's output
        """
    @property
    def kernel_spread(self) -> float:
        """
        standard deviation of the ranks' kernel times over their mean
        """
    @property
    def loss_per_logit_bytes(self) -> float:
        """
        peak memory of the unfused loss on the whole vocabulary, per logit
        """
    @property
    def master_remainders(self) -> bool:
        """
        master weights as the bits that 16-bit weights lack of them
        """
    @property
    def master_shards(self) -> bool:
        """
        fully sharded weights are master weights only
        """
    @property
    def memory_efficiency(self) -> float:
        """
        speed of memory-bound kernels in a step over the same in a tight loop
        """
    @property
    def memory_report(self) -> str:
        """
        what the log of a run calls memory
        """
    @property
    def module_operations(self) -> float:
        """
        CPU overhead of a module each way, in operations of the framework
        """
    @property
    def narrow_activations(self) -> bool:
        """
        what activation functions read is saved for backward in the narrow format
        """
    @property
    def narrow_dispatch(self) -> bool:
        """
        tokens go to experts in the narrow format, gradients of their outputs likewise
        """
    @property
    def narrow_gather(self) -> bool:
        """
        tensor ranks gather quantised inputs
        """
    @property
    def narrow_gradients(self) -> bool:
        """
        gradients in the storage format beside the FP32 ones
        """
    @property
    def narrow_weights(self) -> bool:
        """
        weights of layers in the narrow format alone, cast from the master weights
        """
    @property
    def optimizer_copy_bytes(self) -> float:
        """
        copies of gradient and weight, per sharded parameter that the optimizer updates
        """
    @property
    def overlap_efficiency(self) -> float:
        """
        share of compute time that can hide communication; for gathered parameters 1 - 1/p of the smooth maximum of traffic and compute
        """
    @property
    def overlap_ep(self) -> bool:
        """
        expert-parallel communication overlapped with compute
        """
    @property
    def overlap_ep_between(self) -> bool:
        """
        expert-parallel communication between scale-up domains overlapped with compute
        """
    @property
    def overlap_grad_reduce(self) -> bool:
        """
        gradient reduction overlapped with compute
        """
    @property
    def overlap_p2p(self) -> bool:
        """
        pipeline transfers overlapped with compute
        """
    @property
    def overlap_param_gather(self) -> bool:
        """
        parameter gathering overlapped with compute
        """
    @property
    def overlap_tp(self) -> bool:
        """
        tensor-parallel communication overlapped with compute
        """
    @property
    def overlap_tp_in_node(self) -> bool:
        """
        tensor-parallel overlap inside a node only
        """
    @property
    def pads_experts(self) -> bool:
        """
        rows copied into whole blocks of narrow formats
        """
    @property
    def reduces_fp32(self) -> bool:
        """
        gradients are reduced in FP32 whatever their format
        """
    @property
    def repeated_kv(self) -> bool:
        """
        rings of context ranks carry keys and values of every query head, gradients FP32
        """
    @property
    def reserve_bytes(self) -> float:
        """
        memory outside the allocator: driver context, communication buffers
        """
    @property
    def rope_by_document(self) -> bool:
        """
        rotary embedding of packs, one document after another
        """
    @property
    def row_scales(self) -> bool:
        """
        a scale per row of what narrow GEMMs read
        """
    @property
    def selective(self) -> str:
        """
        what selective recomputation repeats
        """
    @property
    def selective_modules(self) -> str:
        """
        modules that selective recomputation repeats, instead of `selective`
        """
    @property
    def sequential_experts(self) -> bool:
        """
        experts are modules of their own, called one after another
        """
    @property
    def serial_p2p(self) -> bool:
        """
        the four transfers of a stage follow one another
        """
    @property
    def softmax_loss(self) -> bool:
        """
        softmax of an unfused loss in one kernel
        """
    @property
    def split_gate(self) -> bool:
        """
        gate and up are GEMMs of their own
        """
    @property
    def split_loss_per_logit_bytes(self) -> float:
        """
        peak memory of the unfused loss behind a vocabulary-parallel LM head, per logit
        """
    @property
    def step_overhead_s(self) -> float:
        """
        data loading, logging and clipping, once per step
        """
    @property
    def tensor_gathers(self) -> bool:
        """
        sharded parameters are gathered tensor by tensor, in every pass
        """
    @property
    def unstaged_pairs(self) -> float:
        """
        share of that which one pipeline stage hides, without a schedule of stages
        """
    @property
    def unused_gradients(self) -> bool:
        """
        an unread gradient per weight shape beside the FP32 one
        """
    @property
    def update_copies_gradients(self) -> bool:
        """
        the update of the parameters works on FP32 copies of narrower gradients
        """
    @property
    def update_copies_moments(self) -> bool:
        """
        the update of the parameters works on FP32 copies of narrower moments
        """
    @property
    def update_launches(self) -> float:
        """
        CPU overhead of a kernel of an optimizer's loop over matrices, in launches of a layer's
        """
    @property
    def vocab_multiple(self) -> int:
        """
        columns of the head on a tensor rank are padded to a multiple of this
        """
    @property
    def weighted_activation(self) -> bool:
        """
        the router's weights multiply activations, not the outputs of experts
        """
    @property
    def whole_logits(self) -> bool:
        """
        tensor ranks hold the whole vocabulary's logits
        """
    @property
    def whole_p2p(self) -> bool:
        """
        every tensor rank sends the whole stage boundary
        """
class Degrees:
    """
    Degrees of a strategy with everything left open filled in.
    """
    @property
    def dp(self) -> int:
        ...
    @property
    def etp(self) -> int:
        ...
    @property
    def shard(self) -> int:
        """
        Ranks over which the sharding partitions.
        """
class Packing:
    """
    Documents of unequal lengths that fill the sequences of a step.
    """
    def __eq__(self, arg0: Packing) -> bool:
        ...
    def __getstate__(self) -> tuple[list[int], str]:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, lengths: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], order: str = 'plain') -> None:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    @property
    def lengths(self) -> list[int]:
        """
        Tokens of each document.
        """
    @property
    def order(self) -> str:
        ...
class ReplicaLayout:
    """
    Replicas of a strategy that can run, by node.
    """
    def __init__(self, strategy: Strategy, cluster: Cluster, degrees: Degrees) -> None:
        ...
    def apart(self, count: typing.SupportsInt | typing.SupportsIndex) -> list[int]:
        """
        A number of nodes that hold ranks of as many replicas as they can.
        """
    def on(self, nodes: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> list[int]:
        """
        Replicas with a rank on one of these nodes.
        """
    @property
    def nodes(self) -> int:
        ...
    @property
    def replicas(self) -> int:
        """
        That hold the whole state each, with no part of it elsewhere.
        """
    @property
    def units(self) -> int:
        """
        Sets of replicas of which no node holds ranks of two.
        """
class OuterSteps:
    """
    Islands that train apart and meet every few steps.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: OuterSteps) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, islands: int = 2, inner_steps: int = 100, fragments: int = 1, overlap_steps: int = 0, value_bytes: float = 4.0, bandwidth_bytes_per_s: float = 0.0, latency_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> OuterSteps:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def bandwidth_bytes_per_s(self) -> float:
        """
        of an island, one direction
        """
    @property
    def fragments(self) -> int:
        """
        of the parameters, that take turns
        """
    @property
    def inner_steps(self) -> int:
        """
        of an island between two meetings
        """
    @property
    def islands(self) -> int:
        """
        that train apart
        """
    @property
    def latency_s(self) -> float:
        """
        between islands
        """
    @property
    def overlap_steps(self) -> int:
        """
        inner steps during an exchange
        """
    @property
    def value_bytes(self) -> float:
        """
        of a difference on the wire
        """
class Estimate:
    """
    One step by cause and kind.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Estimate) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, verdict: str = 'ok', step_time_s: float = 0.0, compute_s: float = 0.0, exposed_tp_s: float = 0.0, exposed_cp_s: float = 0.0, exposed_ep_s: float = 0.0, exposed_pp_s: float = 0.0, exposed_dp_s: float = 0.0, exposed_offload_s: float = 0.0, bubble_s: float = 0.0, optimizer_s: float = 0.0, overhead_s: float = 0.0, hidden_s: float = 0.0, tokens_per_s: float = 0.0, mfu_fraction: float = 0.0, hfu_fraction: float = 0.0, memory_weights_bytes: float = 0.0, memory_gradients_bytes: float = 0.0, memory_optimizer_bytes: float = 0.0, memory_activations_bytes: float = 0.0, memory_logits_bytes: float = 0.0, memory_temporary_bytes: float = 0.0, memory_communication_bytes: float = 0.0, memory_gathered_bytes: float = 0.0, memory_reserve_bytes: float = 0.0, memory_allocated_bytes: float = 0.0, memory_bytes: float = 0.0, memory_capacity_bytes: float = 0.0, host_memory_bytes: float = 0.0, power_w: float = 0.0, energy_j: float = 0.0, cost_usd: float = 0.0, micro_batches: float = 0.0, dp: int = 0, fullest_stage: int = 0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Estimate:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def bubble_s(self) -> float:
        """
        pipeline stages waiting for each other
        """
    @property
    def compute_s(self) -> float:
        """
        kernels of the slowest stage, recomputation included
        """
    @property
    def cost_usd(self) -> float:
        """
        of the step
        """
    @property
    def dp(self) -> int:
        """
        data-parallel degree
        """
    @property
    def energy_j(self) -> float:
        """
        of the step, at the facility's meter
        """
    @property
    def exposed_cp_s(self) -> float:
        """
        context-parallel communication not hidden
        """
    @property
    def exposed_dp_s(self) -> float:
        """
        data-parallel communication not hidden
        """
    @property
    def exposed_ep_s(self) -> float:
        """
        expert-parallel communication not hidden
        """
    @property
    def exposed_offload_s(self) -> float:
        """
        exposed transfers to and from host memory
        """
    @property
    def exposed_pp_s(self) -> float:
        """
        pipeline transfers not hidden
        """
    @property
    def exposed_tp_s(self) -> float:
        """
        tensor-parallel communication not hidden
        """
    @property
    def fullest_stage(self) -> int:
        """
        pipeline stage with the memory peak
        """
    @property
    def hfu_fraction(self) -> float:
        """
        the same with recomputation
        """
    @property
    def hidden_s(self) -> float:
        """
        communication underneath compute
        """
    @property
    def host_memory_bytes(self) -> float:
        """
        offloaded, per node
        """
    @property
    def memory_activations_bytes(self) -> float:
        """
        saved for the backward pass
        """
    @property
    def memory_allocated_bytes(self) -> float:
        """
        peak of the framework's allocator
        """
    @property
    def memory_bytes(self) -> float:
        """
        peak on the fullest accelerator
        """
    @property
    def memory_capacity_bytes(self) -> float:
        """
        of an accelerator
        """
    @property
    def memory_communication_bytes(self) -> float:
        """
        communication buffers
        """
    @property
    def memory_gathered_bytes(self) -> float:
        """
        gathered parameters
        """
    @property
    def memory_gradients_bytes(self) -> float:
        """
        gradients
        """
    @property
    def memory_logits_bytes(self) -> float:
        """
        logits and loss
        """
    @property
    def memory_optimizer_bytes(self) -> float:
        """
        master weights and moments
        """
    @property
    def memory_reserve_bytes(self) -> float:
        """
        context, fragmentation
        """
    @property
    def memory_temporary_bytes(self) -> float:
        """
        live inside one layer
        """
    @property
    def memory_weights_bytes(self) -> float:
        """
        weights
        """
    @property
    def mfu_fraction(self) -> float:
        """
        model flop over dense peak; causal attention, recomputation excluded
        """
    @property
    def micro_batches(self) -> float:
        """
        per replica and step
        """
    @property
    def optimizer_s(self) -> float:
        """
        parameter update
        """
    @property
    def overhead_s(self) -> float:
        """
        data, clipping, logging
        """
    @property
    def power_w(self) -> float:
        """
        mean of one accelerator
        """
    @property
    def step_time_s(self) -> float:
        """
        one optimizer step
        """
    @property
    def tokens_per_s(self) -> float:
        """
        of the whole cluster
        """
    @property
    def verdict(self) -> str:
        """
        ok, out_of_memory or illegal:<reason>
        """
class MeasuredRun:
    """
    A measured training step.
    """
    def __init__(self, model: LayeredModel, cluster: Cluster, task: Task, strategies: collections.abc.Sequence[Strategy], step_time_s: typing.SupportsFloat | typing.SupportsIndex, weight: typing.SupportsFloat | typing.SupportsIndex = 1.0, facts: Stack | None = None, own_launch: bool = False) -> None:
        ...
class Tables:
    """
    Costs of a (model, cluster, task, stack) on small axes.
    """
    def __init__(self, model: LayeredModel, cluster: Cluster, task: Task, stack: Stack, packing: Packing = ...) -> None:
        ...
    def at_step_time(self, strategy: Strategy, estimate: Estimate, step_time_s: typing.SupportsFloat | typing.SupportsIndex) -> Estimate:
        """
        The estimate of a strategy whose step is known to take this long.
        """
    def estimate(self, strategy: Strategy) -> Estimate:
        """
        The estimate of one strategy.
        """
    def model_flop(self) -> tuple[float, float]:
        """
        Forward flop of one sequence, and the attention part of it.
        """
    def operators(self, strategy: Strategy, kind: typing.SupportsInt | typing.SupportsIndex) -> list:
        """
        Operators of one layer of a kind; kind = number of kinds: the head.
        """
    def reported_memory_bytes(self, strategy: Strategy, estimate: Estimate) -> float:
        """
        Memory of a strategy's estimate as the log of the stack states it.
        """
    @property
    def cells(self) -> int:
        """
        Tabulated degrees.
        """
class TimelineOptions:
    """
    How traffic is ordered and what disturbs a step.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: TimelineOptions) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, priority: str = 'fifo', slices: int = 1, gradient_compression: float = 1.0, contention: bool = True) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> TimelineOptions:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def contention(self) -> bool:
        """
        hidden communication slows compute down
        """
    @property
    def gradient_compression(self) -> float:
        """
        bytes of a reduced gradient over those of a plain one
        """
    @property
    def priority(self) -> str:
        """
        order of gradient traffic
        """
    @property
    def slices(self) -> int:
        """
        buckets of gradients and parameters per layer
        """
class Timeline:
    """
    One step as events.
    """
    def critical_path(self) -> dict:
        """
        Columns of the events that make the step as long as it is.
        """
    def events(self) -> dict:
        """
        Columns of all events.
        """
    def memory(self) -> dict:
        """
        Columns of what every rank holds after each change.
        """
    def trace(self, tables: Tables, operators_of: Strategy | None) -> bytes:
        """
        JSON in the Trace Event Format; with a strategy, passes broken down into operators.
        """
    @property
    def chunks_per_stage(self) -> int:
        """
        Virtual stages, or DualPipe's two directions.
        """
    @property
    def passes(self) -> int:
        """
        Passes of all ranks.
        """
    @property
    def period_s(self) -> float:
        """
        From the start of a step to that of the next one.
        """
    @property
    def stages(self) -> int:
        """
        Ranks simulated.
        """
    @property
    def step_time_s(self) -> float:
        """
        One optimizer step.
        """
class MixedStep:
    """
    A training step on accelerators of several kinds.
    """
    @property
    def cost_usd(self) -> float:
        ...
    @property
    def energy_j(self) -> float:
        ...
    @property
    def layers(self) -> list[int]:
        ...
    @property
    def least_time_s(self) -> float:
        ...
    @property
    def may_fit(self) -> bool:
        ...
    @property
    def memory_bytes(self) -> list[float]:
        ...
    @property
    def micro_batches(self) -> list[float]:
        ...
    @property
    def power_w(self) -> list[float]:
        ...
    @property
    def step_time_s(self) -> float:
        ...
    @property
    def times_s(self) -> list[float]:
        ...
    @property
    def verdict(self) -> str:
        ...
class SchedulerLimits:
    """
    What bounds a step of a scheduler over named KV cache blocks.
    
    Examples
    --------
    >>> SchedulerLimits(blocks=1000).replace(max_batched_tokens=2048)
    SchedulerLimits(blocks=1000, max_batched_tokens=2048)
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: SchedulerLimits) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, blocks: int = 1, block_tokens: int = 16, max_batched_tokens: int = 8192, max_running_sequences: int = 1024, max_prompt_chunk: int = 0, prefix_caching: bool = True, reserves_prompt: bool = True, uncached_last: bool = False) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> SchedulerLimits:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def block_tokens(self) -> int:
        """
        tokens of a KV cache block
        """
    @property
    def blocks(self) -> int:
        """
        KV cache blocks that requests may use
        """
    @property
    def max_batched_tokens(self) -> int:
        """
        tokens of a step, at most
        """
    @property
    def max_prompt_chunk(self) -> int:
        """
        tokens of one prompt in a step, at most; 0 = those of the step
        """
    @property
    def max_running_sequences(self) -> int:
        """
        sequences running at once, at most
        """
    @property
    def prefix_caching(self) -> bool:
        """
        full blocks are kept for equal prefixes
        """
    @property
    def reserves_prompt(self) -> bool:
        """
        a prompt starts when all of it fits, not only its first chunk
        """
    @property
    def uncached_last(self) -> bool:
        """
        free blocks without a hash wait for their turn instead of being taken first
        """
class Adapters:
    """
    Low-rank adapters (LoRA) of one served model.
    
    Every request names one of `count`, all as often as each other.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Adapters) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, adapters: int = 0, adapter_rank: int = 16, adapter_targets: str = 'all', adapter_slots: int = 0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Adapters:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def adapter_rank(self) -> int:
        """
        rank that the engine is started for
        """
    @property
    def adapter_slots(self) -> int:
        """
        adapters that the accelerator has room for; 0: as many as there are
        """
    @property
    def adapter_targets(self) -> str:
        """
        matrices with adapters
        """
    @property
    def adapters(self) -> int:
        """
        distinct adapters that requests name; 0: none
        """
class GuidedDecoding:
    """
    Answers that follow a grammar.
    
    Before a token of a guided request is sampled, the CPU fills a mask of the allowed ones.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: GuidedDecoding) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, guided_fraction: float = 0.0, mask_s: float = 0.0, advance_s: float = 0.0, update_s: float = 0.0, compile_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> GuidedDecoding:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def advance_s(self) -> float:
        """
        of that, taking the last token in, before the next step begins
        """
    @property
    def compile_s(self) -> float:
        """
        a guided request waits for its grammar before it starts, mean
        """
    @property
    def guided_fraction(self) -> float:
        """
        of the requests, those that follow a grammar
        """
    @property
    def mask_s(self) -> float:
        """
        CPU time of one mask of allowed tokens, mean
        """
    @property
    def update_s(self) -> float:
        """
        CPU time of taking in the token of any sequence, which masks of steps that are scheduled ahead wait for
        """
class Engine:
    """
    One version of a serving engine.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Engine) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, kernel_efficiency: float = 1.0, collective_wait_s: float = 0.0, step_host_s: float = 0.0, broadcast_host_s: float = 0.0, sequence_host_s: float = 0.0, pipeline_host_s: float = 0.0, request_host_s: float = 0.0, prompt_host_s: float = 0.0, adapter_kernel_s: float = 0.0, adapter_launch_s: float = 0.0, adapter_block_s: float = 0.0, adapter_pass_s: float = 0.0, idle_adapter_block_s: float = 0.0, adapter_copy_s: float = 0.0, overlaps_host: bool = False, mixed_batches: bool = True, chunked_prefill: bool = True, uses_windows: bool = True, window_cache: bool = False, tunes_limits: bool = False, fused_quantisation: bool = False, limits_per_rank: bool = True, expert_spread: float = 0.0, balanced_spread: float = 0.0, admission: str = 'prompt', block_tokens: int = 16, max_batched_tokens: int = 8192, max_running_sequences: int = 1024, memory_fraction: float = 0.9, fraction_of_free: bool = False, reserve_bytes: float = 0.0, adapters: Adapters = ..., overlaps_drafts: bool = True, overlaps_draft_models: bool = True, phased_drafts: bool = False, draft_layer_host_s: float = 0.0, max_drafting_sequences: int = 0, guided: GuidedDecoding = ..., overlaps_masks: bool = False, overlaps_draft_masks: bool = False, compiles_apart: bool = True) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Engine:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def adapter_block_s(self) -> float:
        """
        multiprocessor time of a thread block of theirs; 0: they are not counted
        """
    @property
    def adapter_copy_s(self) -> float:
        """
        CPU time to start the copy of one matrix of an adapter to the accelerator
        """
    @property
    def adapter_kernel_s(self) -> float:
        """
        least time of a shrink or an expand of low-rank adapters
        """
    @property
    def adapter_launch_s(self) -> float:
        """
        time of one beside that of its thread blocks, where those are counted
        """
    @property
    def adapter_pass_s(self) -> float:
        """
        the same for each of its passes over the depth of the input
        """
    @property
    def adapters(self) -> Adapters:
        """
        low-rank adapters the engine is started with
        """
    @property
    def admission(self) -> str:
        """
        what must fit before a request starts
        """
    @property
    def balanced_spread(self) -> float:
        """
        the same of copies of experts that are balanced by redundant ones
        """
    @property
    def block_tokens(self) -> int:
        """
        tokens of a KV cache block
        """
    @property
    def broadcast_host_s(self) -> float:
        """
        CPU overhead per step and doubling of tensor ranks, which are told of requests
        """
    @property
    def chunked_prefill(self) -> bool:
        """
        chunked prefill: a prompt may be computed over several steps
        """
    @property
    def collective_wait_s(self) -> float:
        """
        of eight ranks for one another, per collective
        """
    @property
    def compiles_apart(self) -> bool:
        """
        a grammar is compiled while its request waits; else in the step of its prompt
        """
    @property
    def draft_layer_host_s(self) -> float:
        """
        CPU overhead per layer and pass of a draft model that runs without CUDA graphs
        """
    @property
    def expert_spread(self) -> float:
        """
        standard deviation of an expert's load over its mean
        """
    @property
    def fraction_of_free(self) -> bool:
        """
        that share is of what weights leave, not of all memory
        """
    @property
    def fused_quantisation(self) -> bool:
        """
        norms write the narrow format
        """
    @property
    def guided(self) -> GuidedDecoding:
        """
        answers that follow a grammar
        """
    @property
    def idle_adapter_block_s(self) -> float:
        """
        multiprocessor time of one that finds no tokens; 0: none is launched without
        """
    @property
    def kernel_efficiency(self) -> float:
        """
        kernels in a tight loop over the same inside a step
        """
    @property
    def limits_per_rank(self) -> bool:
        """
        limits of a step hold for each data-parallel rank
        """
    @property
    def max_batched_tokens(self) -> int:
        """
        tokens of a step, at most
        """
    @property
    def max_drafting_sequences(self) -> int:
        """
        sequences running at once where drafts are verified, at most; 0 = as without
        """
    @property
    def max_running_sequences(self) -> int:
        """
        sequences running at once, at most
        """
    @property
    def memory_fraction(self) -> float:
        """
        share of memory the engine may fill
        """
    @property
    def mixed_batches(self) -> bool:
        """
        mixed batches: prefill and decode share a step
        """
    @property
    def overlaps_draft_masks(self) -> bool:
        """
        the same of steps that verify drafts
        """
    @property
    def overlaps_draft_models(self) -> bool:
        """
        CPU overhead stays hidden where a draft model drafts
        """
    @property
    def overlaps_drafts(self) -> bool:
        """
        CPU overhead stays hidden where a layer drafts
        """
    @property
    def overlaps_host(self) -> bool:
        """
        CPU overhead is hidden behind the accelerator, without pipeline stages
        """
    @property
    def overlaps_masks(self) -> bool:
        """
        masks of guided decoding are made while the step runs that samples with them
        """
    @property
    def phased_drafts(self) -> bool:
        """
        passes of a step with a draft layer are prepared by the CPU one by one
        """
    @property
    def pipeline_host_s(self) -> float:
        """
        further CPU overhead per sequence and step where stages form a pipeline
        """
    @property
    def prompt_host_s(self) -> float:
        """
        CPU overhead per prompt in the step that computes it
        """
    @property
    def request_host_s(self) -> float:
        """
        CPU overhead per request before its first token
        """
    @property
    def reserve_bytes(self) -> float:
        """
        memory of driver context, CUDA graphs and workspaces
        """
    @property
    def sequence_host_s(self) -> float:
        """
        CPU overhead per running sequence and step
        """
    @property
    def step_host_s(self) -> float:
        """
        CPU overhead per step
        """
    @property
    def tunes_limits(self) -> bool:
        """
        limits follow from memory and request lengths
        """
    @property
    def uses_windows(self) -> bool:
        """
        sliding windows are honoured
        """
    @property
    def window_cache(self) -> bool:
        """
        sliding windows bound the KV cache
        """
class ServingKernels:
    """
    The kernels an engine runs on one accelerator.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: ServingKernels) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, tiled: bool = False, linear: TileGemm = ..., linear_gemm: GemmKernels = ..., linear_format: GemmFormat = ..., math: str = 'bf16', cache: str = 'bf16', attention: str = 'bf16', prefill: PrefillKernel = ..., decode: DecodeKernel = ..., experts: GroupedGemmKernel = ..., experts_as_linear: bool = False, sends_tokens: bool = False, dispatch: DispatchKernel = ..., combine: DispatchKernel = ..., dispatch_ranks: int = 1, sends_many: bool = False, many_dispatch: DispatchKernel = ..., many_combine: DispatchKernel = ..., few_tokens: float = 0.0, dispatch_blocks: float = 0.0, received_experts: GroupedGemmKernel = ..., combine_blocks: float = 0.0, down_overlaps: bool = False, shared_overlaps_dispatch: bool = False, own_all_reduce: bool = False, all_reduce: CustomAllReduce = ..., host_slowdown: float = 1.0, encodes: bool = False, encoder: WorkKernel = ...) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> ServingKernels:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def all_reduce(self) -> CustomAllReduce:
        """
        constants of that all-reduce
        """
    @property
    def attention(self) -> str:
        """
        operands of the attention GEMMs
        """
    @property
    def cache(self) -> str:
        """
        format of keys and values
        """
    @property
    def combine(self) -> DispatchKernel:
        """
        tokens back from their experts
        """
    @property
    def combine_blocks(self) -> float:
        """
        multiprocessors that a combine beside compute takes (single-batch overlap); 0 = none
        """
    @property
    def decode(self) -> DecodeKernel:
        """
        decode attention
        """
    @property
    def dispatch(self) -> DispatchKernel:
        """
        tokens to their experts
        """
    @property
    def dispatch_blocks(self) -> float:
        """
        multiprocessors that kernels for many tokens take from compute
        """
    @property
    def dispatch_ranks(self) -> int:
        """
        least expert-parallel ranks that tokens are sent between
        """
    @property
    def down_overlaps(self) -> bool:
        """
        what the down projection has finished is combined beside the rest of it
        """
    @property
    def encoder(self) -> WorkKernel:
        """
        attention of vision towers
        """
    @property
    def encodes(self) -> bool:
        """
        attention of vision towers has constants of its own
        """
    @property
    def experts(self) -> GroupedGemmKernel:
        """
        expert layers
        """
    @property
    def experts_as_linear(self) -> bool:
        """
        their GEMMs run as a batch of linear layers
        """
    @property
    def few_tokens(self) -> float:
        """
        tokens of a rank, at most, that never take the kernels for many
        """
    @property
    def host_slowdown(self) -> float:
        """
        CPU overhead over that of the machine of the fits
        """
    @property
    def linear(self) -> TileGemm:
        """
        constants of linear layers
        """
    @property
    def linear_format(self) -> GemmFormat:
        """
        what linear layers are stored in
        """
    @property
    def linear_gemm(self) -> GemmKernels:
        """
        tile shapes those refer to
        """
    @property
    def many_combine(self) -> DispatchKernel:
        """
        many tokens back from their experts
        """
    @property
    def many_dispatch(self) -> DispatchKernel:
        """
        many tokens to their experts
        """
    @property
    def math(self) -> str:
        """
        format of linear layers in the roofline form
        """
    @property
    def own_all_reduce(self) -> bool:
        """
        the engine has its own all-reduce
        """
    @property
    def prefill(self) -> PrefillKernel:
        """
        prefill attention
        """
    @property
    def received_experts(self) -> GroupedGemmKernel:
        """
        expert layers of tokens that were sent
        """
    @property
    def sends_many(self) -> bool:
        """
        token dispatch has other kernels for many tokens
        """
    @property
    def sends_tokens(self) -> bool:
        """
        token dispatch has kernels of its own
        """
    @property
    def shared_overlaps_dispatch(self) -> bool:
        """
        shared experts run beside the dispatch, else beside the combine
        """
    @property
    def tiled(self) -> bool:
        """
        linear layers have constants of their own
        """
class ServingLayout:
    """
    How one instance is spread over accelerators.
    
    Examples
    --------
    >>> ServingLayout(tp=8).replace(ep=8)
    ServingLayout(tp=8, ep=8)
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: ServingLayout) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, tp: int = 1, pp: int = 1, ep: int = 1, dp: int = 1, cp: int = 1, redundant_experts: int = 0, two_batch_overlap: bool = False, single_batch_overlap: bool = False, encoder_data_parallel: bool = False, expert_ranks: int = 0, micro_batches: int = 1) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> ServingLayout:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def cp(self) -> int:
        """
        ranks over which a prompt is sharded
        """
    @property
    def dp(self) -> int:
        """
        attention data-parallel ranks of a stage
        """
    @property
    def encoder_data_parallel(self) -> bool:
        """
        tensor ranks encode images of their own, each with a whole vision tower
        """
    @property
    def ep(self) -> int:
        """
        ranks over which the experts are sharded
        """
    @property
    def expert_ranks(self) -> int:
        """
        accelerators of a pool that holds the experts alone, 0 where they lie with attention
        """
    @property
    def micro_batches(self) -> int:
        """
        parts of a step that go to and fro between attention and an expert pool
        """
    @property
    def pp(self) -> int:
        """
        pipeline stages
        """
    @property
    def redundant_experts(self) -> int:
        """
        copies of experts, over all expert-parallel ranks, that balance them
        """
    @property
    def single_batch_overlap(self) -> bool:
        """
        shared experts and the down projection run beside the exchange of the same tokens
        """
    @property
    def tp(self) -> int:
        """
        ranks that split every layer
        """
    @property
    def two_batch_overlap(self) -> bool:
        """
        half a step is computed while the other half is exchanged
        """
class StepTime:
    """
    One step of an instance by cause.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: StepTime) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, linear_s: float = 0.0, experts_s: float = 0.0, prefill_attention_s: float = 0.0, decode_attention_s: float = 0.0, elementwise_s: float = 0.0, head_s: float = 0.0, draft_s: float = 0.0, encoder_s: float = 0.0, exposed_tp_s: float = 0.0, exposed_ep_s: float = 0.0, exposed_cp_s: float = 0.0, exposed_pp_s: float = 0.0, host_s: float = 0.0, step_time_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> StepTime:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def decode_attention_s(self) -> float:
        """
        decode attention
        """
    @property
    def draft_s(self) -> float:
        """
        draft layers or draft model of speculative decoding
        """
    @property
    def elementwise_s(self) -> float:
        """
        norms, activations, rotary embedding
        """
    @property
    def encoder_s(self) -> float:
        """
        vision tower and projector on images of prompts
        """
    @property
    def experts_s(self) -> float:
        """
        expert layers
        """
    @property
    def exposed_cp_s(self) -> float:
        """
        context-parallel communication
        """
    @property
    def exposed_ep_s(self) -> float:
        """
        expert-parallel communication
        """
    @property
    def exposed_pp_s(self) -> float:
        """
        transfers between stages
        """
    @property
    def exposed_tp_s(self) -> float:
        """
        tensor-parallel communication
        """
    @property
    def head_s(self) -> float:
        """
        logits and sampling
        """
    @property
    def host_s(self) -> float:
        """
        exposed CPU overhead
        """
    @property
    def linear_s(self) -> float:
        """
        GEMMs of dense layers
        """
    @property
    def prefill_attention_s(self) -> float:
        """
        prefill attention
        """
    @property
    def step_time_s(self) -> float:
        """
        whole step
        """
class CacheCapacity:
    """
    Memory of the fullest rank and what its KV cache holds.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: CacheCapacity) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, memory_weights_bytes: float = 0.0, memory_activations_bytes: float = 0.0, memory_reserve_bytes: float = 0.0, memory_kv_cache_bytes: float = 0.0, block_bytes: float = 0.0, blocks: float = 0.0, cached_sequences: float = 0.0, step_sequences: float = 0.0, max_running_sequences: float = 0.0, max_admitted: float = 0.0, max_batched_tokens: float = 0.0, memory_expert_weights_bytes: float = 0.0, memory_expert_activations_bytes: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> CacheCapacity:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def block_bytes(self) -> float:
        """
        one KV cache block in every layer of the rank
        """
    @property
    def blocks(self) -> float:
        """
        KV cache blocks of a rank; 0 = nothing fits
        """
    @property
    def cached_sequences(self) -> float:
        """
        requests that the KV cache of an instance holds
        """
    @property
    def max_admitted(self) -> float:
        """
        sequences that run at once while others wait, part of their output done
        """
    @property
    def max_batched_tokens(self) -> float:
        """
        the engine's limit of tokens in one step
        """
    @property
    def max_running_sequences(self) -> float:
        """
        sequences that run at once at their full length: the smaller of both
        """
    @property
    def memory_activations_bytes(self) -> float:
        """
        activations of the largest step
        """
    @property
    def memory_expert_activations_bytes(self) -> float:
        """
        activations of an accelerator of an expert pool in the largest step
        """
    @property
    def memory_expert_weights_bytes(self) -> float:
        """
        weights of the fullest accelerator of an expert pool
        """
    @property
    def memory_kv_cache_bytes(self) -> float:
        """
        KV cache, in whole blocks
        """
    @property
    def memory_reserve_bytes(self) -> float:
        """
        driver context, CUDA graphs, workspaces
        """
    @property
    def memory_weights_bytes(self) -> float:
        """
        weights of the fullest rank
        """
    @property
    def step_sequences(self) -> float:
        """
        the engine's limit of sequences in one step
        """
class RequestMix:
    """
    Mean lengths of requests and what is known beforehand.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: RequestMix) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, input_tokens: float = 1.0, output_tokens: float = 1.0, prefix_hit_fraction: float = 0.0, speculative_tokens: int = 0, acceptance_fraction: float = 0.0, prefilled: bool = False, images: float = 0.0, image_height: int = 0, image_width: int = 0, source_tokens: float = 0.0, encoder_hit_fraction: float = 0.0, acceptance_decay: float = 1.0, acceptance_power: float = 0.5, draft_width: int = 1, draft_nodes: int = 0, adaptive_drafts: bool = False) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> RequestMix:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def acceptance_decay(self) -> float:
        """
        factor on the acceptance with every draft token before
        """
    @property
    def acceptance_fraction(self) -> float:
        """
        probability that a draft token is accepted
        """
    @property
    def acceptance_power(self) -> float:
        """
        power of a number of candidates with which the chance falls that none is accepted
        """
    @property
    def adaptive_drafts(self) -> bool:
        """
        drafts are as deep as pays at the load, at most speculative_tokens
        """
    @property
    def draft_nodes(self) -> int:
        """
        candidates of a tree that are verified; 0: as many as go on
        """
    @property
    def draft_width(self) -> int:
        """
        candidates that go on at every depth of a tree of drafts; 1: a chain
        """
    @property
    def encoder_hit_fraction(self) -> float:
        """
        share of the images whose encodings the encoder cache holds already
        """
    @property
    def image_height(self) -> int:
        """
        pixels of an image from top to bottom
        """
    @property
    def image_width(self) -> int:
        """
        pixels of an image from side to side
        """
    @property
    def images(self) -> float:
        """
        images of a prompt, their tokens among its own
        """
    @property
    def input_tokens(self) -> float:
        """
        tokens of a prompt
        """
    @property
    def output_tokens(self) -> float:
        """
        output tokens of a request
        """
    @property
    def prefilled(self) -> bool:
        """
        KV caches of prompts come from a prefill pool
        """
    @property
    def prefix_hit_fraction(self) -> float:
        """
        share of a prompt that the KV cache holds already
        """
    @property
    def source_tokens(self) -> float:
        """
        tokens of the source that an encoder reads of every request
        """
    @property
    def speculative_tokens(self) -> int:
        """
        draft tokens proposed per sequence and step
        """
class SteadyState:
    """
    A steady state of one instance.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: SteadyState) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, concurrency: float = 0.0, requests_per_s: float = 0.0, step_time_s: float = 0.0, tpot_s: float = 0.0, ttft_s: float = 0.0, prefill_s: float = 0.0, utilisation: float = 0.0, prompt_fraction: float = 0.0, saturated: bool = False, draft_tokens: int = 0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> SteadyState:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def concurrency(self) -> float:
        """
        sequences running
        """
    @property
    def draft_tokens(self) -> int:
        """
        depth of the drafts in force
        """
    @property
    def prefill_s(self) -> float:
        """
        time to the first token on an idle instance
        """
    @property
    def prompt_fraction(self) -> float:
        """
        share of steps that carry a prompt
        """
    @property
    def requests_per_s(self) -> float:
        """
        requests finished per second
        """
    @property
    def saturated(self) -> bool:
        """
        more arrive than it can finish
        """
    @property
    def step_time_s(self) -> float:
        """
        time of a step, mean
        """
    @property
    def tpot_s(self) -> float:
        """
        time between two tokens of a sequence, mean
        """
    @property
    def ttft_s(self) -> float:
        """
        time to the first token, waiting included; 0 = it grows without bound
        """
    @property
    def utilisation(self) -> float:
        """
        requests over the most it can finish
        """
class StreamTotals:
    """
    Totals of a simulated stream.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: StreamTotals) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, steps: float = 0.0, running_s: float = 0.0, in_system_s: float = 0.0, preemptions: float = 0.0, busy_s: float = 0.0, makespan_s: float = 0.0, itl_median_s: float = 0.0, itl_p90_s: float = 0.0, itl_p99_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> StreamTotals:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def busy_s(self) -> float:
        """
        time inside steps, all instances
        """
    @property
    def in_system_s(self) -> float:
        """
        integral of requests between arrival and end
        """
    @property
    def itl_median_s(self) -> float:
        """
        between tokens, half of them
        """
    @property
    def itl_p90_s(self) -> float:
        """
        between tokens, nine of ten
        """
    @property
    def itl_p99_s(self) -> float:
        """
        between tokens, 99 of 100
        """
    @property
    def makespan_s(self) -> float:
        """
        from the first arrival to the last token
        """
    @property
    def preemptions(self) -> float:
        """
        preempted sequences: their KV cache blocks were evicted
        """
    @property
    def running_s(self) -> float:
        """
        integral of running sequences over time
        """
    @property
    def steps(self) -> float:
        """
        steps of all instances
        """
class BatchPass:
    """
    Time of a forward pass over some requests.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: BatchPass) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, alone_s: float = 0.0, more_s: float = 0.0, padded: float = 1.0, most: float = 1.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> BatchPass:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def alone_s(self) -> float:
        """
        time of the smallest pass
        """
    @property
    def more_s(self) -> float:
        """
        time that every further request adds
        """
    @property
    def most(self) -> float:
        """
        requests of the largest pass
        """
    @property
    def padded(self) -> float:
        """
        requests of the smallest pass
        """
class BatchState:
    """
    A server of batches in its steady state.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: BatchState) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, batch: float = 0.0, pass_s: float = 0.0, latency_s: float = 0.0, utilisation: float = 0.0, saturated: bool = False, leaving_per_s: float = 0.0, busy_fraction: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> BatchState:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def batch(self) -> float:
        """
        requests of a pass, mean
        """
    @property
    def busy_fraction(self) -> float:
        """
        share of the time in which a pass runs
        """
    @property
    def latency_s(self) -> float:
        """
        latency of a request, waiting included; 0 = it grows without bound
        """
    @property
    def leaving_per_s(self) -> float:
        """
        requests answered per second
        """
    @property
    def pass_s(self) -> float:
        """
        time of a pass
        """
    @property
    def saturated(self) -> bool:
        """
        more arrive than full batches take
        """
    @property
    def utilisation(self) -> float:
        """
        rate over that of full batches
        """
class EncoderPass:
    """
    Images through an instance of encoders alone.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: EncoderPass) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, time_s: float = 0.0, memory_bytes: float = 0.0, encoding_bytes: float = 0.0, sending_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> EncoderPass:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def encoding_bytes(self) -> float:
        """
        what becomes of one image
        """
    @property
    def memory_bytes(self) -> float:
        """
        weights and activations of the fullest rank
        """
    @property
    def sending_s(self) -> float:
        """
        one of them to another node
        """
    @property
    def time_s(self) -> float:
        """
        all of them in one step
        """
class LatentGrid:
    """
    What an autoencoder makes one place of.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: LatentGrid) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, pixels: float = 1.0, frames: float = 1.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> LatentGrid:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def frames(self) -> float:
        """
        frames of a place; the first stands alone
        """
    @property
    def pixels(self) -> float:
        """
        pixels of a place, either way
        """
class GenerationPass:
    """
    Parts of the generation of an image or a video.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: GenerationPass) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, encoders_s: float = 0.0, denoising_s: float = 0.0, decoder_s: float = 0.0, steps: int = 1) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> GenerationPass:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def decoder_s(self) -> float:
        """
        decoder of the latents
        """
    @property
    def denoising_s(self) -> float:
        """
        one denoising step
        """
    @property
    def encoders_s(self) -> float:
        """
        encoders of the text
        """
    @property
    def steps(self) -> int:
        """
        denoising steps
        """
class Draft:
    """
    What proposes tokens beside a served model.
    
    `Draft()` is nothing, `Draft(layer=True)` one more layer of the model (multi-token prediction,
    EAGLE), and `Draft(model, kernels, tp)` a model of its own, each layer of which is split over `tp`
    ranks, or as the served model is where `tp` is 0. A step verifies `verified` tokens of a sequence.
    """
    @typing.overload
    def __init__(self, *, layer: bool = False, verified: typing.SupportsFloat | typing.SupportsIndex = 0) -> None:
        ...
    @typing.overload
    def __init__(self, model: LayeredModel, kernels: ServingKernels, tp: typing.SupportsInt | typing.SupportsIndex = 0, verified: typing.SupportsFloat | typing.SupportsIndex = 0) -> None:
        ...
class PoolLoad:
    """
    What attention and an expert pool are busy with in one step.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: PoolLoad) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, attention_s: float = 0.0, experts_s: float = 0.0, dispatch_s: float = 0.0, combine_s: float = 0.0, step_time_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> PoolLoad:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def attention_s(self) -> float:
        """
        of a step in which the attention pool computes
        """
    @property
    def combine_s(self) -> float:
        """
        of a step in which outputs of experts are sent back
        """
    @property
    def dispatch_s(self) -> float:
        """
        of a step in which tokens are sent to experts
        """
    @property
    def experts_s(self) -> float:
        """
        of a step in which the expert pool computes
        """
    @property
    def step_time_s(self) -> float:
        """
        whole step
        """
class ExpertPool:
    """
    Accelerators of an expert pool that are not of the served cluster.
    """
    def __init__(self, cluster: Cluster, kernels: ServingKernels) -> None:
        ...
class Instance:
    """
    One serving instance, tabulated.
    """
    def __init__(self, model: LayeredModel, cluster: Cluster, engine: Engine, kernels: ServingKernels, layout: ServingLayout, imbalance: typing.SupportsFloat | typing.SupportsIndex = 1.0, images: RequestMix = ..., draft: Draft = ..., expert_pool: ExpertPool | None = None) -> None:
        ...
    def cache_blocks(self, tokens: typing.SupportsFloat | typing.SupportsIndex) -> float:
        """
        Blocks of one rank for a sequence.
        """
    def capacity(self, input_tokens: typing.SupportsFloat | typing.SupportsIndex, output_tokens: typing.SupportsFloat | typing.SupportsIndex) -> CacheCapacity:
        """
        Memory of the fullest rank and what its KV cache holds.
        """
    def decode_step(self, mix: RequestMix, sequences: typing.SupportsFloat | typing.SupportsIndex) -> StepTime:
        """
        Time of a step without prompts, at the mean context of the mix and with its drafts.
        """
    def encode(self, images: typing.SupportsFloat | typing.SupportsIndex) -> EncoderPass:
        """
        What an instance of encoders alone takes for a batch of images, and to send one on.
        """
    def pool_load(self, mix: RequestMix, sequences: typing.SupportsFloat | typing.SupportsIndex) -> PoolLoad:
        """
        Busy time of both pools in a step without prompts, where experts have one of their own.
        """
    def schedule(self, limits: SchedulerLimits, arrival_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], input_tokens: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], output_tokens: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], names: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64], name_ends: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], name_tokens: typing.SupportsInt | typing.SupportsIndex, images: typing.Annotated[numpy.typing.ArrayLike, numpy.float64] = ...) -> tuple:
        """
        Tables of steps and of requests, in seconds.
        """
    def simulate(self, mix: RequestMix, arrival_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], input_tokens: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], output_tokens: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], replicas: typing.SupportsInt | typing.SupportsIndex = 1, prefilled: bool = False, balance: str = 'random', seed: typing.SupportsInt | typing.SupportsIndex = 0, progress: typing.Any = None) -> tuple:
        """
        Per request: started, first token, finished, preemptions, refused; and the totals.
        """
    def steady_state(self, mix: RequestMix, concurrency: typing.SupportsFloat | typing.SupportsIndex, limited: bool = True) -> SteadyState:
        """
        At a fixed concurrency; not limited: even beyond the KV cache.
        """
    def steady_state_at(self, mix: RequestMix, requests_per_s: typing.SupportsFloat | typing.SupportsIndex) -> SteadyState:
        """
        With requests arriving at this rate per second.
        """
    def steady_states_at(self, mix: RequestMix, requests_per_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64]) -> dict:
        """
        Columns of the states at many such rates, one row each.
        """
    def step(self, *, sequences: typing.SupportsFloat | typing.SupportsIndex = 0.0, context: typing.SupportsFloat | typing.SupportsIndex = 0.0, prompts: typing.SupportsFloat | typing.SupportsIndex = 0.0, prompt_tokens: typing.SupportsFloat | typing.SupportsIndex = 0.0, prompt_keys: typing.SupportsFloat | typing.SupportsIndex = 0.0, query_tokens: typing.SupportsFloat | typing.SupportsIndex = 1.0, draft_tokens: typing.SupportsFloat | typing.SupportsIndex = 0.0, images: typing.SupportsFloat | typing.SupportsIndex = 0.0) -> StepTime:
        """
        Time of one step.
        """
    @property
    def pool_parameters(self) -> tuple[float, float]:
        """
        Parameters of what an expert pool computes in all layers, and those that a token uses.
        """
class WeightSet:
    """
    What is moved to every replica of an engine.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: WeightSet) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, parameters: float = 1.0, routed: float = 0.0, matrices: float = 1.0, precision: str = 'bf16') -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> WeightSet:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def matrices(self) -> float:
        """
        matrices of layers and experts
        """
    @property
    def parameters(self) -> float:
        """
        parameters of the model
        """
    @property
    def precision(self) -> str:
        """
        format that the engine holds them in
        """
    @property
    def routed(self) -> float:
        """
        of them, parameters of routed experts
        """
class RefitCosts:
    """
    Fixed times of new weights for an engine.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: RefitCosts) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, start_s: float = 0.0, per_matrix_s: float = 0.0, per_load_s: float = 0.0, gather_bytes_per_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> RefitCosts:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def gather_bytes_per_s(self) -> float:
        """
        of sharded matrices made whole and put in buckets; 0 = at once
        """
    @property
    def per_load_s(self) -> float:
        """
        of a whole matrix that the engine's loader places
        """
    @property
    def per_matrix_s(self) -> float:
        """
        fixed time of a message
        """
    @property
    def start_s(self) -> float:
        """
        planning and metadata
        """
class SwitchCosts:
    """
    What accelerators that generate and train in turn set free.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: SwitchCosts) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, per_parameter_bytes: float = 0.0, wake_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> SwitchCosts:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def per_parameter_bytes(self) -> float:
        """
        states and gradients that leave the accelerator
        """
    @property
    def wake_s(self) -> float:
        """
        waking the engine and its cache
        """
class DynamicSampling:
    """
    Prompts that are rejected and drawn again (DAPO).
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: DynamicSampling) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, accepted_fraction: float = 1.0, oversampling: float = 1.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> DynamicSampling:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def accepted_fraction(self) -> float:
        """
        of prompts, whose answers differ in reward
        """
    @property
    def oversampling(self) -> float:
        """
        prompts of a round over those of a step
        """
class RlPasses:
    """
    Which passes a step of reinforcement learning makes.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: RlPasses) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, round_s: float = 0.0, sustained_s: float = 0.0, partial: bool = False, fresh_s: float = 0.0, stale_fraction: float = 1.0, sampling: DynamicSampling = ..., forward_s: float = 0.0, reward_forward_s: float = 0.0, critic_forward_s: float = 0.0, optimizer_step_s: float = 0.0, critic_step_s: float = 0.0, optimizer_steps: float = 1.0, logprob: bool = True, reference: bool = False, learning_fraction: float = 1.0, dispatch_s: float = 0.0, refit_s: float = 0.0, switch_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> RlPasses:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def critic_forward_s(self) -> float:
        """
        of a critic; 0 = none
        """
    @property
    def critic_step_s(self) -> float:
        """
        one update of the critic
        """
    @property
    def dispatch_s(self) -> float:
        """
        answers handed to a pool and back, a call
        """
    @property
    def forward_s(self) -> float:
        """
        one forward pass over the answers of a step
        """
    @property
    def fresh_s(self) -> float:
        """
        until answers that only the newest weights may give
        """
    @property
    def learning_fraction(self) -> float:
        """
        speed of scoring and training over that of pre-training
        """
    @property
    def logprob(self) -> bool:
        """
        of the policy; else the engine hands on its own
        """
    @property
    def optimizer_step_s(self) -> float:
        """
        one update of the policy
        """
    @property
    def optimizer_steps(self) -> float:
        """
        updates of a step
        """
    @property
    def partial(self) -> bool:
        """
        generation goes on over updates of the weights
        """
    @property
    def reference(self) -> bool:
        """
        log-probabilities of a reference model
        """
    @property
    def refit_s(self) -> float:
        """
        new weights for the engine
        """
    @property
    def reward_forward_s(self) -> float:
        """
        of a reward model; 0 = verified
        """
    @property
    def round_s(self) -> float:
        """
        of generation, until the last answer
        """
    @property
    def sampling(self) -> DynamicSampling:
        """
        prompts that are rejected and drawn again
        """
    @property
    def stale_fraction(self) -> float:
        """
        of answers that may be of older weights
        """
    @property
    def sustained_s(self) -> float:
        """
        of generation by replicas as full as can be
        """
    @property
    def switch_s(self) -> float:
        """
        states to the host and back, engine awake
        """
class RlPhases:
    """
    Seconds of the phases of a step of reinforcement learning.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    @staticmethod
    def never() -> RlPhases:
        """
        Of a step that cannot run: infinite.
        """
    def __eq__(self, arg0: RlPhases) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, rollout_s: float = 0.0, collect_s: float = 0.0, reward_s: float = 0.0, logprob_s: float = 0.0, reference_s: float = 0.0, critic_s: float = 0.0, train_s: float = 0.0, refit_s: float = 0.0, switch_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> RlPhases:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def between_s(self) -> float:
        """
        Neither pool works meanwhile: new weights, sleeping and waking.
        """
    @property
    def collect_s(self) -> float:
        """
        streamed answers gathered by those that train
        """
    @property
    def critic_s(self) -> float:
        """
        scores of the critic
        """
    @property
    def learning_s(self) -> float:
        """
        Of the pool that trains: all passes over the answers.
        """
    @property
    def logprob_s(self) -> float:
        """
        log-probabilities of the policy
        """
    @property
    def reference_s(self) -> float:
        """
        log-probabilities of the reference
        """
    @property
    def refit_s(self) -> float:
        """
        new weights for the engine
        """
    @property
    def reward_s(self) -> float:
        """
        scores of a reward model
        """
    @property
    def rollout_s(self) -> float:
        """
        generation
        """
    @property
    def switch_s(self) -> float:
        """
        sleeping and waking
        """
    @property
    def train_s(self) -> float:
        """
        all optimizer steps, the critic's too
        """
class TuningPasses:
    """
    Which passes a step of preference tuning or distillation makes.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: TuningPasses) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, rollout_s: float = 0.0, forward_s: float = 0.0, reference_passes: float = 0.0, policy_passes: float = 0.0, teacher_forward_s: float = 0.0, swap_s: float = 0.0, logits_s: float = 0.0, optimizer_step_s: float = 0.0, optimizer_steps: float = 1.0, learning_fraction: float = 1.0, refit_s: float = 0.0, switch_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> TuningPasses:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def forward_s(self) -> float:
        """
        one forward pass over the sequences of a step
        """
    @property
    def learning_fraction(self) -> float:
        """
        speed of scoring and training over that of pre-training
        """
    @property
    def logits_s(self) -> float:
        """
        logits handed from teacher to student
        """
    @property
    def optimizer_step_s(self) -> float:
        """
        one update of the weights
        """
    @property
    def optimizer_steps(self) -> float:
        """
        updates of a step
        """
    @property
    def policy_passes(self) -> float:
        """
        passes of the policy without gradients
        """
    @property
    def reference_passes(self) -> float:
        """
        forward passes of a frozen copy
        """
    @property
    def refit_s(self) -> float:
        """
        new weights for the engine
        """
    @property
    def rollout_s(self) -> float:
        """
        until the last answer of the student
        """
    @property
    def swap_s(self) -> float:
        """
        frozen weights from the host and what gives way
        """
    @property
    def switch_s(self) -> float:
        """
        states to the host and back, engine awake
        """
    @property
    def teacher_forward_s(self) -> float:
        """
        of the teacher; 0 = none
        """
class TuningPhases:
    """
    Seconds of the phases of preference tuning or distillation.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    @staticmethod
    def never() -> TuningPhases:
        """
        Of a step that cannot run: infinite.
        """
    def __eq__(self, arg0: TuningPhases) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, rollout_s: float = 0.0, swap_s: float = 0.0, reference_s: float = 0.0, logprob_s: float = 0.0, teacher_s: float = 0.0, logits_s: float = 0.0, train_s: float = 0.0, refit_s: float = 0.0, switch_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> TuningPhases:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def learning_s(self) -> float:
        """
        Of the accelerators of the model that learns.
        """
    @property
    def logits_s(self) -> float:
        """
        logits handed to the student
        """
    @property
    def logprob_s(self) -> float:
        """
        log-probabilities of the policy, no gradients
        """
    @property
    def reference_s(self) -> float:
        """
        log-probabilities of the reference
        """
    @property
    def refit_s(self) -> float:
        """
        new weights for the engine
        """
    @property
    def rollout_s(self) -> float:
        """
        generation by the student
        """
    @property
    def swap_s(self) -> float:
        """
        frozen weights from the host and what gives way
        """
    @property
    def switch_s(self) -> float:
        """
        sleeping and waking
        """
    @property
    def teacher_s(self) -> float:
        """
        logits of the teacher
        """
    @property
    def teaching_s(self) -> float:
        """
        Of a teacher beside its student, until the student has the logits.
        """
    @property
    def train_s(self) -> float:
        """
        all optimizer steps
        """
class LogitFormat:
    """
    Bytes of what a teacher says of a token.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: LogitFormat) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, value_bytes: float = 0.0, index_bytes: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> LogitFormat:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def index_bytes(self) -> float:
        """
        of the number of a token
        """
    @property
    def value_bytes(self) -> float:
        """
        of a logit
        """
class Space:
    """
    Values of every knob and the rules between them.
    """
    def __init__(self, values: dict, relations: collections.abc.Sequence[tuple[typing.SupportsFloat | typing.SupportsIndex, collections.abc.Sequence[str], str, typing.SupportsFloat | typing.SupportsIndex, collections.abc.Sequence[str]]], exclusions: collections.abc.Sequence[dict], redundant: collections.abc.Sequence[str], tiers: bool) -> None:
        ...
class Enumeration:
    """
    The legal strategies of a space, numbered.
    """
    def __init__(self, space: Space, model: LayeredModel, cluster: Cluster, task: Task) -> None:
        ...
    def parts(self, count: typing.SupportsInt | typing.SupportsIndex) -> list[int]:
        """
        First rows of `count` parts of nearly equal size, and the size: cut between points where one begins within a quarter of a part.
        """
    def strategy(self, row: typing.SupportsInt | typing.SupportsIndex) -> Strategy:
        """
        Strategy number `row`.
        """
    @property
    def groups(self) -> int:
        """
        Groups that share a lower bound.
        """
    @property
    def points(self) -> int:
        """
        Sets of degrees, micro-batch and schedule.
        """
    @property
    def refusals(self) -> list:
        """
        Rule, reason, number of the relation, first strategy and number of the combinations without a row.
        """
    @property
    def size(self) -> int:
        """
        Strategies.
        """
class Searcher:
    """
    A space and what its strategies rank by.
    """
    def __init__(self, tables: Tables, space: Enumeration, objective: collections.abc.Sequence[tuple[str, typing.SupportsFloat | typing.SupportsIndex]], constraints: collections.abc.Sequence[tuple[str, str, typing.SupportsFloat | typing.SupportsIndex, str | None]], top: typing.SupportsInt | typing.SupportsIndex, prune: bool, too_big: bool) -> None:
        ...
    def quick_look(self) -> float:
        """
        A score that `top` strategies of the space do not exceed; infinite where too few are seen, or nothing is pruned.
        """
    def score_among(self, rows: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> float:
        """
        A score that `top` of these rows do not exceed; infinite where too few are answers.
        """
    def search(self, first: typing.SupportsInt | typing.SupportsIndex, last: typing.SupportsInt | typing.SupportsIndex, threads: typing.SupportsInt | typing.SupportsIndex, progress: typing.Any, beyond: typing.SupportsFloat | typing.SupportsIndex = ...) -> tuple:
        """
        Best strategies of the rows [first, last) that score at most `beyond`; of the others how many by verdict, pruned, and left out by a constraint.
        """
class RouterPolicy:
    """
    A router and its settings.
    
    Examples
    --------
    >>> RouterPolicy(router="prefix_aware", cache_threshold=0.5)
    RouterPolicy(router='prefix_aware', cache_threshold=0.5)
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: RouterPolicy) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, router: str = 'round_robin', cache_threshold: float = 0.3, balance_requests: float = 64.0, balance_ratio: float = 1.5, overlap_weight: float = 1.0, counts_sent: bool = False, queue_weight: float = 2.0, kv_cache_weight: float = 2.0, prefix_weight: float = 3.0, active_weight: float = 0.0, scrape_interval_s: float = 0.05, active_until_end: bool = True) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> RouterPolicy:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def active_until_end(self) -> bool:
        """
        weighted_scorers: requests are under way until their end, not until the headers of their responses
        """
    @property
    def active_weight(self) -> float:
        """
        weighted_scorers: of few requests under way
        """
    @property
    def balance_ratio(self) -> float:
        """
        prefix_aware: and ratio of loads that it takes for it
        """
    @property
    def balance_requests(self) -> float:
        """
        prefix_aware: difference of loads above which the least loaded is chosen
        """
    @property
    def cache_threshold(self) -> float:
        """
        prefix_aware: share of a prompt above which the replica that holds it is chosen
        """
    @property
    def counts_sent(self) -> bool:
        """
        prompts count as held once they are sent, not once they are computed
        """
    @property
    def kv_cache_weight(self) -> float:
        """
        weighted_scorers: of what is free of the KV cache
        """
    @property
    def overlap_weight(self) -> float:
        """
        kv_cost: weight of prompt tokens to compute beside tokens held
        """
    @property
    def prefix_weight(self) -> float:
        """
        weighted_scorers: of the share of the prompt that is held
        """
    @property
    def queue_weight(self) -> float:
        """
        weighted_scorers: of the shortest queue
        """
    @property
    def router(self) -> str:
        """
        how a request finds its replica
        """
    @property
    def scrape_interval_s(self) -> float:
        """
        weighted_scorers: between two looks at queue and KV cache; 0: always current
        """
class Autoscaler:
    """
    How many replicas of a fleet run: desired = ceil(sum of the signal/target).
    
    Examples
    --------
    >>> Autoscaler(signal="queue", target=4.0).interval_s
    15.0
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Autoscaler) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, signal: str = 'requests', target: float = 16.0, min_replicas: int = 1, interval_s: float = 15.0, startup_s: float = 60.0, down_window_s: float = 300.0, tolerance: float = 0.1) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Autoscaler:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def down_window_s(self) -> float:
        """
        replicas leave only beyond the most desired in this time
        """
    @property
    def interval_s(self) -> float:
        """
        between two looks
        """
    @property
    def min_replicas(self) -> int:
        """
        replicas that always run
        """
    @property
    def signal(self) -> str:
        """
        what is looked at, of each replica
        """
    @property
    def startup_s(self) -> float:
        """
        from the decision to the first request
        """
    @property
    def target(self) -> float:
        """
        of the signal, per replica
        """
    @property
    def tolerance(self) -> float:
        """
        of signal over target, around 1
        """
class CacheTier:
    """
    A tier of prefixes below the KV cache of a replica.
    
    Examples
    --------
    >>> CacheTier(capacity_bytes=1e12, read_bytes_per_s=40e9, write_bytes_per_s=40e9).writes
    'write_through'
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: CacheTier) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, capacity_bytes: float = 1.0, read_bytes_per_s: float = 1.0, write_bytes_per_s: float = 1.0, link_bytes_per_s: float = 0.0, latency_s: float = 0.0, writes: str = 'write_through', threshold_tokens: float = 0.0, layerwise: bool = False, shared: bool = False) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> CacheTier:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def capacity_bytes(self) -> float:
        """
        of the tier
        """
    @property
    def latency_s(self) -> float:
        """
        of a transfer, beside its bytes
        """
    @property
    def layerwise(self) -> bool:
        """
        layers are computed as they come
        """
    @property
    def link_bytes_per_s(self) -> float:
        """
        to one replica of a shared tier; 0: no limit
        """
    @property
    def read_bytes_per_s(self) -> float:
        """
        to all ranks of a replica; of all replicas where shared
        """
    @property
    def shared(self) -> bool:
        """
        one tier for all replicas
        """
    @property
    def threshold_tokens(self) -> float:
        """
        fewer tokens than these are computed, not loaded
        """
    @property
    def write_bytes_per_s(self) -> float:
        """
        from all ranks of a replica
        """
    @property
    def writes(self) -> str:
        """
        when blocks are written to it
        """
class TierReach:
    """
    What lies between the ranks of a replica and a tier.
    
    Examples
    --------
    >>> reach = TierReach(ranks=2, link_bytes_per_s=50e9, reached_fraction=0.8)
    >>> reached_tier(CacheTier(capacity_bytes=1e12), reach).read_bytes_per_s
    80000000000.0
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: TierReach) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, ranks: float = 1.0, link_bytes_per_s: float = 0.0, reached_fraction: float = 1.0, node_accelerators: float = 1.0, node_read_bytes_per_s: float = 0.0, node_write_bytes_per_s: float = 0.0, replicas: float = 1.0, rank_capacity_bytes: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> TierReach:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def link_bytes_per_s(self) -> float:
        """
        of one accelerator; 0: reached by nodes
        """
    @property
    def node_accelerators(self) -> float:
        """
        that share what a node reads
        """
    @property
    def node_read_bytes_per_s(self) -> float:
        """
        of a node
        """
    @property
    def node_write_bytes_per_s(self) -> float:
        """
        of a node
        """
    @property
    def rank_capacity_bytes(self) -> float:
        """
        of the tier, for each rank
        """
    @property
    def ranks(self) -> float:
        """
        accelerators of a replica
        """
    @property
    def reached_fraction(self) -> float:
        """
        of the link, by what engines use
        """
    @property
    def replicas(self) -> float:
        """
        that share the tier
        """
class TierTotals:
    """
    What a tier did.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: TierTotals) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, hits: float = 0.0, hit_tokens: float = 0.0, read_bytes: float = 0.0, written_bytes: float = 0.0, evicted_bytes: float = 0.0, read_busy_s: float = 0.0, write_busy_s: float = 0.0, read_wait_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> TierTotals:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def evicted_bytes(self) -> float:
        """
        the least recently used, for lack of room
        """
    @property
    def hit_tokens(self) -> float:
        """
        prompt tokens they loaded
        """
    @property
    def hits(self) -> float:
        """
        requests that loaded from it
        """
    @property
    def read_busy_s(self) -> float:
        """
        time it was read
        """
    @property
    def read_bytes(self) -> float:
        """
        loaded
        """
    @property
    def read_wait_s(self) -> float:
        """
        behind other reads, sum over hits
        """
    @property
    def write_busy_s(self) -> float:
        """
        time it was written
        """
    @property
    def written_bytes(self) -> float:
        """
        written to it
        """
class PrefixTimes:
    """
    To load a prefix from a tier, and to compute it.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: PrefixTimes) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, load_s: float = 0.0, compute_s: float = 0.0, exposed_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> PrefixTimes:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def compute_s(self) -> float:
        """
        of the prefix instead
        """
    @property
    def exposed_s(self) -> float:
        """
        of the load
        """
    @property
    def load_s(self) -> float:
        """
        from an idle tier
        """
class StartUp:
    """
    How a replica comes up.
    
    Examples
    --------
    >>> StartUp(read_bytes_per_s=5e9, warm_up_s=60).warm_up_s
    60.0
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: StartUp) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, schedule_s: float = 0.0, read_bytes_per_s: float = 1.0, warm_up_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> StartUp:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def read_bytes_per_s(self) -> float:
        """
        of weights, by all ranks of a replica
        """
    @property
    def schedule_s(self) -> float:
        """
        until its process runs
        """
    @property
    def warm_up_s(self) -> float:
        """
        graphs, tuning, the first requests
        """
class Failures:
    """
    How replicas fail, and what becomes of their requests.
    
    Examples
    --------
    >>> Failures(mtbf_s=86400.0, restart_s=120.0).max_retries
    3
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Failures) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, mtbf_s: float = 0.0, restart_s: float = 60.0, retry_delay_s: float = 0.0, max_retries: int = 3) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Failures:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def max_retries(self) -> int:
        """
        of a request; then it is lost
        """
    @property
    def mtbf_s(self) -> float:
        """
        mean time between failures of a replica; 0: none
        """
    @property
    def restart_s(self) -> float:
        """
        from the failure to the first request
        """
    @property
    def retry_delay_s(self) -> float:
        """
        until a lost request is sent again
        """
class Outage:
    """
    Replicas that are down for a time.
    
    Examples
    --------
    >>> Outage(begin_s=600.0, end_s=1200.0, first=0, count=8).count
    8
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Outage) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, begin_s: float = 0.0, end_s: float = 0.0, first: int = 0, count: int = 1) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Outage:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def begin_s(self) -> float:
        """
        in the clock of the arrivals
        """
    @property
    def count(self) -> int:
        """
        of these replicas
        """
    @property
    def end_s(self) -> float:
        """
        when restarts begin; 1e12: never
        """
    @property
    def first(self) -> int:
        """
        the first of the replicas that are down
        """
class Shedding:
    """
    When requests are turned away.
    
    Examples
    --------
    >>> Shedding(queue=10.0, priority=1).queue
    10.0
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Shedding) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, queue: float = 5.0, priority: int = 0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Shedding:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def priority(self) -> int:
        """
        the least number that may be turned away
        """
    @property
    def queue(self) -> float:
        """
        waiting requests of a replica, on average
        """
class ReplicaTotals:
    """
    What one replica of a fleet did.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: ReplicaTotals) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, kind: float = 0.0, requests: float = 0.0, refused: float = 0.0, input_tokens: float = 0.0, output_tokens: float = 0.0, cached_tokens: float = 0.0, max_in_system: float = 0.0, online_s: float = 0.0, stream: StreamTotals = ...) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> ReplicaTotals:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def cached_tokens(self) -> float:
        """
        prompt tokens found in its prefix cache
        """
    @property
    def input_tokens(self) -> float:
        """
        prompt tokens of finished requests
        """
    @property
    def kind(self) -> float:
        """
        its place in the kinds of the fleet
        """
    @property
    def max_in_system(self) -> float:
        """
        most requests between arrival and end
        """
    @property
    def online_s(self) -> float:
        """
        from start-up to the end of its last request, paid for
        """
    @property
    def output_tokens(self) -> float:
        """
        output tokens of finished requests
        """
    @property
    def refused(self) -> float:
        """
        requests longer than the whole cache
        """
    @property
    def requests(self) -> float:
        """
        finished requests
        """
    @property
    def stream(self) -> StreamTotals:
        """
        its steps, integrals and gaps
        """
class RingJob:
    """
    Copies of a model that exchange gradients in rings.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: RingJob) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, parameters: float = 0.0, tokens: float = 0.0, copy: int = 8, copies: int = 2) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def compute_s(self, peak_flop_per_s: float) -> float:
        """
        Scaled seconds between two all-reduces.
        """
    def replace(self, **kwargs) -> RingJob:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def copies(self) -> int:
        """
        copies, the size of a ring
        """
    @property
    def copy(self) -> int:
        """
        NICs of a copy of the model
        """
    @property
    def parameters(self) -> float:
        """
        of the model
        """
    @property
    def step_bytes(self) -> float:
        """
        Bytes of a NIC in one step of its ring.
        """
    @property
    def steps(self) -> int:
        """
        Steps of an all-reduce.
        """
    @property
    def tokens(self) -> float:
        """
        that scale the computation between all-reduces
        """
class JobSchedule:
    """
    Collectives and silence of a job over time.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: JobSchedule) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, steps: int = 2, epochs: int = 1, start_s: float = 0.0, compute_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> JobSchedule:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def compute_s(self) -> float:
        """
        from a collective to the next
        """
    @property
    def epochs(self) -> int:
        """
        collectives
        """
    @property
    def start_s(self) -> float:
        """
        of the first collective
        """
    @property
    def steps(self) -> int:
        """
        of a collective
        """
class RouteOptions:
    """
    How paths are chosen.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: RouteOptions) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, policy: str = 'balanced', model: str = 'fair_share', parts: int = 4, effort: float = 1.0, keep_best: bool = False, seed: int = 0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> RouteOptions:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def effort(self) -> float:
        """
        of searches; 1 is about 50 ms
        """
    @property
    def keep_best(self) -> bool:
        """
        annealing answers the best state met, not the last
        """
    @property
    def model(self) -> str:
        """
        rate model that searches improve
        """
    @property
    def parts(self) -> int:
        """
        parts of a flow, subflow_ecmp
        """
    @property
    def policy(self) -> str:
        """
        how paths are chosen
        """
    @property
    def seed(self) -> int:
        """
        of annealing and searches
        """
class Controller:
    """
    When paths are chosen anew, and for which demands.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Controller) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, period_s: float = 0.0, delay_s: float = 0.0, forecast: str = 'announced') -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Controller:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def delay_s(self) -> float:
        """
        from seeing the demands to new paths
        """
    @property
    def forecast(self) -> str:
        """
        which jobs a run routes
        """
    @property
    def period_s(self) -> float:
        """
        between runs; 0 = paths are chosen once
        """
class Flows:
    """
    Who sends how much to whom in one step.
    """
    __hash__: typing.ClassVar[None] = None
    def __eq__(self, arg0: Flows) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __init__(self, job: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], group: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], source: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], destination: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], size_bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], jobs: typing.SupportsInt | typing.SupportsIndex, phase: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = []) -> None:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def columns(self) -> dict:
        """
        Job, group, source, destination and size of every flow.
        """
    @property
    def jobs(self) -> int:
        """
        Jobs.
        """
    @property
    def size(self) -> int:
        """
        Flows.
        """
class ScalingPoint:
    """
    One size of a scaling study.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: ScalingPoint) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, tokens_per_s_per_accelerator: float = 0.0, full_attention_mfu_fraction: float = 0.0, exposed_s: float = 0.0, exposed_fraction: float = 0.0, tokens_per_j: float = 0.0, accelerator_tokens_per_j: float = 0.0, usd_per_token: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> ScalingPoint:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def accelerator_tokens_per_j(self) -> float:
        """
        per joule of the accelerators alone
        """
    @property
    def exposed_fraction(self) -> float:
        """
        the same, share of the step
        """
    @property
    def exposed_s(self) -> float:
        """
        communication between accelerators not hidden
        """
    @property
    def full_attention_mfu_fraction(self) -> float:
        """
        MFU with 12 L h s flop of attention per token, masked ones included
        """
    @property
    def tokens_per_j(self) -> float:
        """
        per joule at the facility's meter
        """
    @property
    def tokens_per_s_per_accelerator(self) -> float:
        """
        throughput of one accelerator
        """
    @property
    def usd_per_token(self) -> float:
        """
        rent
        """
class ClockPower:
    """
    How power follows the clock of an accelerator.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: ClockPower) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, static_fraction: float = 0.0, exponent: float = 1.0, least_clock: float = 1.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> ClockPower:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def exponent(self) -> float:
        """
        of the clock in the rest
        """
    @property
    def least_clock(self) -> float:
        """
        lowest clock, of the highest
        """
    @property
    def static_fraction(self) -> float:
        """
        of the limit, drawn at any clock
        """
class StepPhases:
    """
    Where the time of a step goes, by what limits it.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: StepPhases) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, compute_s: float = 0.0, memory_bound_s: float = 0.0, exposed_s: float = 0.0, idle_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> StepPhases:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def compute_s(self) -> float:
        """
        kernels that the clock limits
        """
    @property
    def exposed_s(self) -> float:
        """
        waiting inside collectives
        """
    @property
    def idle_s(self) -> float:
        """
        bubbles, CPU overhead
        """
    @property
    def memory_bound_s(self) -> float:
        """
        kernels that the memory limits
        """
class CappedStep:
    """
    A step under a power limit.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: CappedStep) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, phases: StepPhases = ..., time_s: float = 0.0, power_w: float = 0.0, clock_fraction: float = 1.0, met: bool = True) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> CappedStep:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def clock_fraction(self) -> float:
        """
        of the highest clock, computing
        """
    @property
    def met(self) -> bool:
        """
        whether any clock keeps to the limit
        """
    @property
    def phases(self) -> StepPhases:
        """
        of the longer step
        """
    @property
    def power_w(self) -> float:
        """
        mean of one accelerator
        """
    @property
    def time_s(self) -> float:
        """
        sum of the phases
        """
class ServingPower:
    """
    Power of decoding, as fractions of the power limit.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: ServingPower) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, floor_fraction: float = 0.0, busy_fraction: float = 0.0, activity_fraction: float = 0.0, host_step_s: float = 0.0, host_sequence_s: float = 0.0, rank_step_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> ServingPower:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def activity_fraction(self) -> float:
        """
        added by dense arithmetic
        """
    @property
    def busy_fraction(self) -> float:
        """
        added while kernels run
        """
    @property
    def floor_fraction(self) -> float:
        """
        share of the power limit, waiting for the CPU
        """
    @property
    def host_sequence_s(self) -> float:
        """
        CPU overhead per running sequence
        """
    @property
    def host_step_s(self) -> float:
        """
        CPU overhead between two steps
        """
    @property
    def rank_step_s(self) -> float:
        """
        per doubling of the ranks
        """
class DecodeLoad:
    """
    One decoding step of a model on some accelerators.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: DecodeLoad) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, parameters: float = 0.0, active_parameters: float = 0.0, weight_bytes: float = 2.0, cache_bytes: float = 0.0, sequences: float = 1.0, accelerators: float = 1.0, replicas: float = 1.0, peak_flop_per_s: float = 0.0, bandwidth_bytes_per_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> DecodeLoad:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def accelerators(self) -> float:
        """
        of all replicas
        """
    @property
    def active_parameters(self) -> float:
        """
        read for one token
        """
    @property
    def bandwidth_bytes_per_s(self) -> float:
        """
        memory of one accelerator
        """
    @property
    def cache_bytes(self) -> float:
        """
        keys and values of one sequence
        """
    @property
    def parameters(self) -> float:
        """
        of the model
        """
    @property
    def peak_flop_per_s(self) -> float:
        """
        dense, of one accelerator
        """
    @property
    def replicas(self) -> float:
        """
        copies of the model
        """
    @property
    def sequences(self) -> float:
        """
        running at once, in all replicas
        """
    @property
    def weight_bytes(self) -> float:
        """
        per parameter
        """
class ChipProcess:
    """
    How a chip is made, per cm2 of good die.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: ChipProcess) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, energy_kwh_per_cm2: float = 0.0, gas_g_per_cm2: float = 0.0, material_g_per_cm2: float = 0.0, grid_g_per_kwh: float = 0.0, yield_fraction: float = 1.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> ChipProcess:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def energy_kwh_per_cm2(self) -> float:
        """
        electricity of the fab
        """
    @property
    def gas_g_per_cm2(self) -> float:
        """
        gases let out
        """
    @property
    def grid_g_per_kwh(self) -> float:
        """
        of the fab
        """
    @property
    def material_g_per_cm2(self) -> float:
        """
        wafers, chemicals
        """
    @property
    def yield_fraction(self) -> float:
        """
        good dies of all
        """
class ServerParts:
    """
    Footprint of a server beside its accelerators.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: ServerParts) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, casing_kg: float = 0.0, assembly_kg: float = 0.0, board_kg: float = 0.0, supplies_kg: float = 0.0, processors_kg: float = 0.0, memory_kg: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> ServerParts:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def assembly_kg(self) -> float:
        """
        of the server
        """
    @property
    def board_kg(self) -> float:
        """
        of the server
        """
    @property
    def casing_kg(self) -> float:
        """
        of the server
        """
    @property
    def memory_kg(self) -> float:
        """
        of the host memory
        """
    @property
    def processors_kg(self) -> float:
        """
        of all host processors
        """
    @property
    def supplies_kg(self) -> float:
        """
        of all power supplies
        """
class LossLaw:
    """
    Loss by parameters and tokens.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: LossLaw) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, irreducible: float = 0.0, model_scale: float = 1.0, model_exponent: float = 1.0, data_scale: float = 1.0, data_exponent: float = 1.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> LossLaw:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def data_exponent(self) -> float:
        """
        of the term of the tokens
        """
    @property
    def data_scale(self) -> float:
        """
        of the term of the tokens
        """
    @property
    def irreducible(self) -> float:
        """
        loss of an endless run
        """
    @property
    def model_exponent(self) -> float:
        """
        of the term of the parameters
        """
    @property
    def model_scale(self) -> float:
        """
        of the term of the parameters
        """
class FailingJob:
    """
    A job that fails and starts again from its last checkpoint.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: FailingJob) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, nodes: float = 1.0, node_rate_per_s: float = 0.0, other_rate_per_s: float = 0.0, restart_s: float = 0.0, write_s: float = 0.0, background_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> FailingJob:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def background_s(self) -> float:
        """
        until a checkpoint is of use
        """
    @property
    def node_rate_per_s(self) -> float:
        """
        failures of one node
        """
    @property
    def nodes(self) -> float:
        """
        of the job
        """
    @property
    def other_rate_per_s(self) -> float:
        """
        interruptions that no node causes
        """
    @property
    def restart_s(self) -> float:
        """
        from a failure to the first step again
        """
    @property
    def write_s(self) -> float:
        """
        standing still for a checkpoint
        """
class SimulationPlan:
    """
    What a simulation of failures needs beside the job.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: SimulationPlan) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, work_s: float = 0.0, interval_s: float = 0.0, spares: int = 0, repair_s: float = 0.0, runs: int = 1, seed: int = 0, replicas: int = 1, stall_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> SimulationPlan:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def interval_s(self) -> float:
        """
        productive time between checkpoints
        """
    @property
    def repair_s(self) -> float:
        """
        until a failed node stands ready; 0 = at once
        """
    @property
    def replicas(self) -> int:
        """
        that fail one by one; 1 = the job stops whole
        """
    @property
    def runs(self) -> int:
        """
        independent runs
        """
    @property
    def seed(self) -> int:
        """
        of the random numbers
        """
    @property
    def spares(self) -> int:
        """
        nodes that stand ready
        """
    @property
    def stall_s(self) -> float:
        """
        of the other replicas at a failure
        """
    @property
    def work_s(self) -> float:
        """
        productive time of the run
        """
class SparePool:
    """
    Nodes beside a job, and what goes on while one is missing.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: SparePool) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, spares: int = 0, repair_s: float = 0.0, replicas: int = 1, stall_s: float = 0.0, quorum_fraction: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> SparePool:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def quorum_fraction(self) -> float:
        """
        of a step of several replicas: agreeing on who takes part
        """
    @property
    def repair_s(self) -> float:
        """
        until a failed node stands ready; 0 = at once
        """
    @property
    def replicas(self) -> int:
        """
        that fail one by one; 1 = the job stops whole
        """
    @property
    def spares(self) -> int:
        """
        nodes that stand ready
        """
    @property
    def stall_s(self) -> float:
        """
        of the other replicas at a failure
        """
class Recovery:
    """
    One way to go on after a loss of nodes.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Recovery) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, rate_fraction: float = 0.0, begins_s: float = 0.0, repeated_s: float = 0.0, returns_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Recovery:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def begins_s(self) -> float:
        """
        from the loss to the first step
        """
    @property
    def rate_fraction(self) -> float:
        """
        until the repair, over the rate before
        """
    @property
    def repeated_s(self) -> float:
        """
        work lost with the state
        """
    @property
    def returns_s(self) -> float:
        """
        standstill to take repaired nodes in again
        """
class CheckpointWrite:
    """
    What a job writes of a checkpoint, and over which paths.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: CheckpointWrite) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, all_bytes: float = 0.0, rank_bytes: float = 0.0, node_bytes: float = 0.0, copies: float = 0.0, host_link_bytes_per_s: float = 0.0, peer_network_bytes_per_s: float = 0.0, node_storage_bytes_per_s: float = 0.0, shared_bytes_per_s: float = 0.0, planning_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> CheckpointWrite:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def all_bytes(self) -> float:
        """
        of the job
        """
    @property
    def copies(self) -> float:
        """
        in other nodes, beside a node's own part
        """
    @property
    def host_link_bytes_per_s(self) -> float:
        """
        of a rank, device to host
        """
    @property
    def node_bytes(self) -> float:
        """
        of the busiest node
        """
    @property
    def node_storage_bytes_per_s(self) -> float:
        """
        of a node; 0 = stays in host memory
        """
    @property
    def peer_network_bytes_per_s(self) -> float:
        """
        of a node, to other nodes
        """
    @property
    def planning_s(self) -> float:
        """
        who writes what
        """
    @property
    def rank_bytes(self) -> float:
        """
        of the busiest rank
        """
    @property
    def shared_bytes_per_s(self) -> float:
        """
        of the whole storage; 0 = no limit
        """
class StoredSample:
    """
    One sample as it is stored, and what it becomes.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: StoredSample) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, stored_bytes: float = 0.0, decoded_bytes: float = 0.0, decode_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> StoredSample:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def decode_s(self) -> float:
        """
        of one CPU core
        """
    @property
    def decoded_bytes(self) -> float:
        """
        copied to a device
        """
    @property
    def stored_bytes(self) -> float:
        """
        read of it
        """
class DataPath:
    """
    What feeds the steps of a job with samples.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: DataPath) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, nodes: float = 1.0, devices: float = 1.0, cores: float = 1.0, node_storage_bytes_per_s: float = 0.0, shared_bytes_per_s: float = 0.0, node_network_bytes_per_s: float = 0.0, host_link_bytes_per_s: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> DataPath:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def cores(self) -> float:
        """
        of a node, that decode
        """
    @property
    def devices(self) -> float:
        """
        that data is copied to
        """
    @property
    def host_link_bytes_per_s(self) -> float:
        """
        of a device
        """
    @property
    def node_network_bytes_per_s(self) -> float:
        """
        of a node, from remote storage; 0 = storage of the node
        """
    @property
    def node_storage_bytes_per_s(self) -> float:
        """
        of a node, from storage
        """
    @property
    def nodes(self) -> float:
        """
        that load data
        """
    @property
    def shared_bytes_per_s(self) -> float:
        """
        of the whole storage; 0 = no limit
        """
class LayerGroup:
    """
    Layers that share shape and sharding.
    """
    def forward_flop(self, sequence: typing.SupportsFloat | typing.SupportsIndex) -> float:
        """
        Products and attention of one sample.
        """
    def with_repeat(self, repeat: typing.SupportsInt | typing.SupportsIndex) -> LayerGroup:
        """
        The same period another number of times.
        """
    @property
    def active_parameters(self) -> float:
        ...
    @property
    def kind(self) -> str:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def parameters(self) -> float:
        ...
    @property
    def repeat(self) -> int:
        """
        Periods.
        """
    @property
    def tokens(self) -> float:
        """
        Per sample; 0 = the sequence of the task.
        """
class Ablation:
    """
    What is left out of the physics, to compare with simpler models.
    
    Examples
    --------
    >>> Ablation(latency=False)
    Ablation(latency=False)
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: Ablation) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, gemm_fraction: float = 0.0, memory_fraction: float = 0.0, network_fraction: float = 0.0, latency: bool = True, ring_factor: bool = True, attention_scores: bool = True, elementwise: bool = True, heads: bool = True, optimizer: bool = True, host: bool = True, contention: bool = True, ends: bool = True, reshard: bool = True, index_exchange: bool = True, pooled_exchange: bool = True, update_traffic: bool = True, table_balance: bool = True, cached_tables: bool = True) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> Ablation:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def attention_scores(self) -> bool:
        """
        scores, softmax, weighted values
        """
    @property
    def cached_tables(self) -> bool:
        """
        rows of small tables come from the cache
        """
    @property
    def contention(self) -> bool:
        """
        collectives slow the compute they hide under
        """
    @property
    def elementwise(self) -> bool:
        """
        norms, activations, residuals, loss
        """
    @property
    def ends(self) -> bool:
        """
        collectives of token and patch embeddings
        """
    @property
    def gemm_fraction(self) -> float:
        """
        constant fraction of peak; 0 = by shape
        """
    @property
    def heads(self) -> bool:
        """
        language-model and class heads
        """
    @property
    def host(self) -> bool:
        """
        kernel launch overhead and step overhead
        """
    @property
    def index_exchange(self) -> bool:
        """
        lookup indices sent to the rows' ranks
        """
    @property
    def latency(self) -> bool:
        """
        start-up times of kernels and collectives
        """
    @property
    def memory_fraction(self) -> float:
        """
        constant fraction of memory bandwidth; 0 = by kernel
        """
    @property
    def network_fraction(self) -> float:
        """
        constant fraction of every link; 0 = by operation
        """
    @property
    def optimizer(self) -> bool:
        """
        parameter update
        """
    @property
    def pooled_exchange(self) -> bool:
        """
        rows are pooled before they travel
        """
    @property
    def reshard(self) -> bool:
        """
        activations gathered between different meshes
        """
    @property
    def ring_factor(self) -> bool:
        """
        a collective spares a rank its own share
        """
    @property
    def table_balance(self) -> bool:
        """
        tables load ranks unevenly
        """
    @property
    def update_traffic(self) -> bool:
        """
        an update reads and writes rows and states
        """
class GroupEstimate:
    """
    What one step of a model of layer groups takes.
    """
    @staticmethod
    def fields() -> list:
        """
        The field table: name, kind, default, range, meaning.
        """
    def __eq__(self, arg0: GroupEstimate) -> bool:
        ...
    def __getstate__(self) -> tuple:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, *, verdict: str = 'ok', step_time_s: float = 0.0, compute_s: float = 0.0, exposed_tp_s: float = 0.0, exposed_cp_s: float = 0.0, exposed_ep_s: float = 0.0, exposed_dp_s: float = 0.0, exposed_exchange_s: float = 0.0, exposed_reshard_s: float = 0.0, optimizer_s: float = 0.0, overhead_s: float = 0.0, hidden_s: float = 0.0, forward_s: float = 0.0, gemm_s: float = 0.0, lookup_s: float = 0.0, communication_s: float = 0.0, all_reduce_s: float = 0.0, all_gather_s: float = 0.0, reduce_scatter_s: float = 0.0, all_to_all_s: float = 0.0, all_reduce_bytes: float = 0.0, all_gather_bytes: float = 0.0, reduce_scatter_bytes: float = 0.0, all_to_all_bytes: float = 0.0, exposed_fraction: float = 0.0, samples_per_s: float = 0.0, tokens_per_s: float = 0.0, mfu_fraction: float = 0.0, memory_weights_bytes: float = 0.0, memory_tables_bytes: float = 0.0, memory_gradients_bytes: float = 0.0, memory_optimizer_bytes: float = 0.0, memory_activations_bytes: float = 0.0, memory_logits_bytes: float = 0.0, memory_gathered_bytes: float = 0.0, memory_communication_bytes: float = 0.0, memory_reserve_bytes: float = 0.0, memory_bytes: float = 0.0, memory_capacity_bytes: float = 0.0, looked_up_bytes: float = 0.0, forward_flop: float = 0.0, table_imbalance: float = 1.0, power_w: float = 0.0, energy_j: float = 0.0, cost_usd: float = 0.0) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, arg0: tuple) -> None:
        ...
    def replace(self, **kwargs) -> GroupEstimate:
        """
        A copy with the given fields changed.
        """
    def to_dict(self) -> dict:
        """
        Field names and values.
        """
    @property
    def all_gather_bytes(self) -> float:
        """
        whole results on a rank
        """
    @property
    def all_gather_s(self) -> float:
        """
        of communication_s
        """
    @property
    def all_reduce_bytes(self) -> float:
        """
        whole buffers of a rank
        """
    @property
    def all_reduce_s(self) -> float:
        """
        of communication_s
        """
    @property
    def all_to_all_bytes(self) -> float:
        """
        what a rank holds, its own share included
        """
    @property
    def all_to_all_s(self) -> float:
        """
        of communication_s
        """
    @property
    def communication_s(self) -> float:
        """
        all collectives, one after the other
        """
    @property
    def compute_s(self) -> float:
        """
        kernels, lookups included
        """
    @property
    def cost_usd(self) -> float:
        """
        of the step
        """
    @property
    def energy_j(self) -> float:
        """
        of the step, at the facility's meter
        """
    @property
    def exposed_cp_s(self) -> float:
        """
        gathered keys and values not hidden
        """
    @property
    def exposed_dp_s(self) -> float:
        """
        gradients and gathered parameters not hidden
        """
    @property
    def exposed_ep_s(self) -> float:
        """
        routed tokens not hidden
        """
    @property
    def exposed_exchange_s(self) -> float:
        """
        looked-up rows not hidden
        """
    @property
    def exposed_fraction(self) -> float:
        """
        exposed communication over step time
        """
    @property
    def exposed_reshard_s(self) -> float:
        """
        activations between different meshes not hidden
        """
    @property
    def exposed_tp_s(self) -> float:
        """
        tensor-parallel sums not hidden
        """
    @property
    def forward_flop(self) -> float:
        """
        GEMMs of a rank, one forward pass
        """
    @property
    def forward_s(self) -> float:
        """
        forward passes, exposed communication included
        """
    @property
    def gemm_s(self) -> float:
        """
        GEMMs, of compute_s
        """
    @property
    def hidden_s(self) -> float:
        """
        communication underneath compute
        """
    @property
    def looked_up_bytes(self) -> float:
        """
        rows a rank looks up in a forward pass
        """
    @property
    def lookup_s(self) -> float:
        """
        lookups and updates of tables, of compute_s
        """
    @property
    def memory_activations_bytes(self) -> float:
        """
        saved for the backward pass
        """
    @property
    def memory_bytes(self) -> float:
        """
        peak on the fullest accelerator
        """
    @property
    def memory_capacity_bytes(self) -> float:
        """
        of an accelerator
        """
    @property
    def memory_communication_bytes(self) -> float:
        """
        exchange buffers
        """
    @property
    def memory_gathered_bytes(self) -> float:
        """
        gathered parameters
        """
    @property
    def memory_gradients_bytes(self) -> float:
        """
        gradients
        """
    @property
    def memory_logits_bytes(self) -> float:
        """
        logits and what their loss makes of them
        """
    @property
    def memory_optimizer_bytes(self) -> float:
        """
        master weights, moments, row states
        """
    @property
    def memory_reserve_bytes(self) -> float:
        """
        context, fragmentation
        """
    @property
    def memory_tables_bytes(self) -> float:
        """
        embedding tables, fullest rank
        """
    @property
    def memory_weights_bytes(self) -> float:
        """
        weights of layers
        """
    @property
    def mfu_fraction(self) -> float:
        """
        model flop over dense peak
        """
    @property
    def optimizer_s(self) -> float:
        """
        update of dense parameters
        """
    @property
    def overhead_s(self) -> float:
        """
        data, logging
        """
    @property
    def power_w(self) -> float:
        """
        mean of one accelerator
        """
    @property
    def reduce_scatter_bytes(self) -> float:
        """
        whole inputs of a rank
        """
    @property
    def reduce_scatter_s(self) -> float:
        """
        of communication_s
        """
    @property
    def samples_per_s(self) -> float:
        """
        queries, images or sequences, whole cluster
        """
    @property
    def step_time_s(self) -> float:
        """
        one step
        """
    @property
    def table_imbalance(self) -> float:
        """
        lookups of the busiest rank over the mean
        """
    @property
    def tokens_per_s(self) -> float:
        """
        of the whole cluster
        """
    @property
    def verdict(self) -> str:
        """
        ok, out_of_memory or illegal:<reason>
        """
class ComposedModel:
    """
    An ordered list of layer groups.
    """
    def __init__(self, groups: collections.abc.Sequence[tuple[LayerGroup, collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], str, bool, typing.SupportsFloat | typing.SupportsIndex]]) -> None:
        ...
    @property
    def active_parameters(self) -> float:
        ...
    @property
    def parameters(self) -> float:
        ...
    @property
    def slots(self) -> list:
        """
        Name, kind and whether experts, by slot.
        """
class GroupLayout:
    """
    Meshes by index and the schedule of their traffic.
    """
    def __init__(self, meshes: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], micro_batches: typing.SupportsInt | typing.SupportsIndex, queues: str, prefetch: str, backward_gather: str, buckets: str, recompute: bool) -> None:
        ...
class GroupTables:
    """
    Costs of every group under every mesh.
    """
    def __init__(self, model: ComposedModel, cluster: Cluster, task: Task, stack: Stack, ablation: Ablation, lookup_fraction: typing.SupportsFloat | typing.SupportsIndex, meshes: collections.abc.Sequence[str], micro_batches: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], forward_only: bool) -> None:
        ...
    def estimate(self, layout: GroupLayout) -> GroupEstimate:
        ...
class GroupSpace:
    """
    Combinations of meshes and schedules, numbered.
    """
    def __init__(self, tables: GroupTables, meshes: collections.abc.Sequence[collections.abc.Sequence[str]], variable_of_slot: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], micro_batches: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], queues: collections.abc.Sequence[str], prefetch: collections.abc.Sequence[str], backward_gather: collections.abc.Sequence[str], buckets: collections.abc.Sequence[str], recompute: collections.abc.Sequence[bool]) -> None:
        ...
    @property
    def size(self) -> int:
        """
        Strategies.
        """
def accelerator_share_kg(accelerator_kg: typing.SupportsFloat | typing.SupportsIndex, server: ServerParts, accelerators: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    kg of CO2e of an accelerator with its share of the server.
    """
def amortised(whole: typing.SupportsFloat | typing.SupportsIndex, used_s: typing.SupportsFloat | typing.SupportsIndex, lifetime_s: typing.SupportsFloat | typing.SupportsIndex, utilisation_fraction: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    The part of something bought once that a use carries.
    """
def answer_lengths(mean: typing.SupportsFloat | typing.SupportsIndex, room: typing.SupportsFloat | typing.SupportsIndex, spread: typing.SupportsFloat | typing.SupportsIndex, count: typing.SupportsInt | typing.SupportsIndex) -> numpy.typing.NDArray[numpy.float64]:
    """
    Lengths of answers in tokens as even quantiles, the longest first.
    """
def answers_in_flight(answers: typing.SupportsFloat | typing.SupportsIndex, replicas: typing.SupportsFloat | typing.SupportsIndex, staleness: typing.SupportsInt | typing.SupportsIndex) -> float:
    """
    Answers of a replica under way at once.
    """
def asynchronous_s(slowest_s: typing.SupportsFloat | typing.SupportsIndex, micro_batches: typing.SupportsInt | typing.SupportsIndex) -> float:
    """
    Seconds of micro-batches in the steady state of a pipeline without flushes.
    """
def asynchronous_stage_bytes(stages: typing.SupportsInt | typing.SupportsIndex, stage: typing.SupportsInt | typing.SupportsIndex, *, weight_bytes: typing.SupportsFloat | typing.SupportsIndex, state_bytes: typing.SupportsFloat | typing.SupportsIndex, activation_bytes: typing.SupportsFloat | typing.SupportsIndex, double_buffered: bool = False) -> float:
    """
    Memory of a stage of an asynchronous pipeline: stashed weights, states, activations.
    """
def attention_bound_s(accelerator: Accelerator, batch: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], queries: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], keys: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], heads: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], kv_heads: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], head_dim: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], v_head_dim: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], window: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], *, causal: bool) -> numpy.typing.NDArray[numpy.float64]:
    """
    Seconds that no measurement of an attention call can undercut.
    """
def availability_interval_s(write_s: typing.SupportsFloat | typing.SupportsIndex, mttf_s: typing.SupportsFloat | typing.SupportsIndex, restart_s: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Interval of greatest availability.
    """
def batch_pass(alone_s: typing.SupportsFloat | typing.SupportsIndex, full_s: typing.SupportsFloat | typing.SupportsIndex, padded: typing.SupportsFloat | typing.SupportsIndex, most: typing.SupportsFloat | typing.SupportsIndex) -> BatchPass:
    """
    The line through the times of two passes, of padded and of most requests.
    """
def batch_power_w(batch_pass: BatchPass, state: BatchState, alone_w: typing.SupportsFloat | typing.SupportsIndex, full_w: typing.SupportsFloat | typing.SupportsIndex, idle_w: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Mean watts of an accelerator of a server of batches.
    """
def batch_state_at(batch_pass: BatchPass, requests_per_s: typing.SupportsFloat | typing.SupportsIndex) -> BatchState:
    """
    With requests arriving at this rate per second.
    """
def best_algorithm(op: str, size_bytes: typing.SupportsFloat | typing.SupportsIndex, ranks: typing.SupportsInt | typing.SupportsIndex, stride: typing.SupportsInt | typing.SupportsIndex, cluster: Cluster) -> str:
    """
    Name of the fastest algorithm that the library would consider.
    """
def break_even_repair_s(way: Recovery, other: Recovery) -> float:
    """
    Repair time from which on one way does more than another.
    """
def cache_token_bytes(instance: Instance) -> float:
    """
    Keys and values of a token in all layers, once.
    """
def canonical(strategy: Strategy, model: LayeredModel, cluster: Cluster, task: Task) -> Strategy:
    """
    The strategy with knobs without effect at their defaults.
    """
def check_draft(draft: Draft, layout: ServingLayout, cluster: Cluster) -> str:
    """
    ok, or the reason why a draft cannot be spread so beside an instance.
    """
def check_serving_layout(model: LayeredModel, layout: ServingLayout, cluster: Cluster, expert_cluster: Cluster | None = None) -> str:
    """
    ok, or the reason why an instance cannot be laid out so.
    
    `expert_cluster`: where the experts have a pool that is no part of the cluster.
    """
def check_vision(shape: VisionShape, hidden: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    Raises where no tower of that shape can stand before a decoder `hidden` wide.
    """
def checkpoint_background_s(write: CheckpointWrite, asynchronous: bool) -> float:
    """
    Seconds from then until the checkpoint counts.
    """
def checkpoint_blocking_s(write: CheckpointWrite, asynchronous: bool) -> float:
    """
    Seconds that the job stands still.
    """
def checkpoint_flows(tables: Tables, strategy: Strategy, hosts: typing.SupportsInt | typing.SupportsIndex) -> dict:
    """
    What every rank writes of a checkpoint, and to which storage host.
    """
def checkpoint_host_memory_bytes(write: CheckpointWrite, asynchronous: bool) -> float:
    """
    Host memory of the busiest node.
    """
def collective_bound_s(cluster: Cluster, op: collections.abc.Sequence[str], size_bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], ranks: typing.Annotated[numpy.typing.ArrayLike, numpy.int32]) -> numpy.typing.NDArray[numpy.float64]:
    """
    Seconds that no measurement of a collective can undercut.
    """
def collective_time_s(op: str, size_bytes: typing.SupportsFloat | typing.SupportsIndex, ranks: typing.SupportsInt | typing.SupportsIndex, stride: typing.SupportsInt | typing.SupportsIndex, cluster: Cluster, algorithm: str = 'best') -> float:
    """
    Seconds of one collective over ranks that are `stride` apart.
    """
def collective_times_s(op: str, size_bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], ranks: typing.SupportsInt | typing.SupportsIndex, stride: typing.SupportsInt | typing.SupportsIndex, cluster: Cluster, algorithm: str = 'best') -> numpy.typing.NDArray[numpy.float64]:
    """
    Seconds of one collective for every size of an array.
    """
def columns() -> list:
    """
    Columns an objective or constraint may name.
    """
def communicator_groups(tables: Tables, strategy: Strategy, communicator: str, stage: typing.SupportsInt | typing.SupportsIndex) -> list:
    """
    Ranks of every group, in their order.
    """
def conformal_bound(values: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], weights: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], coverage: typing.SupportsFloat | typing.SupportsIndex, next_weight: typing.SupportsFloat | typing.SupportsIndex = 0.0) -> float:
    """
    What the next value does not exceed with that probability; infinite for too few values. It weighs the mean of their weights, unless next_weight is given.
    """
def convolution_group(name: str, blocks: collections.abc.Sequence[typing.Annotated[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], "FixedSize(2)"]], convolutions: collections.abc.Sequence[typing.Annotated[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], "FixedSize(3)"]], condition: typing.SupportsInt | typing.SupportsIndex, tokens: typing.SupportsFloat | typing.SupportsIndex, frames: typing.SupportsInt | typing.SupportsIndex) -> LayerGroup:
    ...
def custom_all_reduce_times_s(size_bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], ranks: typing.SupportsInt | typing.SupportsIndex, scale_up: ScaleUp, kernel: CustomAllReduce) -> numpy.typing.NDArray[numpy.float64]:
    """
    Seconds of an engine's own all-reduce inside a domain, for every size of an array.
    """
def daly_interval_s(write_s: typing.SupportsFloat | typing.SupportsIndex, mttf_s: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Daly's interval between checkpoints.
    """
def decode_activity(serving: ServingPower, load: DecodeLoad) -> tuple[float, float]:
    """
    Busy share and density of a decoding step.
    """
def decode_time_s(kernel: DecodeKernel, accelerator: Accelerator, *, batch: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], queries: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], keys: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], heads: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], kv_heads: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], head_dim: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], v_head_dim: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], window: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], causal: bool = True, math: str = 'bf16', cache: str = 'bf16', latent: typing.SupportsFloat | typing.SupportsIndex = 0.0, rotary: typing.SupportsFloat | typing.SupportsIndex = 0.0, resident: bool = False) -> numpy.typing.NDArray[numpy.float64]:
    """
    Seconds of each call with one query per sequence.
    """
def decoder_groups(shape: DecoderShape) -> list[LayerGroup]:
    """
    The layer groups of a decoder, in order.
    """
def die_kg(area_cm2: typing.SupportsFloat | typing.SupportsIndex, process: ChipProcess) -> float:
    """
    kg of CO2e of a die.
    """
def direct_connect(nics: typing.SupportsInt | typing.SupportsIndex, ports: typing.SupportsInt | typing.SupportsIndex, strides: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], demands: collections.abc.Sequence[tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex]], cable: Cable) -> LinkGraph:
    """
    Rings and heavy matchings without switches; demands are rows (source, destination, bytes).
    """
def dispatch_time_s(accelerator: Accelerator, kernel: DispatchKernel, tokens: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], hidden: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], topk: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], experts: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], ranks: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], nodes: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], communication_blocks: typing.Annotated[numpy.typing.ArrayLike, numpy.float64]) -> numpy.typing.NDArray[numpy.float64]:
    """
    Seconds of sending tokens to their experts or back, one per row of the columns.
    """
def draft_candidates(mix: RequestMix) -> float:
    """
    Candidates that the tree of drafts of a step can have.
    """
def draft_paths(mix: RequestMix) -> list[list[int]]:
    """
    The verified candidates of a tree, each as the ranks from the root, from 0.
    """
def draw_slowdown(tables: Tables, strategy: Strategy, seed: typing.SupportsInt | typing.SupportsIndex) -> list[float]:
    """
    Factors of the stages of the slowest replica, drawn with the stack's spread.
    """
def ecmp_hash(value: typing.SupportsInt | typing.SupportsIndex) -> int:
    """
    The mixing hash of the ECMP router.
    """
def embedding_tables_group(name: str, tables: collections.abc.Sequence[tuple[typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex]], dim: typing.SupportsInt | typing.SupportsIndex, value_bytes: typing.SupportsFloat | typing.SupportsIndex, output_bytes: typing.SupportsFloat | typing.SupportsIndex, optimizer: str) -> LayerGroup:
    ...
def energy_over_run_j(step_j: typing.SupportsFloat | typing.SupportsIndex, step_time_s: typing.SupportsFloat | typing.SupportsIndex, time_s: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Joules of a run.
    """
def ettr_with_spares(job: FailingJob, interval_s: typing.SupportsFloat | typing.SupportsIndex, pool: SparePool) -> float:
    """
    Productive share with spares and a queue for repaired nodes.
    """
def exact_ettr(job: FailingJob, interval_s: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Productive share, any failure rate.
    """
def expected_maximum(draws: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Expected largest of several draws from a standard normal distribution.
    """
def expert_layer_time_s(accelerator: Accelerator, kernel: GroupedGemmKernel, loads: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], tokens: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], topk: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], experts: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], expert_ranks: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], hidden: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], intermediate: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], tensor_ranks: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], matrices: typing.Annotated[numpy.typing.ArrayLike, numpy.float64]) -> numpy.typing.NDArray[numpy.float64]:
    """
    Seconds of an expert layer on its busiest rank, one per row of the columns.
    """
def expert_loads(tokens: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], experts: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], topk: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], ranks: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], skew: typing.Annotated[numpy.typing.ArrayLike, numpy.float64]) -> numpy.typing.NDArray[numpy.float64]:
    """
    What the busiest expert-parallel rank receives, one row each: pairs, experts with rows, distinct tokens. skew 0: balanced.
    """
def exposed_loading_s(samples: typing.SupportsFloat | typing.SupportsIndex, rate_per_s: typing.SupportsFloat | typing.SupportsIndex, step_s: typing.SupportsFloat | typing.SupportsIndex, prefetches: bool) -> float:
    """
    Seconds of every step that wait for samples.
    """
def facility_energy_j(time_s: typing.SupportsFloat | typing.SupportsIndex, accelerator_w: typing.SupportsFloat | typing.SupportsIndex, accelerators: typing.SupportsFloat | typing.SupportsIndex, host_w: typing.SupportsFloat | typing.SupportsIndex, nodes: typing.SupportsFloat | typing.SupportsIndex, pue: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Joules at the meter of the facility.
    """
def first_order_ettr(job: FailingJob, interval_s: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Productive share, first order in the failure rate.
    """
def fit_collective(cluster: Cluster, op: collections.abc.Sequence[str], size_bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], ranks: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], time_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], weight: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], fold: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], ranges: collections.abc.Sequence[tuple[str, typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, collections.abc.Sequence[str]]]) -> tuple:
    """
    Constants of one collective inside a domain: record, fields, predicted_s, held_out_s.
    """
def fit_decode(accelerator: Accelerator, kernel: ..., batch: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], queries: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], keys: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], heads: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], kv_heads: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], head_dim: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], v_head_dim: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], window: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], *, causal: bool, time_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], weight: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], fold: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], ranges: collections.abc.Sequence[tuple[str, typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, collections.abc.Sequence[str]]]) -> tuple:
    """
    Constants of a one-query attention kernel: record, fields, predicted_s, held_out_s.
    """
def fit_dispatch(prior: ..., calls: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], time_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], weight: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], fold: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], ranges: collections.abc.Sequence[tuple[str, typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, collections.abc.Sequence[str]]]) -> tuple:
    """
    Constants of a direction of token dispatch: record, fields, predicted_s, held_out_s.
    """
def fit_elementwise(accelerator: Accelerator, family: collections.abc.Sequence[str], size_bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], time_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], weight: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], fold: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], ranges: collections.abc.Sequence[tuple[str, typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, collections.abc.Sequence[str]]]) -> tuple:
    """
    Constants of memory-bound kernels: record, fields, predicted_s, held_out_s.
    """
def fit_fabric(cluster: Cluster, op: collections.abc.Sequence[str], size_bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], ranks: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], time_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], weight: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], fold: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], ranges: collections.abc.Sequence[tuple[str, typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, collections.abc.Sequence[str]]]) -> tuple:
    """
    Constants of the network between domains: record, fields, predicted_s, held_out_s.
    """
def fit_flash(accelerator: Accelerator, precision: str, backward: collections.abc.Sequence[bool], batch: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], tokens: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], heads: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], head_dim: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], *, causal: bool, time_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], weight: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], fold: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], ranges: collections.abc.Sequence[tuple[str, typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, collections.abc.Sequence[str]]]) -> tuple:
    """
    Rates and launch of the attention of training: record, fields, predicted_s, held_out_s.
    """
def fit_prefill(accelerator: Accelerator, kernel: ..., batch: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], queries: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], keys: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], heads: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], kv_heads: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], head_dim: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], v_head_dim: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], window: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], *, causal: bool, time_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], weight: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], fold: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], ranges: collections.abc.Sequence[tuple[str, typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, collections.abc.Sequence[str]]]) -> tuple:
    """
    Constants of a whole-prompt attention kernel: record, fields, predicted_s, held_out_s.
    """
def fit_roofline_gemm(accelerator: Accelerator, precision: str, m: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], n: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], k: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], batch: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], time_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], weight: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], fold: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], ranges: collections.abc.Sequence[tuple[str, typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, collections.abc.Sequence[str]]]) -> tuple:
    """
    Constants of the roofline form: record, fields, predicted_s, held_out_s.
    """
def fit_stack(start: Stack, runs: collections.abc.Sequence[MeasuredRun], pull: typing.SupportsFloat | typing.SupportsIndex = 0.0) -> tuple:
    """
    Fitted stack, standard errors of its four constants, predicted seconds of the runs.
    """
def fit_tile_gemm(accelerator: Accelerator, precision: str, m: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], n: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], k: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], batch: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], time_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], weight: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], fold: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], ranges: collections.abc.Sequence[tuple[str, typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, collections.abc.Sequence[str]]]) -> tuple:
    """
    Constants of the tile form from measured times: record, fields, predicted_s, held_out_s.
    """
def fixed_ratio_split(tokens_per_parameter: typing.SupportsFloat | typing.SupportsIndex, budget_flop: typing.SupportsFloat | typing.SupportsIndex) -> tuple[float, float]:
    """
    Parameters and tokens at a fixed ratio.
    """
def flop_for_energy(energy_j: typing.SupportsFloat | typing.SupportsIndex, model_flop_per_s: typing.SupportsFloat | typing.SupportsIndex, facility_w: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Model work that an energy pays for.
    """
def flop_for_money(budget_usd: typing.SupportsFloat | typing.SupportsIndex, model_flop_per_s: typing.SupportsFloat | typing.SupportsIndex, price_usd_per_s: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Model work that a sum of money pays for.
    """
def forward_pass_time_s(repeated: Estimate, saved: Estimate, head_factor: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    One forward pass over what two estimates hold.
    """
def full_batches(batch_pass: BatchPass) -> BatchState:
    """
    Full batches one after another.
    """
def gemm_bound_s(accelerator: Accelerator, precision: str, m: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], n: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], k: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], batch: typing.Annotated[numpy.typing.ArrayLike, numpy.float64]) -> numpy.typing.NDArray[numpy.float64]:
    """
    Seconds that no measurement of a multiplication can undercut.
    """
def gemm_kernel_time_s(accelerator: Accelerator, kernel: TileGemm, format: GemmFormat, m: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], n: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], k: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], batch: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], output_bytes: typing.SupportsFloat | typing.SupportsIndex = 2.0) -> numpy.typing.NDArray[numpy.float64]:
    """
    Seconds of each GEMM (m, n, k, batch) with a named kernel's constants.
    """
def gemm_time_s(accelerator: Accelerator, precision: str, m: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], n: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], k: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], batch: typing.SupportsFloat | typing.SupportsIndex = 1.0) -> typing.Any:
    """
    Seconds of C[m,n] = A[m,k] B[k,n]; m, n, k broadcast.
    """
def gemm_work(precision: str, m: typing.SupportsFloat | typing.SupportsIndex, n: typing.SupportsFloat | typing.SupportsIndex, k: typing.SupportsFloat | typing.SupportsIndex, batch: typing.SupportsFloat | typing.SupportsIndex = 1.0) -> tuple[float, float]:
    """
    Flop of a multiplication, and its bytes when every operand moves once.
    """
def generation_time(parts: GenerationPass) -> float:
    """
    Seconds of a whole generation.
    """
def goodput(tokens_per_s: typing.SupportsFloat | typing.SupportsIndex, ettr_fraction: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Tokens per second that last.
    """
def group_columns() -> list:
    """
    Columns an objective or constraint may name: name, maximised, positive.
    """
def grouped_call_time_s(accelerator: Accelerator, kernel: GroupedGemmKernel, rows: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], groups: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], columns: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], depth: typing.Annotated[numpy.typing.ArrayLike, numpy.float64]) -> numpy.typing.NDArray[numpy.float64]:
    """
    Seconds of GEMMs over groups of rows, one per row of the columns.
    """
def head_factor(shape: DecoderShape, active_parameters: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    GEMMs of layers and LM head over those of the layers.
    """
def head_group(name: str, hidden: typing.SupportsInt | typing.SupportsIndex, outputs: typing.SupportsInt | typing.SupportsIndex, tied: bool, loss: bool, every_token: bool, norm: bool, bias: bool, tokens: typing.SupportsFloat | typing.SupportsIndex) -> LayerGroup:
    ...
def implied_grid_g_per_kwh(emitted_kg: typing.SupportsFloat | typing.SupportsIndex, energy_j: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Grid intensity that a footprint implies.
    """
def instance_power_w(instance: Instance, mix: RequestMix, sequences: typing.SupportsFloat | typing.SupportsIndex, *, serving: ServingPower, expert_serving: ServingPower, experts: bool, narrow: bool) -> float:
    """
    Mean watts of the accelerators of an instance, those of an expert pool among them.
    """
def instance_price_usd_per_s(layout: ServingLayout, cluster: Cluster, expert_cluster: Cluster) -> float:
    """
    Price of the accelerators of an instance; 0 where one of its clusters has none.
    """
def interaction_group(name: str, kind: str, features: typing.SupportsInt | typing.SupportsIndex, dim: typing.SupportsInt | typing.SupportsIndex, layers: typing.SupportsInt | typing.SupportsIndex, rank: typing.SupportsInt | typing.SupportsIndex) -> LayerGroup:
    ...
def jain_index(shares: typing.Annotated[numpy.typing.ArrayLike, numpy.float64]) -> float:
    """
    Fairness of shares: 1 where all are equal, 1/n where one of n has everything.
    
    Examples
    --------
    >>> jain_index([2.0, 2.0]), jain_index([1.0, 0.0])
    (1.0, 0.5)
    """
def joint_factor(first: typing.SupportsFloat | typing.SupportsIndex, second: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Half-width factor of a product of two uncertain factors.
    """
def judge_routing(graph: LinkGraph, flows: Flows, path: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], max_paths: typing.SupportsInt | typing.SupportsIndex = 256, detours: typing.SupportsInt | typing.SupportsIndex = 0) -> dict:
    """
    Rates, job values, loads and bounds of given paths.
    """
def kernel_work(kind: str, sizes: collections.abc.Sequence[typing.Annotated[numpy.typing.ArrayLike, numpy.float64]]) -> numpy.typing.NDArray[numpy.float64]:
    """
    Flop, bytes, steps, pieces and flop of the core of calls of a kind of kernel, a row each.
    """
def latencies_alone_s(instance: Instance, mix: RequestMix, input_tokens: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], output_tokens: typing.Annotated[numpy.typing.ArrayLike, numpy.float64]) -> numpy.typing.NDArray[numpy.float64]:
    """
    Latency of each request on an instance that serves it alone.
    """
def latent_places(grid: LatentGrid, height: typing.SupportsInt | typing.SupportsIndex, width: typing.SupportsInt | typing.SupportsIndex, frames: typing.SupportsInt | typing.SupportsIndex = 1) -> float:
    """
    Places of an image, or of a video of several frames.
    """
def learning_memory_bytes(training: Estimate, critic: Estimate | None = None) -> float:
    """
    Memory of an accelerator that trains, with the states of a critic.
    """
def least_loss_split(law: LossLaw, budget_flop: typing.SupportsFloat | typing.SupportsIndex) -> tuple[float, float]:
    """
    Parameters and tokens of least loss.
    """
def loading_cores_needed(sample: StoredSample, needed_per_s: typing.SupportsFloat | typing.SupportsIndex, nodes: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Cores of a node that decode as fast as is asked.
    """
def loading_rate_per_s(sample: StoredSample, path: DataPath) -> float:
    """
    Samples per second that a path passes.
    """
def loading_rates(sample: StoredSample, path: DataPath) -> dict:
    """
    Samples per second that each part of a path passes.
    """
def loggp_s(size_bytes: typing.SupportsFloat | typing.SupportsIndex, messages: typing.SupportsInt | typing.SupportsIndex, model: LogGP) -> float:
    """
    Seconds until the last of messages sent back to back has been received.
    """
def logit_bytes(vocabulary: typing.SupportsFloat | typing.SupportsIndex, top: typing.SupportsFloat | typing.SupportsIndex, format: LogitFormat) -> float:
    """
    Bytes that a teacher says of a token: the largest logits, or all where `top` is 0.
    """
def logit_time_s(bytes: typing.SupportsFloat | typing.SupportsIndex, teacher: Cluster, student: Cluster, place: str) -> float:
    """
    Seconds of all logits of a step from teacher to student.
    """
def logp_broadcast_s(ranks: typing.SupportsInt | typing.SupportsIndex, model: LogGP) -> float:
    """
    Seconds of the fastest broadcast of a short message.
    """
def lookup_time_s(accelerator: Accelerator, kernel: LookupKernel, tables: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], batch: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], pooling: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], dim: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], value_bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.float64]) -> numpy.typing.NDArray[numpy.float64]:
    """
    Seconds of one embedding lookup, one per row.
    """
def loss(law: LossLaw, parameters: typing.SupportsFloat | typing.SupportsIndex, tokens: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Loss of a model and its data.
    """
def marginal_return(tokens_per_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], accelerators: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], previous_tokens_per_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], previous_accelerators: typing.Annotated[numpy.typing.ArrayLike, numpy.float64]) -> typing.Any:
    """
    Throughput of each added accelerator over that of one before; arguments broadcast.
    """
def maximum_deviation(draws: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Standard deviation of that largest draw.
    """
def mean_over_run_w(working_w: typing.SupportsFloat | typing.SupportsIndex, working_s: typing.SupportsFloat | typing.SupportsIndex, idle_w: typing.SupportsFloat | typing.SupportsIndex, idle_s: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Mean watts of a run that is idle for a part of its time.
    """
def mean_power_w(part: ReplicaTotals, span_s: typing.SupportsFloat | typing.SupportsIndex, working_w: typing.SupportsFloat | typing.SupportsIndex, idle_w: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Mean watts of a replica: working in its steps, idle while it is online, none while off.
    """
def mean_repeated_s(job: FailingJob, interval_s: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Work lost at a failure, in the mean.
    """
def mean_time_to_failure_s(job: FailingJob) -> float:
    """
    Seconds between interruptions; infinite without failures.
    """
def memory_beside_frozen_bytes(own_bytes: typing.SupportsFloat | typing.SupportsIndex, frozen_bytes: typing.SupportsFloat | typing.SupportsIndex, received_bytes: typing.SupportsFloat | typing.SupportsIndex, place: str) -> float:
    """
    Memory of an accelerator beside which frozen weights stay, with logits of a micro-batch.
    """
def memory_bound_s(accelerator: Accelerator, size_bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.float64]) -> numpy.typing.NDArray[numpy.float64]:
    """
    Seconds that no measurement of a memory-bound kernel can undercut.
    """
def memory_kg(capacity_bytes: typing.SupportsFloat | typing.SupportsIndex, g_per_gb: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    kg of CO2e of memory.
    """
def mesh_of_experts(text: str, accelerators: typing.SupportsInt | typing.SupportsIndex) -> str:
    """
    How routed experts are laid out as the layers around them.
    """
def mesh_suits(text: str, kind: str, experts: bool) -> bool:
    """
    Whether layer groups of a kind can be laid out so.
    """
def mesh_text(text: str, accelerators: typing.SupportsInt | typing.SupportsIndex) -> str:
    """
    A mesh with every degree filled in.
    """
def mixed_by_replica(tables: collections.abc.Sequence[Tables], shares: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], strategy: Strategy, split: str) -> MixedStep:
    """
    A step of replicas of several kinds.
    """
def mixed_by_stage(tables: collections.abc.Sequence[Tables], shares: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], strategy: Strategy, split: str) -> MixedStep:
    """
    A step of a pipeline whose stages run on several kinds.
    """
def mixed_with_layers(tables: collections.abc.Sequence[Tables], shares: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], strategy: Strategy, layers: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> MixedStep:
    """
    The same with the layers of each stage given.
    """
def mlp_group(name: str, widths: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], repeat: typing.SupportsInt | typing.SupportsIndex, bias: bool, experts: typing.SupportsInt | typing.SupportsIndex, experts_per_sample: typing.SupportsInt | typing.SupportsIndex) -> LayerGroup:
    ...
def moved_kernel(kernel: GroupedGemmKernel, timed_on: Accelerator, accelerator: Accelerator) -> GroupedGemmKernel:
    """
    A grouped GEMM kernel on another accelerator of the architecture that it was timed on.
    """
def node_logits_bytes(bytes: typing.SupportsFloat | typing.SupportsIndex, pool: Cluster) -> float:
    """
    Logits of a step in the memory of a node's host.
    """
def node_power_w(accelerator_w: typing.SupportsFloat | typing.SupportsIndex, accelerators: typing.SupportsFloat | typing.SupportsIndex, host_w: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Watts of a node.
    """
def operational_kg(energy_j: typing.SupportsFloat | typing.SupportsIndex, grid_g_per_kwh: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    kg of CO2e of an energy.
    """
def outer_round(outer: OuterSteps, parameters: typing.SupportsFloat | typing.SupportsIndex, inner_step_s: typing.SupportsFloat | typing.SupportsIndex, tokens_per_s: typing.SupportsFloat | typing.SupportsIndex) -> tuple[float, float, float, float]:
    """
    Seconds of an exchange, a round and a step in the mean, and tokens of all islands a second.
    """
def outer_state_bytes(parameters: typing.SupportsFloat | typing.SupportsIndex, accelerators: typing.SupportsInt | typing.SupportsIndex) -> float:
    """
    States of the outer optimizer on an accelerator.
    """
def overtakes_at_s(way: Recovery, other: Recovery, repair_s: typing.SupportsFloat | typing.SupportsIndex, horizon_s: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    When one way is ahead of another for the first time; infinite: not by the horizon.
    """
def owned_price_usd_per_s(capital_usd: typing.SupportsFloat | typing.SupportsIndex, lifetime_s: typing.SupportsFloat | typing.SupportsIndex, utilisation_fraction: typing.SupportsFloat | typing.SupportsIndex, power_w: typing.SupportsFloat | typing.SupportsIndex, pue: typing.SupportsFloat | typing.SupportsIndex, usd_per_kwh: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Dollars per second of use of an owned accelerator.
    """
def p2p_time_s(size_bytes: typing.SupportsFloat | typing.SupportsIndex, ranks: typing.SupportsInt | typing.SupportsIndex, stride: typing.SupportsInt | typing.SupportsIndex, cluster: Cluster) -> float:
    """
    Seconds of one transfer between neighbours of a group.
    """
def pack_documents(lengths: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], sequence: typing.SupportsInt | typing.SupportsIndex) -> list[list[int]]:
    """
    Documents of each pack, by their place: the longest first, where it fits best.
    """
def pack_trees(graph: LinkGraph, root: typing.SupportsInt | typing.SupportsIndex, both_ways: bool, accuracy: typing.SupportsFloat | typing.SupportsIndex) -> dict:
    """
    Spanning trees that share the links of a direct-connect fabric.
    """
def packed_batch(mean: typing.SupportsFloat | typing.SupportsIndex, equal: typing.SupportsFloat | typing.SupportsIndex, sequences: typing.SupportsFloat | typing.SupportsIndex, pack_tokens: typing.SupportsFloat | typing.SupportsIndex, tp: typing.SupportsInt | typing.SupportsIndex, cp: typing.SupportsInt | typing.SupportsIndex, replicas: typing.SupportsInt | typing.SupportsIndex) -> tuple[float, float, float]:
    """
    Tokens of a sequence, sequences of a pack and of a batch that stand for packed ones.
    """
def padded_batch(lengths: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], sequences: typing.SupportsFloat | typing.SupportsIndex, micro_batch: typing.SupportsFloat | typing.SupportsIndex, group: typing.SupportsFloat | typing.SupportsIndex, tp: typing.SupportsInt | typing.SupportsIndex, cp: typing.SupportsInt | typing.SupportsIndex, replicas: typing.SupportsInt | typing.SupportsIndex) -> tuple[float, float, float]:
    """
    The same of sequences that are padded to the longest of a group, the longest first.
    """
def padded_dispatch_s(answers: typing.SupportsFloat | typing.SupportsIndex, limit_tokens: typing.SupportsFloat | typing.SupportsIndex, per_token_s: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Seconds of padded answers handed to a pool and back.
    """
def pareto_front(columns: collections.abc.Sequence[typing.Annotated[numpy.typing.ArrayLike, numpy.float64]]) -> numpy.typing.NDArray[numpy.int64]:
    """
    Indices of the rows that no row dominates, in lexicographic order of their values; every column is an objective, minimised.
    """
def patch_embedding_group(name: str, patch_values: typing.SupportsInt | typing.SupportsIndex, hidden: typing.SupportsInt | typing.SupportsIndex, tokens: typing.SupportsFloat | typing.SupportsIndex) -> LayerGroup:
    ...
def path_columns(graph: LinkGraph, flows: Flows, max_paths: typing.SupportsInt | typing.SupportsIndex = 256, detours: typing.SupportsInt | typing.SupportsIndex = 0) -> dict:
    """
    Every path that a flow may take.
    """
def pattern_flows(jobs: collections.abc.Sequence[tuple[str, collections.abc.Sequence[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]], typing.SupportsFloat | typing.SupportsIndex, collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]]]) -> Flows:
    """
    Flows of jobs: rows (pattern, groups of NICs, size in bytes, shape of decomposed rings).
    """
def pattern_steps(pattern: str, members: typing.SupportsInt | typing.SupportsIndex) -> int:
    """
    Steps of one collective of a pattern.
    """
def precisions() -> tuple:
    """
    Every precision, in the order of peak rates.
    """
def prefill_time_s(kernel: PrefillKernel, accelerator: Accelerator, *, batch: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], queries: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], keys: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], heads: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], kv_heads: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], head_dim: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], v_head_dim: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], window: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], causal: bool = True, math: str = 'bf16', cache: str = 'bf16', latent: typing.SupportsFloat | typing.SupportsIndex = 0.0, rotary: typing.SupportsFloat | typing.SupportsIndex = 0.0, resident: bool = False) -> numpy.typing.NDArray[numpy.float64]:
    """
    Seconds of each whole-prompt call; one number per call and column.
    """
def prefix_hits(blocks: typing.SupportsInt | typing.SupportsIndex, block_tokens: typing.SupportsInt | typing.SupportsIndex, arrival: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], input_tokens: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], output_tokens: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], names: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64], name_ends: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], name_tokens: typing.SupportsInt | typing.SupportsIndex) -> typing.Annotated[list[int], "FixedSize(4)"]:
    """
    Tokens, of them hits, blocks, of them hits: one prompt after the other.
    """
def prefix_times(instance: Instance, mix: RequestMix, tier: CacheTier, prefix_tokens: typing.SupportsFloat | typing.SupportsIndex, suffix_tokens: typing.SupportsFloat | typing.SupportsIndex) -> PrefixTimes:
    """
    To load a prefix from a tier, and to compute it.
    """
def rank_imbalance(spread: typing.SupportsFloat | typing.SupportsIndex, slots: typing.SupportsFloat | typing.SupportsIndex, ranks: typing.SupportsFloat | typing.SupportsIndex, pairs: typing.SupportsFloat | typing.SupportsIndex = 0.0) -> float:
    """
    Load of the fullest expert-parallel rank over the mean.
    
    `spread`: standard deviation of an expert's load over its mean; `slots`: experts and their copies
    over all ranks; `pairs`: (token, expert) pairs of a rank, 0 for very many.
    
    Examples
    --------
    >>> round(rank_imbalance(2.1, 256, 32), 2), round(rank_imbalance(0.158, 288, 32), 2)
    (2.54, 1.11)
    """
def reached_tier(settings: CacheTier, reach: TierReach) -> CacheTier:
    """
    A tier with the bandwidths, and where its capacity is 0 the size, that a replica finds.
    
    Examples
    --------
    >>> reach = TierReach(ranks=4, node_accelerators=8, node_read_bytes_per_s=40e9,
    ...                   node_write_bytes_per_s=20e9, rank_capacity_bytes=1e12)
    >>> tier = reached_tier(CacheTier(capacity_bytes=0.0), reach)
    >>> tier.read_bytes_per_s, tier.write_bytes_per_s, tier.capacity_bytes
    (20000000000.0, 10000000000.0, 4000000000000.0)
    """
def reasons() -> tuple:
    """
    Every reason code, in the order of the engine.
    """
def received_logits_bytes(per_token_bytes: typing.SupportsFloat | typing.SupportsIndex, tokens: typing.SupportsFloat | typing.SupportsIndex, whole: bool, tp: typing.SupportsInt | typing.SupportsIndex, cp: typing.SupportsInt | typing.SupportsIndex) -> float:
    """
    Logits of a micro-batch on an accelerator of a student.
    """
def recorded_group(name: str, layers: collections.abc.Sequence[tuple[typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, collections.abc.Sequence[tuple[str, typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, bool, bool]]]], repeat: typing.SupportsInt | typing.SupportsIndex, tokens: typing.SupportsFloat | typing.SupportsIndex) -> LayerGroup:
    """
    Layers as a recording of a module gives them.
    """
def reference_swap_time_s(policy: Estimate, pool: Cluster, place: str) -> float:
    """
    Seconds over the host link so that a reference takes the policy's place and back.
    """
def refit_bytes(weights: WeightSet, way: str, replica_ranks: typing.SupportsInt | typing.SupportsIndex, train_ranks: typing.SupportsInt | typing.SupportsIndex, rollout_ranks: typing.SupportsInt | typing.SupportsIndex) -> tuple[float, float]:
    """
    Bytes that the busiest rank sends, and that it receives.
    """
def refit_time_s(weights: WeightSet, train: Cluster, rollout: Cluster, way: str, replica_ranks: typing.SupportsInt | typing.SupportsIndex, costs: RefitCosts, sharded: bool = False) -> float:
    """
    Seconds of new weights for all replicas; `sharded`: training holds shards of all matrices.
    """
def reload_time_s(state_bytes: typing.SupportsFloat | typing.SupportsIndex, nodes: typing.SupportsFloat | typing.SupportsIndex, node_bytes_per_s: typing.SupportsFloat | typing.SupportsIndex, shared_bytes_per_s: typing.SupportsFloat | typing.SupportsIndex = 0.0) -> float:
    """
    Seconds to read a state from storage or from peers.
    """
def rental_cost_usd(time_s: typing.SupportsFloat | typing.SupportsIndex, accelerators: typing.SupportsFloat | typing.SupportsIndex, price_usd_per_s: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Dollars of a run.
    """
def replicas_on_spares(job: FailingJob, lost_fraction: typing.SupportsFloat | typing.SupportsIndex, stall_s: typing.SupportsFloat | typing.SupportsIndex, step_s: typing.SupportsFloat | typing.SupportsIndex, reload_s: typing.SupportsFloat | typing.SupportsIndex) -> Recovery:
    """
    Replicas go on while spares take the places of lost nodes.
    """
def resolve_degrees(strategy: Strategy, cluster: Cluster, task: Task) -> Degrees:
    """
    What a strategy left open, on this cluster.
    """
def restarting(job: FailingJob, rate_fraction: typing.SupportsFloat | typing.SupportsIndex, repeated_s: typing.SupportsFloat | typing.SupportsIndex, reload_s: typing.SupportsFloat | typing.SupportsIndex, reload_whole_s: typing.SupportsFloat | typing.SupportsIndex) -> Recovery:
    """
    The whole job starts again, and once more after the repair.
    """
def ring_strides(nics: typing.SupportsInt | typing.SupportsIndex, count: typing.SupportsInt | typing.SupportsIndex) -> list[int]:
    """
    Strides at which a ring visits all NICs.
    """
def ring_traffic(graph: LinkGraph, jobs: collections.abc.Sequence[RingJob], placement: str, server: typing.SupportsInt | typing.SupportsIndex, seed: typing.SupportsInt | typing.SupportsIndex, drop_local: bool) -> tuple:
    """
    Flows of placed ring jobs, and the NICs of every job.
    """
def rl_phases(passes: RlPasses) -> RlPhases:
    """
    The phases of a step from its passes.
    """
def rl_starts_s(phases: RlPhases, sustained_s: typing.SupportsFloat | typing.SupportsIndex, staleness: typing.SupportsInt | typing.SupportsIndex) -> numpy.typing.NDArray[numpy.float64]:
    """
    Seconds from the start of a step to that of each of its phases.
    """
def rl_step_time_s(phases: RlPhases, sustained_s: typing.SupportsFloat | typing.SupportsIndex, staleness: typing.SupportsInt | typing.SupportsIndex) -> float:
    """
    Seconds of a whole step.
    """
def rollout_period_s(rollout_s: typing.SupportsFloat | typing.SupportsIndex, sustained_s: typing.SupportsFloat | typing.SupportsIndex, staleness: typing.SupportsInt | typing.SupportsIndex) -> float:
    """
    Seconds of the rollout pool from step to step.
    """
def route_flows(graph: LinkGraph, flows: Flows, options: RouteOptions, max_paths: typing.SupportsInt | typing.SupportsIndex = 256, detours: typing.SupportsInt | typing.SupportsIndex = 0) -> dict:
    """
    Chosen paths, rates, job values, loads and bounds.
    """
def run_network(graph: LinkGraph, flows: Flows, options: RouteOptions, schedules: collections.abc.Sequence[JobSchedule], step_latency_s: typing.SupportsFloat | typing.SupportsIndex, max_paths: typing.SupportsInt | typing.SupportsIndex = 256, detours: typing.SupportsInt | typing.SupportsIndex = 0, controller: Controller = ..., changes: collections.abc.Sequence[tuple[typing.SupportsFloat | typing.SupportsIndex, LinkGraph]] = [], progress: typing.Any = None) -> dict:
    """
    Every collective of a run: job, start and end; what the controller did.
    """
def running_sequences(sequences: typing.SupportsFloat | typing.SupportsIndex, cache_bytes: typing.SupportsFloat | typing.SupportsIndex, spared_bytes: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Running sequences that fit where a part of the cache is given to others.
    """
def sampling_rounds(sampling: DynamicSampling) -> float:
    """
    Rounds of generation until enough prompts are accepted.
    """
def scaling_efficiency(tokens_per_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], accelerators: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], reference_tokens_per_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], reference_accelerators: typing.Annotated[numpy.typing.ArrayLike, numpy.float64]) -> typing.Any:
    """
    Throughput of an accelerator over that at the reference size; arguments broadcast.
    """
def scaling_point(tables: Tables, strategy: Strategy, estimate: Estimate) -> ScalingPoint:
    """
    What an estimate says per accelerator, joule and dollar.
    """
def schedule_requests(limits: SchedulerLimits, arrival_step: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], input_tokens: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], output_tokens: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], names: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64], name_ends: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], name_tokens: typing.SupportsInt | typing.SupportsIndex) -> tuple:
    """
    Tables of steps and of requests, the clock counting steps.
    """
def score(estimate: Estimate, objective: collections.abc.Sequence[tuple[str, typing.SupportsFloat | typing.SupportsIndex]]) -> float:
    """
    What a search minimises.
    """
def search_groups(tables: GroupTables, space: GroupSpace, objective: collections.abc.Sequence[tuple[str, typing.SupportsFloat | typing.SupportsIndex]], constraints: collections.abc.Sequence[tuple[str, str, typing.SupportsFloat | typing.SupportsIndex, str | None]], top: typing.SupportsInt | typing.SupportsIndex, too_big: bool, threads: typing.SupportsInt | typing.SupportsIndex, progress: typing.Any) -> dict:
    """
    Best strategies of a space.
    """
def search_pools(model: LayeredModel, cluster: Cluster, engine: Engine, kernels: ServingKernels, mix: RequestMix, imbalance: typing.SupportsFloat | typing.SupportsIndex, expert_pool: ExpertPool | None, expert_price: typing.SupportsFloat | typing.SupportsIndex, layouts: collections.abc.Sequence[ServingLayout], per_octave: typing.SupportsInt | typing.SupportsIndex, tpot_s: typing.SupportsFloat | typing.SupportsIndex, top: typing.SupportsInt | typing.SupportsIndex, threads: typing.SupportsInt | typing.SupportsIndex) -> tuple:
    """
    Best plans with experts on a pool of their own, plans tried and feasible.
    """
def search_serving(model: LayeredModel, cluster: Cluster, engine: Engine, kernels: ServingKernels, mix: RequestMix, imbalance: typing.SupportsFloat | typing.SupportsIndex, draft: Draft, layouts: collections.abc.Sequence[ServingLayout], max_batched_tokens: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex], per_octave: typing.SupportsInt | typing.SupportsIndex, goal: str, ttft_s: typing.SupportsFloat | typing.SupportsIndex, tpot_s: typing.SupportsFloat | typing.SupportsIndex, requests_per_s: typing.SupportsFloat | typing.SupportsIndex, top: typing.SupportsInt | typing.SupportsIndex, threads: typing.SupportsInt | typing.SupportsIndex) -> tuple:
    """
    Best plans, the front of throughput and time between tokens, plans tried and feasible.
    """
def sequence_lengths(prompt_tokens: typing.SupportsFloat | typing.SupportsIndex, answers: typing.Annotated[numpy.typing.ArrayLike, numpy.float64]) -> tuple[float, float]:
    """
    Mean length of whole sequences, and that of equal ones of the same attention.
    """
def serving_layouts(model: LayeredModel, cluster: Cluster, max_accelerators: typing.SupportsInt | typing.SupportsIndex) -> list[ServingLayout]:
    """
    Legal layouts of an instance that fits into a cluster and a number of accelerators.
    """
def serving_power_w(serving: ServingPower, limit_w: typing.SupportsFloat | typing.SupportsIndex, load: DecodeLoad) -> float:
    """
    Mean watts of one accelerator that decodes.
    """
def shares_under_repair(job: FailingJob, pool: SparePool) -> list[float]:
    """
    Share of the time with 0, 1, ... nodes under repair.
    """
def simulate_best(tables: Tables, strategies: collections.abc.Sequence[Strategy], objective: collections.abc.Sequence[tuple[str, typing.SupportsFloat | typing.SupportsIndex]]) -> list:
    """
    Simulated step time, None where it was not simulated, and rank of strategies.
    """
def simulate_fleet(instances: collections.abc.Sequence[Instance], mixes: collections.abc.Sequence[RequestMix], counts: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], arrival_s: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], input_tokens: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], output_tokens: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], *, session: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], block_offsets: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], block_ids: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64], block_tokens: typing.SupportsFloat | typing.SupportsIndex, policy: RouterPolicy, seed: typing.SupportsInt | typing.SupportsIndex, store_tokens: typing.SupportsFloat | typing.SupportsIndex, autoscaler: Autoscaler | None = None, tiers: collections.abc.Sequence[CacheTier], priority: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], failures: Failures, outages: collections.abc.Sequence[Outage], shedding: Shedding | None = None, progress: typing.Any = None) -> tuple:
    """
    Per request: started, first token, finished, preemptions, refused, cached tokens, replica; totals of each replica and of all, events of the autoscaler; per request why it was refused (1 too long, 2 shed, 3 lost), the deepest tier it loaded from and retries, or nothing where none of these can be; totals of each tier, failures of replicas.
    """
def simulate_runs(job: FailingJob, plan: SimulationPlan) -> dict:
    """
    Columns of independent simulated runs.
    """
def slowest_fabric(a: Fabric, b: Fabric) -> Fabric:
    """
    The worse of each property of two networks.
    """
def spared_memory_bytes(usual_share: typing.SupportsFloat | typing.SupportsIndex, share: typing.SupportsFloat | typing.SupportsIndex, capacity_bytes: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Memory that the engine would take and its share leaves to others.
    """
def staffed_fraction(job: FailingJob, pool: SparePool) -> float:
    """
    Replicas that have all of their nodes, over all, in the mean.
    """
def startup_s(start: StartUp, weight_bytes: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Time until a replica takes requests.
    
    Examples
    --------
    >>> startup_s(StartUp(schedule_s=10, read_bytes_per_s=5e9, warm_up_s=30), 700e9)
    180.0
    """
def step_messages(tables: Tables, strategy: Strategy) -> list:
    """
    Every collective and transfer of a step, by pipeline stage.
    """
def step_under_cap(power: PowerPhases, clock: ClockPower, phases: StepPhases, cap_w: typing.SupportsFloat | typing.SupportsIndex) -> CappedStep:
    """
    The step under a power limit of each accelerator, in watts.
    """
def strategy_flows(tables: Tables, strategy: Strategy, rails: bool) -> dict:
    """
    Flows between domains, one row per pair of ranks and period.
    """
def streaming_time_s(accelerator: Accelerator, kernel: StreamingKernel, rows: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], columns: typing.Annotated[numpy.typing.ArrayLike, numpy.float64], value_bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.float64]) -> numpy.typing.NDArray[numpy.float64]:
    """
    Seconds of one operation over matrices, one per row.
    """
def sustained_rollout_s(answers: typing.SupportsFloat | typing.SupportsIndex, replicas: typing.SupportsFloat | typing.SupportsIndex, answers_per_s: typing.SupportsFloat | typing.SupportsIndex, accepted_fraction: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Seconds of answers of replicas that run as full as they can.
    """
def sweep(tables: Tables, space: Enumeration, first: typing.SupportsInt | typing.SupportsIndex, last: typing.SupportsInt | typing.SupportsIndex, wanted: collections.abc.Sequence[str] | None, threads: typing.SupportsInt | typing.SupportsIndex, progress: typing.Any) -> tuple:
    """
    Columns of the rows [first, last): of the strategies, of the estimates.
    """
def sweep_groups(tables: GroupTables, space: GroupSpace, wanted: collections.abc.Sequence[str] | None, threads: typing.SupportsInt | typing.SupportsIndex, progress: typing.Any) -> tuple:
    """
    Columns of the estimates; meshes by slot, their names, micro-batches and knobs.
    """
def switch_time_s(parameters: typing.SupportsFloat | typing.SupportsIndex, pool: Cluster, costs: SwitchCosts) -> float:
    """
    Seconds for states to the host and back, and an engine that wakes.
    """
def teacher_swap_time_s(teacher: Estimate, student: Estimate, states_away: bool, pool: Cluster, place: str) -> float:
    """
    Seconds over the host link so that a teacher takes a turn.
    """
def teaching_memory_bytes(teacher: Estimate, student: Estimate, place: str) -> float:
    """
    Memory of an accelerator while a teacher scores.
    """
def textbook_collective_s(*, algorithm: str, size_bytes: typing.SupportsFloat | typing.SupportsIndex, ranks: typing.SupportsInt | typing.SupportsIndex, latency_s: typing.SupportsFloat | typing.SupportsIndex, bandwidth_bytes_per_s: typing.SupportsFloat | typing.SupportsIndex, groups: typing.SupportsInt | typing.SupportsIndex = 1) -> float:
    """
    Seconds of a textbook algorithm where every message costs latency + size / bandwidth.
    """
def time_shifts(graph: LinkGraph, flows: Flows, options: RouteOptions, schedules: collections.abc.Sequence[JobSchedule], finest: typing.SupportsInt | typing.SupportsIndex) -> dict:
    """
    When periodic jobs should communicate.
    """
def timeline(tables: Tables, strategy: Strategy, options: TimelineOptions, slowdown: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex]) -> Timeline:
    """
    Simulates one step of a strategy that can run.
    """
def token_embedding_group(name: str, vocab: typing.SupportsInt | typing.SupportsIndex, hidden: typing.SupportsInt | typing.SupportsIndex, positions: typing.SupportsInt | typing.SupportsIndex, tokens: typing.SupportsFloat | typing.SupportsIndex) -> LayerGroup:
    ...
def tokens_in(time_s: typing.SupportsFloat | typing.SupportsIndex, tokens_per_s: typing.SupportsFloat | typing.SupportsIndex, ettr_fraction: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Tokens of a time.
    """
def tokens_per_step(mix: RequestMix) -> float:
    """
    Tokens a sequence gains per step, accepted draft tokens included.
    """
def training_time_s(tokens: typing.SupportsFloat | typing.SupportsIndex, tokens_per_s: typing.SupportsFloat | typing.SupportsIndex, ettr_fraction: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Seconds to train on this number of tokens.
    """
def transformer_group(name: str, layers: typing.SupportsInt | typing.SupportsIndex, hidden: typing.SupportsInt | typing.SupportsIndex, heads: typing.SupportsInt | typing.SupportsIndex, kv_heads: typing.SupportsInt | typing.SupportsIndex, head_dim: typing.SupportsInt | typing.SupportsIndex, v_head_dim: typing.SupportsInt | typing.SupportsIndex, q_lora_rank: typing.SupportsInt | typing.SupportsIndex, kv_lora_rank: typing.SupportsInt | typing.SupportsIndex, rope_head_dim: typing.SupportsInt | typing.SupportsIndex, ffn: typing.SupportsInt | typing.SupportsIndex, gated: bool, causal: bool, rotary: bool, bias: bool, norms_per_layer: typing.SupportsInt | typing.SupportsIndex, experts: typing.SupportsInt | typing.SupportsIndex, experts_per_token: typing.SupportsInt | typing.SupportsIndex, shared_ffn: typing.SupportsInt | typing.SupportsIndex, modulation: typing.SupportsInt | typing.SupportsIndex, modulation_vectors: typing.SupportsInt | typing.SupportsIndex, modalities: typing.SupportsInt | typing.SupportsIndex, qk_norm: bool, parallel: bool, linear: bool, depthwise: typing.SupportsInt | typing.SupportsIndex, context_tokens: typing.SupportsFloat | typing.SupportsIndex, context_width: typing.SupportsInt | typing.SupportsIndex, window: typing.SupportsInt | typing.SupportsIndex, tokens: typing.SupportsFloat | typing.SupportsIndex) -> LayerGroup:
    ...
def tree_acceptance(mix: RequestMix, depth: typing.SupportsInt | typing.SupportsIndex, rank: typing.SupportsInt | typing.SupportsIndex) -> float:
    """
    Probability that the rank-th best candidate of a depth is accepted where its parent was.
    """
def trend_cache_bytes(active_parameters: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Usual keys and values of one token, of models of that size.
    """
def tuning_phases(passes: TuningPasses) -> TuningPhases:
    """
    The phases of a step.
    """
def tuning_starts_s(phases: TuningPhases, teacher_apart: bool) -> numpy.typing.NDArray[numpy.float64]:
    """
    Seconds from the start of a step to that of each of its phases.
    """
def tuning_step_time_s(phases: TuningPhases, teacher_apart: bool) -> float:
    """
    Seconds of a whole step.
    """
def two_level_ettr(local: FailingJob, local_interval_s: typing.SupportsFloat | typing.SupportsIndex, remote: FailingJob, remote_interval_s: typing.SupportsFloat | typing.SupportsIndex, beyond_fraction: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Productive share with frequent checkpoints on nodes and seldom ones in storage.
    """
def variables() -> str:
    """
    Variables a relation may name.
    """
def verified_drafts(mix: RequestMix) -> float:
    """
    Draft tokens of a sequence that a step verifies.
    """
def waiting(job: FailingJob, repeated_s: typing.SupportsFloat | typing.SupportsIndex, reload_s: typing.SupportsFloat | typing.SupportsIndex) -> Recovery:
    """
    The job waits for the repair and starts again.
    """
def weight_set(model: LayeredModel, precision: str) -> WeightSet:
    """
    What of a model is moved to every replica.
    """
def weight_versions(stages: typing.SupportsInt | typing.SupportsIndex, stage: typing.SupportsInt | typing.SupportsIndex, *, double_buffered: bool = False) -> int:
    """
    Versions of its weights that a stage of an asynchronous pipeline keeps.
    """
def weights_bytes_per_s(reach: TierReach) -> float:
    """
    Bandwidth at which all ranks of a replica read their weights.
    
    Examples
    --------
    >>> weights_bytes_per_s(TierReach(ranks=16, node_accelerators=8, node_read_bytes_per_s=5e9))
    10000000000.0
    """
def why_no_answers(model: LayeredModel) -> str:
    """
    Why a model serves no answers, and what would; empty for one that does.
    """
def without_replicas(rate_fraction: typing.SupportsFloat | typing.SupportsIndex, stall_s: typing.SupportsFloat | typing.SupportsIndex, step_s: typing.SupportsFloat | typing.SupportsIndex) -> Recovery:
    """
    Replicas that kept the state go on.
    """
def work_done_s(way: Recovery, repair_s: typing.SupportsFloat | typing.SupportsIndex, time_s: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Work done so long after the loss, in seconds of the job as it was.
    """
def work_kernel_time_s(kernel: WorkKernel, l2_bytes: typing.SupportsFloat | typing.SupportsIndex, work: typing.Annotated[numpy.typing.ArrayLike, numpy.float64]) -> numpy.typing.NDArray[numpy.float64]:
    """
    Seconds of calls of a kernel, one per row of `kernel_work`.
    """
def work_per_paid_node(share: typing.SupportsFloat | typing.SupportsIndex, nodes: typing.SupportsFloat | typing.SupportsIndex, spares: typing.SupportsFloat | typing.SupportsIndex, spare_price: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Work per hour paid for, spares included.
    """
def young_interval_s(write_s: typing.SupportsFloat | typing.SupportsIndex, mttf_s: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Young's interval between checkpoints.
    """
ACTIVITIES: list = ['forward', 'recompute', 'backward', 'input_gradient', 'weight_gradient', 'tensor_parallel', 'context_parallel', 'expert_parallel', 'gather_parameters', 'reduce_gradients', 'send_activations', 'receive_activations', 'send_gradients', 'receive_gradients', 'offload', 'decode_gradients', 'optimizer', 'optimizer_transfer', 'overhead', 'wait']
MAX_FLOW_SIZES: int = 8
MAX_LINK_UNITS: int = 64
STREAMS: list = ['compute', 'tp', 'cp', 'ep', 'dp', 'send_next', 'send_previous', 'receive_previous', 'receive_next', 'host']
__version__: str = '0.2.0'
