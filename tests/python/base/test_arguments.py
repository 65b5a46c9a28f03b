"""Whatever a verb or what it takes is called with: an argument that does not exist is told so."""

from __future__ import annotations

import inspect

import pytest

import scalemodel as sm

VERBS = sorted(
    name for name in dir(sm) if not name.startswith("_") and inspect.isfunction(getattr(sm, name))
)
#: What users make themselves, to ask with.
ASKED_WITH = (
    "BatchInference",
    "Convolution",
    "Distillation",
    "EmbeddingTables",
    "FineTuning",
    "Generation",
    "GroupSpace",
    "GroupStrategy",
    "Head",
    "Inference",
    "Interaction",
    "Mlp",
    "PatchEmbedding",
    "Preference",
    "PromptRequest",
    "RecordedLayers",
    "Rl",
    "SchedulerLimits",
    "ServingLayout",
    "Space",
    "StepTimeMonitor",
    "Strategy",
    "TokenEmbedding",
    "Training",
    "Transformer",
)


@pytest.mark.parametrize("name", [*VERBS, *ASKED_WITH])
def test_what_does_not_exist_is_no_argument(name: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=name if name in VERBS else "no_such"):
        getattr(sm, name)(no_such=1)


@pytest.mark.parametrize("name", VERBS)
def test_more_than_a_verb_takes_is_too_much(name: str) -> None:
    with pytest.raises(sm.ScaleModelError):
        getattr(sm, name)(*(object() for _ in range(50)))
