"""The package in processes of its own: little memory, answers carried between them, forks."""

from __future__ import annotations

import multiprocessing
import resource
import subprocess
import sys
import textwrap

import pytest

import scalemodel as sm

GIB = 2**30
QUESTION = (
    "llama3_8b",
    sm.cluster("dgx_h100"),
    sm.Training(global_batch=64, sequence=8192),
)


def run(code: str, limit_bytes: int | None = None) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that runs `code` in at most so much address space."""

    def limit() -> None:
        if limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))

    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=limit,
        check=False,
    )


def test_import_is_small_and_silent() -> None:
    done = run("import scalemodel as sm; sm.Strategy(tp=2)", GIB)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_import_leaves_plots_tables_and_threads_alone() -> None:
    done = run(
        """
        import sys, threading
        import scalemodel
        heavy = {"matplotlib.pyplot", "pandas", "torch", "scipy"} & set(sys.modules)
        assert not heavy, heavy
        assert threading.active_count() == 1
        """
    )
    assert done.returncode == 0, done.stderr


def test_a_search_fits_into_a_small_process() -> None:
    done = run(
        """
        import scalemodel as sm
        best = sm.search("llama3_8b", sm.cluster("dgx_h100"),
                         sm.Training(global_batch=64, sequence=8192), threads=1)
        print(best[0].verdict)
        """,
        2 * GIB,
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_a_table_too_large_for_the_process_is_an_error_not_a_crash() -> None:
    done = run(
        """
        import resource
        import pandas
        import scalemodel as sm
        question = (sm.model("llama3_1_405b"), sm.cluster("dgx_h100", nodes=2048),
                    sm.Training(global_batch=4096, sequence=8192))
        pages = int(open("/proc/self/statm").read().split()[0])
        limit = pages * resource.getpagesize() + 64 * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            sm.sweep(*question, threads=1)
        except MemoryError:
            print("MemoryError")
        """
    )
    assert (done.returncode, done.stdout) == (0, "MemoryError\n"), done.stderr


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scalemodel", "list", "clusters"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "dgx_h100" in done.stdout


def answers(_: int = 0) -> tuple[sm.Estimate, sm.Ranking, sm.Timeline]:
    est = sm.estimate(*QUESTION, sm.Strategy(tp=2, pp=2))
    return est, sm.search(*QUESTION, sm.Space(cp=1), top=3, threads=2), est.timeline()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_answers_travel_between_processes(method: str) -> None:
    """Made elsewhere and brought here, after threads of this process have worked."""
    here = answers()
    with multiprocessing.get_context(method).Pool(2) as pool:
        for est, ranking, timeline in pool.map(answers, range(2)):
            assert est == here[0]
            assert ranking == here[1]
            assert timeline.step_time_s == here[2].step_time_s
