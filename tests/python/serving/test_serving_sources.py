"""Encoder-decoder models: a source is encoded once, its keys and values stay as many."""

from __future__ import annotations

import math
import warnings
from itertools import pairwise

import pytest

import scalemodel as sm
from scalemodel.base.errors import ScaleModelError

SOUND = sm.Inference(input_tokens=4, output_tokens=200)
TEXT = sm.Inference(input_tokens=1, output_tokens=100, source_tokens=512)
WHISPER, T5 = "whisper_large_v3", "flan_t5_xxl"
BLOCK = 16  # tokens of vLLM's


def served(model: str, task: sm.Inference, **more: object) -> sm.Serving:
    return sm.serve(model, "dgx_h100", task, replicas=1, **more)


def cross_bytes(model: str, source: int) -> float:
    """Keys and values of a source in every layer, in 16 bits and whole blocks."""
    shape = sm.model(model).shape
    whole = BLOCK * math.ceil(source / BLOCK)
    return 2 * 2 * shape.layers * shape.heads * shape.head_dim * whole


def own_bytes(model: str, tokens: float) -> float:
    shape = sm.model(model).shape
    whole = BLOCK * math.ceil(tokens / BLOCK)
    return 2 * 2 * shape.layers * shape.heads * shape.head_dim * whole


@pytest.mark.parametrize(
    ("model", "task", "source"), [(WHISPER, SOUND, 1500), (T5, TEXT, 512)], ids=[WHISPER, T5]
)
def test_the_cache_holds_a_source_once_whatever_the_answer_is_long(
    model: str, task: sm.Inference, source: int
) -> None:
    for tokens in (100, 200, 400):
        plan = served(model, task.replace(output_tokens=tokens))
        assert plan.instance is not None
        capacity = plan.instance.capacity(task.input_tokens, tokens)
        each = cross_bytes(model, source) + own_bytes(model, task.input_tokens + tokens)
        assert capacity.cached_sequences == math.floor(
            capacity.blocks * capacity.block_bytes / each + 1e-9
        )


def test_a_window_of_sound_has_as_many_positions_as_the_model_reads() -> None:
    assert served(WHISPER, SOUND).task.source_tokens == 1500
    same = served(WHISPER, SOUND.replace(source_tokens=1500))
    assert same.to_dict() == served(WHISPER, SOUND).to_dict()
    with pytest.raises(ScaleModelError, match="source_tokens=3000: must be 1500"):
        served(WHISPER, SOUND.replace(source_tokens=3000))


def test_longer_sources_take_longer_to_read_and_to_attend_to() -> None:
    plans = [
        served(T5, TEXT.replace(source_tokens=source), concurrency=8)
        for source in (64, 256, 1024, 4096)
    ]
    for shorter, longer in pairwise(plans):
        assert shorter.ttft_s < longer.ttft_s
        assert shorter.tpot_s < longer.tpot_s
        assert shorter.max_concurrency > longer.max_concurrency


def test_a_token_of_the_answer_costs_no_encoder() -> None:
    plan = served(T5, TEXT, concurrency=4)
    assert plan.encoder_s == 0
    assert plan.instance is not None
    alone = plan.instance.step(prompts=1, prompt_tokens=1, prompt_keys=1)
    encoding = plan.instance.step(prompts=1, prompt_tokens=1, prompt_keys=1, images=1)
    assert encoding.encoder_s > 0
    assert encoding.step_time_s == pytest.approx(alone.step_time_s + encoding.encoder_s, rel=1e-6)


def test_the_encoder_computes_what_its_parameters_ask_for() -> None:
    """A large batch of windows reaches most of the peak, and never more."""
    plan = served(WHISPER, SOUND)
    assert plan.instance is not None
    count = 64
    time_s = plan.instance.step(
        prompts=count, prompt_tokens=count, prompt_keys=1, images=count
    ).encoder_s
    shape = sm.model(WHISPER).shape
    h, f, n = shape.hidden, shape.ffn, 1500
    layers = shape.encoder_layers * (2 * n * (4 * h * h + 2 * h * f) + 4 * n * n * h)
    keys = shape.layers * 2 * n * 2 * h * h
    convolutions = 2 * n * (2 * 3 * 128 * h + 3 * h * h)
    floor_s = count * (layers + keys + convolutions) / 989e12
    assert floor_s < time_s < 4 * floor_s


@pytest.mark.parametrize(("model", "task"), [(WHISPER, SOUND), (T5, TEXT)], ids=[WHISPER, T5])
def test_the_stream_agrees_with_the_closed_form(model: str, task: sm.Inference) -> None:
    rate = 0.4 * served(model, task).requests_per_s
    plan = served(model, task, requests_per_s=rate)
    found = plan.simulate(requests=600, seed=3).summary()
    assert found["ttft_mean_s"] == pytest.approx(plan.ttft_s, rel=0.1)
    assert found["tpot_mean_s"] == pytest.approx(plan.tpot_s, rel=0.1)


def test_tensor_ranks_share_encoder_and_cross_attention() -> None:
    alone, two = (served(T5, TEXT, layout=sm.ServingLayout(tp=tp)) for tp in (1, 2))
    assert 0.49 * alone.memory_weights_bytes < two.memory_weights_bytes
    assert two.memory_weights_bytes < 0.52 * alone.memory_weights_bytes
    assert alone.memory_weights_bytes == pytest.approx(2 * sm.model(T5).parameters, rel=1e-3)


@pytest.mark.parametrize(
    ("model", "task", "says"),
    [
        ("llama3_8b", TEXT, "source_tokens=512: must be 0: the model has no encoder"),
        (T5, TEXT.replace(source_tokens=0), "source_tokens=0: must be those of a source"),
        (WHISPER, SOUND.replace(images=1), "images=1: must be 0: the model reads sources"),
    ],
)
def test_a_source_that_cannot_be_is_refused(model: str, task: sm.Inference, says: str) -> None:
    with pytest.raises(ScaleModelError, match=says):
        served(model, task)


def test_vllm_starts_whisper_and_no_t5() -> None:
    command = served(WHISPER, SOUND, concurrency=16).launch()
    assert command.startswith("vllm serve openai/whisper-large-v3 ")
    assert "--max-model-len 204" in command
    assert "--no-enable-chunked-prefill" in command
    assert """--limit-mm-per-prompt '{"audio": 1}'""" in command
    with pytest.raises(ScaleModelError, match="no command is known by which it starts flan_t5_xxl"):
        served(T5, TEXT).launch()
    with pytest.raises(ScaleModelError, match="tensorrt_llm: bart, mbart, mllama, t5, whisper"):
        sm.launch_serving(served(T5, TEXT))


def test_tensorrt_llm_starts_t5_with_a_cache_divided_between_source_and_answer() -> None:
    engine = "tensorrt_llm_pytorch_2026"
    layout = sm.ServingLayout(tp=2)
    plan = served(T5, TEXT, layout=layout, concurrency=16, engine=engine)
    command = plan.launch()
    assert command.startswith("trtllm-serve google/flan-t5-xxl --backend pytorch --tp_size 2")
    assert "--enable_chunked_prefill" not in command
    start = sm.launch_serving(plan)
    options = start.files["options.yaml"]
    share = 512 / (512 + 1 + 100)
    assert f"cross_kv_cache_fraction: {share:.4f}" in options
    assert "enable_block_reuse: false" in options
    assert "attn_backend: TRTLLM" in options
    assert any("PyTorch backend of TensorRT-LLM" in note for note in start.notes)
    with pytest.raises(ScaleModelError, match="pp=2: TensorRT-LLM runs a model with an encoder"):
        served(T5, TEXT, layout=sm.ServingLayout(pp=2), engine=engine).launch()


def test_an_encoder_alone_serves_no_answers() -> None:
    model = {
        "model_type": "bert",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "vocab_size": 100,
    }
    task = sm.Inference(input_tokens=100, output_tokens=1)
    with pytest.raises(ScaleModelError, match="generates nothing; `estimate` takes it"):
        sm.serve(sm.model(model), "dgx_h100", task)
    with pytest.raises(ScaleModelError, match="generates nothing; `estimate` takes it"):
        sm.plan_serving(sm.model(model), "dgx_h100", task, checked=False)


def test_what_generates_nothing_is_named_with_what_would_be_legal() -> None:
    task = sm.Inference(input_tokens=100, output_tokens=1)
    scores = sm.model("llama3_8b").with_scalar_head()
    with pytest.raises(ScaleModelError, match=r"model='llama3_8b'.*must have an LM head"):
        sm.serve(scores, "dgx_h100", task)
    with pytest.raises(ScaleModelError, match=r"model='bert_base_uncased'.*must be a decoder"):
        sm.estimate("bert_base_uncased", "dgx_h100", task)
    with pytest.raises(ScaleModelError, match=r"model='llama3_8b'.*must have an LM head"):
        sm.compose(scores)


def test_a_forward_pass_of_an_encoder_is_that_of_its_layer_groups() -> None:
    task = sm.BatchInference(global_batch=64, sequence=512)
    est = sm.estimate("bert_large_uncased", "dgx_h100", task)
    assert est == sm.estimate(sm.compose("bert_large_uncased"), "dgx_h100", task)
    step = sm.Training(**{name: getattr(task, name) for name in ("global_batch", "sequence")})
    assert est.step_time_s < 0.4 * sm.estimate("bert_large_uncased", "dgx_h100", step).step_time_s
    with pytest.raises(ScaleModelError, match="task: is a BatchInference"):
        sm.search("bert_large_uncased", "dgx_h100", task)


def test_configurations_of_encoder_decoder_models_are_read() -> None:
    whisper = {
        **{"model_type": "whisper", "d_model": 1280, "vocab_size": 51866, "num_mel_bins": 128},
        **{"encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120},
        **{"decoder_layers": 4, "decoder_attention_heads": 20, "decoder_ffn_dim": 5120},
        **{"max_source_positions": 1500, "max_target_positions": 448},
    }
    t5 = {
        **{"model_type": "t5", "d_model": 1024, "d_kv": 128, "d_ff": 65536, "num_heads": 128},
        **{"num_layers": 24, "vocab_size": 32128, "feed_forward_proj": "relu"},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        turbo, large = sm.model(whisper), sm.model(t5)
    assert turbo.shape == sm.model("whisper_large_v3_turbo").shape
    assert large.shape == sm.model("t5_11b").shape
    with pytest.warns(UserWarning, match="encoder_ffn_dim"):
        sm.model({**whisper, "encoder_ffn_dim": 4096})


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (WHISPER, 1_543_490_560),
        ("whisper_large_v3_turbo", 808_878_080),
        (T5, 11_135_332_352),
        ("t5_11b", 11_307_321_344),
    ],
)
def test_parameters_are_those_of_the_checkpoints(model: str, count: int) -> None:
    assert sm.model(model).parameters == pytest.approx(count, rel=2e-4)


def test_training_steps_encode_every_source_once() -> None:
    """Model flop of a step: 6 per parameter and token that passes it, attention beside."""
    tokens, source, batch = 128, 512, 256
    task = sm.Training(global_batch=batch, sequence=tokens, source_tokens=source)
    cluster = sm.cluster("dgx_h100", nodes=4)
    found = sm.estimate(T5, cluster, task, sm.Strategy(tp=4))
    assert found.verdict == "ok"
    shape = sm.model(T5).shape
    h, f, w = shape.hidden, shape.ffn, shape.heads * shape.head_dim
    own = shape.layers * (4 * h * w + 3 * h * f + 2 * h * w) + shape.vocab * h
    of_source = shape.layers * (4 * h * w + 3 * h * f) + shape.layers * 2 * h * w
    scores = shape.layers * 4 * w * (tokens**2 / 2 + tokens * source + source**2)
    flop = 3 * batch * (2 * tokens * own + 2 * source * of_source + scores)
    peak = cluster.accelerators * 989.4e12
    assert found.mfu_fraction * found.step_time_s * peak == pytest.approx(flop, rel=0.01)


def test_training_on_longer_sources_takes_longer_and_more_memory() -> None:
    cluster = sm.cluster("dgx_h100", nodes=4)
    found = [
        sm.estimate(
            T5,
            cluster,
            sm.Training(global_batch=256, sequence=128, source_tokens=source),
            sm.Strategy(tp=4),
        )
        for source in (128, 512, 2048)
    ]
    for shorter, longer in pairwise(found):
        assert shorter.step_time_s < longer.step_time_s
        assert shorter.memory_bytes < longer.memory_bytes


@pytest.mark.parametrize(
    ("model", "source", "says"),
    [
        (WHISPER, 100, "source_tokens=100: must be 1500"),
        ("llama3_8b", 100, "source_tokens=100: must be 0: the model has no encoder"),
    ],
)
def test_training_refuses_a_source_that_cannot_be(model: str, source: int, says: str) -> None:
    task = sm.Training(global_batch=64, sequence=128, source_tokens=source)
    with pytest.raises(ScaleModelError, match=says):
        sm.estimate(model, "dgx_h100", task, sm.Strategy())


def test_a_source_is_as_long_as_the_sequence_unless_a_task_says() -> None:
    silent = sm.Training(global_batch=64, sequence=256)
    for model, tokens in ((T5, 256), (WHISPER, 1500)):
        told = silent.replace(source_tokens=tokens)
        answers = [
            sm.estimate(model, "dgx_h100", task, sm.Strategy(tp=2)) for task in (silent, told)
        ]
        assert answers[0].step_time_s == answers[1].step_time_s


def test_an_encoder_is_no_layer_group() -> None:
    with pytest.raises(ScaleModelError, match="no chain of layer groups"):
        sm.compose(T5)
