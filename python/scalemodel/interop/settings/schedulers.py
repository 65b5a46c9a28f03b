"""What cluster schedulers take: a batch script for Slurm, jobs for Kubernetes."""

from __future__ import annotations

import json
import re
from typing import Final

SCHEDULERS: Final = ("slurm", "jobset", "pytorchjob")
#: Port on which the processes of a job meet; any free one will do.
_PORT: Final = 29500
#: What only the owner of a cluster knows; the words say what belongs in their place.
_IMAGE: Final = "IMAGE-WITH-THE-FRAMEWORK"


def job_name(text: str) -> str:
    """A name that Kubernetes and Slurm take: lower case, digits and dashes.

    Examples
    --------
    >>> job_name("Llama 3 8B; rm"), job_name("")
    ('llama-3-8b-rm', 'training')
    """
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
    return plain if plain[:1].isalpha() else f"training-{plain}".rstrip("-")


def slurm(head: str, environment: str, command: str, name: str, nodes: int, per_node: int) -> str:
    """A script for ``sbatch``: one task per node, each of which starts the command.

    Examples
    --------
    >>> print(slurm("", "", "torchrun train.py", "job", 2, 8).splitlines()[2])
    #SBATCH --nodes=2
    """
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={name}",
        f"#SBATCH --nodes={nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={per_node}",
        "#SBATCH --exclusive",
        "#SBATCH --time=04:00:00  # set: the wall time of the job",
        "# Set account, partition and container for your cluster; files are written to the folder",
        "# that the job starts in, which all nodes must share.",
        "set -e",
    ]
    meeting = [
        'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        f"MASTER_PORT={_PORT}",
        "export MASTER_ADDR MASTER_PORT",
    ]
    return "\n".join([*lines, head + environment + "\n".join(meeting), f"srun {command}"]) + "\n"


def _block(text: str, indent: int) -> str:
    """A text as a value of YAML: as it is, or quoted where YAML would change it."""
    plain = all(line.isprintable() for line in text.split("\n"))
    if not plain or text[:1] in ("", " ", "\n"):
        return json.dumps(text)
    margin = " " * indent
    return "|\n" + "\n".join(
        margin + line if line else "" for line in text.rstrip("\n").split("\n")
    )


def _pod(script: str, per_node: int, indent: int, name: str, environment: str = "") -> str:
    margin = " " * indent
    text = f"""\
restartPolicy: Never
containers:
- name: {name}
  image: {_IMAGE}  # set: an image that holds the framework
  workingDir: /workspace  # set: where the framework's scripts lie
{environment}  resources:
    limits:
      nvidia.com/gpu: {per_node}
  volumeMounts:
  - name: shm
    mountPath: /dev/shm
  command: ["/bin/bash", "-c"]
  args:
  - """
    shown = "\n".join(margin + line if line else "" for line in text.split("\n"))
    return shown + _block(script, indent + 4)


def _volumes(indent: int) -> str:
    margin = " " * indent
    lines = ["volumes:", "- name: shm", "  emptyDir:", "    medium: Memory"]
    return "\n".join(margin + line for line in lines) + "\n"


def jobset(script: str, name: str, nodes: int, per_node: int) -> str:
    """A JobSet of one worker per node (kubernetes-sigs/jobset, v1alpha2).

    Examples
    --------
    >>> "parallelism: 4" in jobset("torchrun train.py", "job", 4, 8)
    True
    """
    environment = (
        f'  env:\n  - name: MASTER_ADDR\n    value: "{name}-workers-0-0.{name}"\n'
        f'  - name: MASTER_PORT\n    value: "{_PORT}"\n'
    )
    return f"""\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: {name}
spec:
  network:
    enableDNSHostnames: true
    publishNotReadyAddresses: true
  failurePolicy:
    maxRestarts: 0
  replicatedJobs:
  - name: workers
    replicas: 1
    template:
      spec:
        parallelism: {nodes}
        completions: {nodes}
        completionMode: Indexed
        backoffLimit: 0
        template:
          spec:
{_volumes(12)}{_pod(script, per_node, 12, "trainer", environment)}
"""


def pytorchjob(script: str, name: str, nodes: int, per_node: int) -> str:
    """A PyTorchJob of one pod per node (kubeflow/training-operator, v1); it sets MASTER_ADDR.

    Examples
    --------
    >>> "replicas: 3" in pytorchjob("torchrun train.py", "job", 4, 8)
    True
    """

    def replica(kind: str, count: int) -> str:
        return f"""\
    {kind}:
      replicas: {count}
      restartPolicy: Never
      template:
        spec:
{_volumes(10)}{_pod(script, per_node, 10, "pytorch")}
"""

    workers = replica("Worker", nodes - 1) if nodes > 1 else ""
    return f"""\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: {name}
spec:
  pytorchReplicaSpecs:
{replica("Master", 1)}{workers}"""
