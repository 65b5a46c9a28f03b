"""Commands and objects of Kubernetes that start a chosen serving plan."""

from __future__ import annotations

from scalemodel.serving.launch.commands import family_of, launch_command, launch_options
from scalemodel.serving.launch.deploy import ServingLaunch, launch_serving

__all__ = ["ServingLaunch", "family_of", "launch_command", "launch_options", "launch_serving"]
