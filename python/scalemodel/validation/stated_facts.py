"""Published training runs: facts of a stack that a run states, or its recipe for it."""

from __future__ import annotations

import re

from scalemodel import resolve
from scalemodel.resolve import recipes
from scalemodel.resolve.stacks import eager_facts
from scalemodel.validation.recomputation import named_modules, stated
from scalemodel.validation.rows import Row, states

#: Facts of a stack that the texts of a row may state: pattern, field, value, and whether a text
#: that denies the pattern says the opposite: graphs need not be of full iterations.
_STATED_FACTS: tuple[tuple[str, str, bool, bool], ...] = (
    (r"deep[-_ ]?ep|hybrid[-_ ]?ep|fused dispatch", "deduplicated_dispatch", True, True),
    (r"deep[-_ ]?ep|hybrid[-_ ]?ep|fused dispatch", "deduplicated_between", True, True),
    (r"dispatcher\W*all[-_ ]?to[-_ ]?all\b", "deduplicated_dispatch", False, False),
    (r"dispatcher\W*all[-_ ]?to[-_ ]?all\b", "deduplicated_between", False, False),
    (r"\ba2a_overlap\b", "overlap_ep_between", True, True),
    (r"grouped[-_ ]?(gemm|mm|mlp)", "grouped_launch", True, True),
    (r"grouped[-_ ]?(gemm|mm)\s*=\s*(false|no)\b", "sequential_experts", True, False),
    (r"\bdropless", "drops_tokens", False, True),
    (r"token[-_ ]?drop", "drops_tokens", True, True),
    (r"full[-_ ]iteration", "grouped_launch", True, False),
    (r"(implementation: ?|cuda_graph_impl=)transformer_engine", "grouped_launch", False, False),
    (r"(implementation: ?|cuda_graph_impl=)transformer_engine", "fused_experts", False, False),
    (r"\bdeterministic\b", "deterministic", True, True),
    (r"cuda[-_ ]?graph", "cuda_graphs", True, True),
    (r"full[-_ ]iteration", "cuda_graphs", True, False),
    (r"\bautocast\b", "autocast", True, True),
    (r"\bfp8_dot_product_attention\b", "fp8_attention", True, True),
    (r"\bdropout\s*=\s*0?\.0*[1-9]", "dropout", True, False),
    (r"(?:fp|float)8[^;]*\brow[-_ ]?wise", "row_scales", True, True),
)


#: Parts of a layer by a word of the scope of its graphs.
_SCOPES = (
    ("graphed_attention", r"\battn\b"),
    ("graphed_scans", r"\bmamba\b"),
    ("graphed_routing", r"\bmoe_router\b"),
)


def _scope(text: str) -> dict[str, object]:
    """What of a layer graphs hold, where a text lists it."""
    listed = re.search(r"(?:scopes?\s*[=:]|graphs? te\s)\s*([^;}]*)", text)
    if listed is None:
        return {}
    return {field: bool(re.search(word, listed[1])) for field, word in _SCOPES}


def facts(row: Row, recipe: recipes.Recipe, stack: str) -> dict[str, object]:
    """What the run says of its software, and what its recipe says where the run is silent.

    A stack without fused activations is one that nothing compiles: it says itself what it costs.
    """
    found = dict(recipe.stack)
    eager = states(row.text("other_flags").lower(), r"\beager\b")
    if eager and resolve.stack(stack).fused_activation:
        found |= eager_facts()
    texts = (row.text("other_flags"), row.text("overlap"), row.text("precision"))
    text = "; ".join(texts).lower()
    if modules := named_modules(stated(row)):
        found["selective_modules"] = modules
    for pattern, field, value, reversible in _STATED_FACTS:
        said = states(text, pattern)
        if said or (said is False and reversible):
            found[field] = value == said
    return found | _scope(text)
