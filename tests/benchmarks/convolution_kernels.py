"""Times convolutions of U-Nets on one accelerator, and compares them with the engine's.

    python tests/benchmarks/convolution_kernels.py measure convolutions.csv
    python tests/benchmarks/convolution_kernels.py compare convolutions.csv [ACCELERATOR]

Measuring needs torch alone, comparing the package alone. No constant was fitted to these kernels:
the engine takes them for GEMMs that read their input once. One H100, torch 2.11.0, 2026-11-27, the
20 shapes of 16 and 32 images with 3 x 3 kernels and more than four channels: forward 7 % in the
mean (bias -4 %), backward 8 % (-6 %).
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Callable

BATCHES = (4, 16, 32)
#: Channels in and out, width of the kernel, side of the map.
SHAPES = (
    (4, 320, 3, 64),
    (320, 320, 3, 64),
    (960, 320, 3, 64),
    (640, 640, 3, 32),
    (1920, 640, 3, 32),
    (1280, 1280, 3, 16),
    (2560, 1280, 3, 16),
    (2560, 1280, 3, 8),
    (320, 320, 1, 64),
    (512, 512, 3, 128),
    (256, 256, 3, 256),
    (128, 128, 3, 512),
)
COLUMNS = ("batch", "channels_in", "channels_out", "kernel", "side", "forward_us", "backward_us")


def measure(path: str) -> None:
    """Write the times of every shape, channels last in BF16, libraries' search on."""
    import torch
    from torch.nn.functional import conv2d

    torch.backends.cudnn.benchmark = True

    def timed_us(call: Callable[[], object], repeats: int = 20) -> float:
        for _ in range(5):
            call()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        torch.cuda.synchronize()
        return 1e3 * start.elapsed_time(end) / repeats

    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for batch in BATCHES:
            for channels_in, channels_out, kernel, side in SHAPES:
                x, w = (
                    torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
                    .to(memory_format=torch.channels_last)
                    .requires_grad_()
                    for shape in (
                        (batch, channels_in, side, side),
                        (channels_out, channels_in, kernel, kernel),
                    )
                )
                y = conv2d(x, w, padding=kernel // 2)
                gradient = torch.randn_like(y)
                with torch.no_grad():
                    forward = timed_us(lambda: conv2d(x, w, padding=kernel // 2))  # noqa: B023
                backward = timed_us(
                    lambda: torch.autograd.grad(y, (x, w), gradient, retain_graph=True)  # noqa: B023
                )
                writer.writerow((batch, channels_in, channels_out, kernel, side, forward, backward))


def compare(path: str, accelerator: str = "h100_sxm_80") -> None:
    """Print predicted over measured times, shape by shape, and their mean."""
    import scalemodel as sm
    from scalemodel import resolve

    kernels_alone = resolve.stack("plain").replace(
        gemm_efficiency=1.0, memory_efficiency=1.0, host_launch_s=0.0, step_overhead_s=0.0
    )
    cluster = sm.cluster({"accelerator": accelerator}, accelerators=1)
    plan = sm.GroupStrategy("ddp")
    errors: dict[str, list[float]] = {"forward": [], "backward": []}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            batch, channels_in, channels_out, kernel, side = (int(row[key]) for key in COLUMNS[:5])
            layer = sm.Convolution(
                convolutions=((channels_in, channels_out, kernel),), tokens=side * side
            )
            task = sm.Training(global_batch=batch, sequence=1)
            model = sm.compose("one", groups=[layer])
            step = sm.estimate(model, cluster, task, plan, stack=kernels_alone)
            times = {"forward": step.forward_s, "backward": step.compute_s - step.forward_s}
            off = {key: 1e6 * s / float(row[f"{key}_us"]) - 1 for key, s in times.items()}
            shape = f"{batch:>3} x {channels_in:>4} -> {channels_out:>4}, {kernel}, {side}"
            print(shape, *(f"{key} {100 * error:+.0f} %" for key, error in off.items()))
            if batch >= 16 and kernel == 3 and channels_in > 4:
                for key, error in off.items():
                    errors[key].append(error)
    for key, found in errors.items():
        mean = statistics.fmean(map(abs, found))
        print(f"{key}: {len(found)}, mean {mean:.1%}, bias {statistics.median(found):+.1%}")


if __name__ == "__main__":
    {"measure": measure, "compare": compare}[sys.argv[1]](*sys.argv[2:])
