"""How to start a job in a framework, as a script or as a job of a cluster's scheduler."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Final

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.safe_text import plain
from scalemodel.interop.settings.schedulers import job_name, jobset, pytorchjob, slurm

#: The words that a shell fills in, from the variables that cluster schedulers set.
RENDEZVOUS: Final = "--rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT"
MAIN_ADDRESS: Final = "--main_process_ip=$MASTER_ADDR"
MAIN_PORT: Final = "--main_process_port=$MASTER_PORT"
_FILLED_IN: Final = (RENDEZVOUS, MAIN_ADDRESS, MAIN_PORT)
#: The place of the settings of the run in a command.
RUN_SETTINGS: Final = '"$@"'
#: Line that ends a file within a script.
_END: Final = "END"
_BEGIN_RUN: Final = "# ---- Settings of the run: none was predicted; set every one for yours. ----"
_END_RUN: Final = "# ---- End of the settings of the run. ----"


@dataclass(frozen=True)
class Launch:
    """How to start an estimated strategy in a framework. Made by `launch`.

    Attributes
    ----------
    framework : str
    command : tuple of str
        Words of the command line, for one node; the same on every node.
    environment : dict
        Variables to set.
    files : dict
        Text of configuration files by name.
    notes : tuple of str
        Where the job differs from the prediction, what a step then takes, and what the framework
        refuses.
    run : tuple of str
        Further words of the command: iterations, data and learning rate, which a prediction does
        not know. They hold placeholders to be replaced.
    scheduler : {"", "slurm", "jobset", "pytorchjob"}
        What `script` is written for.
    name : str
        Of the job.
    nodes, per_node : int
        Nodes of the job, and accelerators of each.
    predicted : str
        The prediction in one line: step time, memory and software stack.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
    >>> job = sm.launch(est, "megatron")
    >>> job.framework, "--tensor-model-parallel-size" in job.command
    ('megatron', True)
    """

    framework: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(hash=False)
    files: dict[str, str] = field(hash=False)
    notes: tuple[str, ...]
    run: tuple[str, ...] = ()
    scheduler: str = ""
    name: str = "training"
    nodes: int = 1
    per_node: int = 1
    predicted: str = ""

    def __str__(self) -> str:
        return self.script()

    def script(self) -> str:
        r"""The whole as a shell script, or as what the scheduler takes.

        Examples
        --------
        >>> Launch("megatron", ("torchrun", "train.py", "--bf16"), {"A": "1"}, {}, ()).script()
        'export A=1\ntorchrun train.py \\\n  --bf16\n'
        """
        name = job_name(self.name)
        if self.scheduler == "slurm":
            return slurm(
                self._head(), self._environment(), self._words(), name, self.nodes, self.per_node
            )
        shell = self._head() + self._environment() + self._words() + "\n"
        if self.scheduler == "jobset":
            return jobset(shell, name, self.nodes, self.per_node)
        if self.scheduler == "pytorchjob":
            return pytorchjob(shell, name, self.nodes, self.per_node)
        return shell

    def _head(self) -> str:
        """Notes, files and the settings of the run."""
        told = [self.predicted] if self.predicted else []
        lines = [f"# {plain(note)}" for note in [*told, *self.notes]]
        for name, text in self.files.items():
            lines += [f"cat > {shlex.quote(name)} <<'{_END}'", _document(text), _END]
        if self.run:
            lines += [_BEGIN_RUN, "set -- \\", f"  {_options(self.run)}", _END_RUN]
        return "".join(f"{line}\n" for line in lines)

    def _environment(self) -> str:
        named = self.environment.items()
        return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in named)

    def _words(self) -> str:
        return _options(self.command) + (f" \\\n  {RUN_SETTINGS}" if self.run else "")


def _options(command: tuple[str, ...]) -> str:
    """Words as a shell takes them, every option on a line of its own."""
    words: list[str] = []
    for word in command:
        quoted = word if word in _FILLED_IN else shlex.quote(word)
        options = word.startswith("--") or (words and _is_override(word))
        words.append(f"\\\n  {quoted}" if words and options else quoted)
    return " ".join(words)


def _is_override(word: str) -> bool:
    """Whether a word sets a value by its path, ``model.num_layers=8``."""
    path, equals, _ = word.partition("=")
    return bool(equals) and "." in path and path.replace(".", "").replace("_", "").isalnum()


def _document(text: str) -> str:
    """The lines of a file as a shell copies them, up to the line that ends them."""
    lines = text.rstrip("\n").split("\n")
    if _END in lines:
        raise ScaleModelError(f"files: a line is {_END!r}: would end the file within a script")
    return "\n".join(lines)
