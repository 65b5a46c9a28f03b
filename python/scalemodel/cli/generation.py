"""``scalemodel generate``: images or videos made on request."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel.cli.options import add_field, add_formats, cluster_of, given, number, whole
from scalemodel.cli.output import INFEASIBLE, OK, print_csv, print_json

if TYPE_CHECKING:
    from scalemodel.serving import GenerationServing

#: Degrees of an instance that a generator can have.
_DEGREES = ("tp", "cp", "pp", "dp")


def _degrees() -> list[Any]:
    """Rows of a layout's field table."""
    return [row for row in _core.ServingLayout.fields() if row["name"] in _DEGREES]


def add_generate(commands: Any) -> None:
    """The command that predicts what a generator of images or videos delivers."""
    parser = commands.add_parser(
        "generate",
        help="predict images or videos made on request",
        description="Predict the seconds of an image or a video, and how many a cluster makes.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_generate)
    parser.add_argument(
        "model", metavar="MODEL", help="generator of the catalogue, such as flux_1_dev"
    )
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument("--cluster", required=True, metavar="NAME|TOML", help="cluster")
    size = cluster.add_mutually_exclusive_group()
    size.add_argument("--nodes", type=whole, metavar="N", help="nodes")
    size.add_argument("--accelerators", type=whole, metavar="N", help="accelerators")
    cluster.add_argument("--stack", default="xdit", metavar="NAME", help="software stack")
    task = parser.add_argument_group("samples")
    task.add_argument("--height", type=whole, required=True, metavar="N", help="pixels")
    task.add_argument("--width", type=whole, required=True, metavar="N", help="pixels")
    task.add_argument(
        "--frames", type=whole, default=1, metavar="N", help="of a video (default 1: an image)"
    )
    task.add_argument(
        "--steps",
        type=whole,
        metavar="N",
        help="denoising steps (default: of the model's pipeline)",
    )
    task.add_argument(
        "--guidance",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="classifier-free guidance, two passes a step (default: as the model's pipeline)",
    )
    task.add_argument("--precision", default="bf16", metavar="NAME", help="of the products")
    load = task.add_mutually_exclusive_group()
    load.add_argument("--requests-per-s", type=number, metavar="X", help="arriving at random")
    load.add_argument("--concurrency", type=whole, metavar="N", help="samples made at once")
    plan = parser.add_argument_group("plan")
    for row in _degrees():
        add_field(plan, row)
    plan.add_argument(
        "--replicas", type=whole, metavar="N", help="instances (default: all that fit)"
    )
    add_formats(parser)


def _text(found: GenerationServing) -> str:
    layout = " ".join(f"{name}{getattr(found.layout, name)}" for name in _DEGREES)
    head = f"{found.model.label} · {found.cluster} · {layout} · {found.stack}"
    if not found.fits:
        return f"{head}\nverdict {found.verdict}\n{found.why_not()}"
    gib = 2**30
    late = "it never settles" if found.saturated else f"{found.latency_s:.3g} s"
    lines = [
        head,
        f"{found.samples_per_s:.4g} samples/s on {found.accelerators} accelerators   "
        f"one takes {late}   {found.batch:.3g} at once",
        f"{found.steps} steps of {1e3 * found.denoising_step_s:.1f} ms   "
        f"text encoders {1e3 * found.text_encoders_s:.1f} ms   "
        f"decoder {1e3 * found.decoder_s:.1f} ms",
        f"memory {found.memory_bytes / gib:.1f} GiB, text encoders "
        f"{found.memory_text_encoders_bytes / gib:.1f}",
    ]
    if found.usd_per_thousand_samples:
        lines.append(f"cost {found.usd_per_thousand_samples:.2f} USD per thousand")
    if found.note:
        lines.append(found.note)
    return "\n".join(lines)


def _generate(options: argparse.Namespace) -> int:
    from scalemodel.serving import Generation, serve_generation

    layout = given(options, _degrees())
    found = serve_generation(
        options.model,
        cluster_of(options),
        Generation(
            height=options.height,
            width=options.width,
            frames=options.frames,
            steps=options.steps,
            guidance=options.guidance,
            precision=options.precision,
        ),
        _core.ServingLayout(**layout),
        concurrency=options.concurrency,
        requests_per_s=options.requests_per_s,
        replicas=options.replicas,
        stack=options.stack,
    )
    row: dict[str, Any] = {"model": found.model.name, "stack": found.stack, **found.to_dict()}
    if options.json:
        print_json(row)
    elif options.csv:
        print_csv(list(row), [list(row.values())])
    else:
        print(_text(found))
    return OK if found.fits else INFEASIBLE
