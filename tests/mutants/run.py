"""Plants the defects of `mutants.toml`, one at a time, and sees that the named test finds each.

    python tests/mutants/run.py                        all of them
    python tests/mutants/run.py --sample 3 --seed 7    three drawn with that seed
    python tests/mutants/run.py daly_sign ll_cap       these
    python tests/mutants/run.py --find "*costs*" ll_cap    which C++ tests of such files fail then

A mutant is one wrong formula: in `file` the text `old`, which stands there exactly once, becomes
`new`. `killed_by` names the test that must fail then and pass otherwise: a C++ test case by its
name, or a test of pytest by its node. `units` (patterns of paths) says which sources that include a
changed header are compiled again where not all of them are needed. The source tree is never
touched. A changed C++ file lies in a directory that the compiler searches first; what includes it
is compiled once more and linked with the other objects of a build of the tree (`--build`, made
where there is none). A changed Python file lies in a package of links to all others.

Exits with 1 where fewer than `--least` of the mutants are killed, or where one no longer applies.
Mutants of Python need the package installed; `--cpp` leaves them out.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import importlib.machinery
import importlib.util
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
TARGET = "scalemodel_tests"
KILLED, SURVIVED, BROKEN = "killed", "SURVIVED", "DOES NOT APPLY"


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    killed_by: str
    why: str
    units: list[str] = dataclasses.field(default_factory=list)

    @property
    def is_cpp(self) -> bool:
        return self.file.startswith("cpp/")

    def text(self) -> str | None:
        """The changed file; None where `old` does not stand there exactly once."""
        path = ROOT / self.file
        source = path.read_text(encoding="utf-8") if path.exists() else ""
        return source.replace(self.old, self.new) if source.count(self.old) == 1 else None


@dataclasses.dataclass(frozen=True)
class Outcome:
    state: str
    note: str = ""


def all_mutants() -> list[Mutant]:
    text = (ROOT / "tests/mutants/mutants.toml").read_text(encoding="utf-8")
    mutants = [Mutant(**entry) for entry in tomllib.loads(text)["mutant"]]
    names = [mutant.name for mutant in mutants]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SystemExit(f"mutants.toml: these names stand there twice: {', '.join(twice)}")
    return mutants


def run(command: Sequence[str], timeout_s: float = 600, **options: object) -> tuple[int, str]:
    """Exit status and output; 124 past the time limit."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_s,
            **options,  # type: ignore[call-overload]
        )
    except subprocess.TimeoutExpired:
        return 124, f"no end within {timeout_s:.0f} s"
    return done.returncode, done.stdout


def joined_files(source: str) -> list[str]:
    """What a unit of several files includes; of any other source that source alone."""
    if Path(source).suffix != ".cxx":
        return [source]
    return re.findall(r'^#include "(.+)"$', Path(source).read_text(), re.MULTILINE)


def mutated_unit(source: str, original: Path, overlay: Path) -> Path:
    """The overlay, or a unit of several files with the overlay in the place of the original."""
    if Path(source).suffix != ".cxx":
        return overlay
    unit = overlay.with_name(f"{overlay.stem}.unit.cxx")
    text = Path(source).read_text().replace(f'"{original}"', f'"{overlay}"')
    unit.write_text(text, encoding="utf-8")
    return unit


class CppBuild:
    """A build of the C++ tests, and how to rebuild a part of it elsewhere."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        if not (directory / "build.ninja").exists():
            self._configure()
        status, output = run(["ninja", "-C", str(directory), TARGET], timeout_s=3600)
        if status != 0:
            raise SystemExit(f"the tests do not build:\n{output[-4000:]}")
        self.compile_commands = {
            shlex.split(entry["command"])[-1]: entry
            for entry in json.loads((directory / "compile_commands.json").read_text())
        }
        commands = self._ninja("-t", "commands", TARGET).splitlines()
        self.link_command = commands[-1].removeprefix(": && ").removesuffix(" && :")
        self.dependents = self._dependents()

    def _configure(self) -> None:
        site = subprocess.run(
            [sys.executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        launcher = shutil.which("ccache")
        status, output = run(
            ["cmake", "-S", str(ROOT), "-B", str(self.directory), "-G", "Ninja"]
            + ["-DSCALEMODEL_BINDINGS=OFF", "-DSCALEMODEL_TESTS=ON", "-DSCALEMODEL_BATCHED=ON"]
            + ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O1"]
            + [f"-DCMAKE_PREFIX_PATH={site}"]
            + ([f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}"] if launcher else [])
        )
        if status != 0:
            raise SystemExit(f"cmake fails:\n{output[-4000:]}")

    def _ninja(self, *arguments: str) -> str:
        return subprocess.run(
            ["ninja", "-C", str(self.directory), "--quiet", *arguments],
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def _dependents(self) -> dict[str, list[str]]:
        """Sources of the tests and the core by each file of `cpp` that they include."""
        dependents: dict[str, list[str]] = {}
        for block in self._ninja("-t", "deps").split("\n\n"):
            files = [line.strip() for line in block.splitlines()[1:]]
            sources = [file for file in files if file in self.compile_commands]
            for file in {os.path.relpath(file, ROOT) for file in files}:
                if file.startswith("cpp/"):
                    dependents.setdefault(file, []).extend(sources[:1])
        return dependents

    def sources_to_compile(self, mutant: Mutant) -> list[str]:
        """Whatever includes the changed file, or the part of it that the mutant asks for."""
        including = sorted(set(self.dependents.get(mutant.file, [])))
        wanted = mutant.units or ["*"]
        return [
            source
            for source in including
            if any(
                fnmatch.fnmatch(os.path.relpath(member, ROOT), pattern)
                for member in joined_files(source)
                for pattern in wanted
            )
        ]

    def mutated_tests(self, mutant: Mutant, scratch: Path) -> tuple[Path | None, str]:
        """The test program with the mutant in it, or none and the compiler's message."""
        overlay = scratch / mutant.file
        overlay.parent.mkdir(parents=True)
        overlay.write_text(mutant.text() or "", encoding="utf-8")
        link = shlex.split(self.link_command)
        first_object = next(i for i, word in enumerate(link) if word.endswith(".o"))
        for number, source in enumerate(self.sources_to_compile(mutant)):
            entry = self.compile_commands[source]
            command = shlex.split(entry["command"])
            built = command[command.index("-o") + 1]
            new_object = scratch / f"{number}.o"
            command[command.index("-o") + 1] = str(new_object)
            if str(ROOT / mutant.file) in joined_files(source):
                command[-1] = str(mutated_unit(source, ROOT / mutant.file, overlay))
            first_include = next(i for i, word in enumerate(command) if word.startswith("-I"))
            command.insert(first_include, f"-I{scratch / 'cpp'}")
            # A mutant may leave an argument unused.
            command.insert(command.index("-o"), "-Wno-error")
            status, output = run(command, cwd=entry["directory"])
            if status != 0:
                return None, output
            # First on the line: its inline functions win over those of other objects, and objects
            # of the core come out of the archive only for symbols that nobody has.
            if built in link:
                link.remove(built)
            link.insert(first_object, str(new_object))
        program = scratch / TARGET
        link[link.index("-o") + 1] = str(program)
        status, output = run(link, cwd=self.directory)
        return (program, "") if status == 0 else (None, output)


def doctest(program: Path, *options: str) -> tuple[int, str]:
    """One run of the C++ tests; counters of a build with coverage stay as they are."""
    with tempfile.TemporaryDirectory(prefix="mutant-gcov-") as elsewhere:
        environment = os.environ | {"GCOV_PREFIX": elsewhere}
        return run([str(program), "--no-colors=true", *options], env=environment)


def passes_cpp(program: Path, case: str) -> bool | None:
    """Whether a test case passes; None where there is no such case."""
    # A comma would end the name, and an asterisk stand for anything.
    pattern = re.sub(r"[,*\\\"]", "?", case)
    status, output = doctest(program, f"--test-case={pattern}", "--abort-after=1")
    counts = re.search(r"test cases: *([0-9]+)", output)
    if counts is not None and counts[1] == "0":
        return None
    return status == 0


def failing_cases(program: Path, sources: str) -> list[str]:
    _, output = doctest(program, f"--source-file={sources}")
    return sorted(set(re.findall(r"^TEST CASE: +(.*)$", output, re.MULTILINE)))


def engine_module() -> Path:
    """The compiled engine of the installed package."""
    package = importlib.util.find_spec("scalemodel")
    for folder in package.submodule_search_locations or [] if package else []:
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            if (found := Path(folder) / f"_core{suffix}").exists():
                return found.resolve()
    raise SystemExit("mutants of Python need scalemodel installed, for its engine; or --cpp")


def mutated_package(mutant: Mutant | None, scratch: Path) -> Path:
    """A directory for PYTHONPATH: the package as links to the tree, the mutant as a file."""
    engine = engine_module()
    home = scratch / "python"
    for path in sorted((ROOT / "python").rglob("*")):
        target = home / path.relative_to(ROOT / "python")
        if path.name != "__pycache__" and path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif path.is_file() and "__pycache__" not in path.parts:
            target.symlink_to(path)
    link = home / "scalemodel" / engine.name
    if not link.exists():
        link.symlink_to(engine)
    if mutant is not None:
        changed = scratch / mutant.file
        changed.unlink()
        changed.write_text(mutant.text() or "", encoding="utf-8")
    return home


def passes_python(home: Path, nodes: Sequence[str]) -> bool | None:
    """Whether these tests pass; None where one is not found."""
    environment = os.environ | {"PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    status, _ = run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-m", "", "-p", "no:cacheprovider", *nodes],
        cwd=ROOT,
        env=environment,
    )
    return None if status in (4, 5) else status == 0


def judge(mutant: Mutant, build: CppBuild | None, find: str | None) -> Outcome:
    if mutant.text() is None:
        return Outcome(BROKEN, f"{mutant.file} does not hold the old text exactly once")
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        scratch = Path(directory)
        if not mutant.is_cpp:
            passed = passes_python(mutated_package(mutant, scratch), [mutant.killed_by])
        else:
            assert build is not None
            program, message = build.mutated_tests(mutant, scratch)
            if program is None:
                return Outcome(BROKEN, "does not compile: " + message[-300:])
            if find is not None:
                found = failing_cases(program, find)
                return Outcome(KILLED if found else SURVIVED, "\n    ".join(["", *found]))
            passed = passes_cpp(program, mutant.killed_by)
    if passed is None:
        return Outcome(BROKEN, f"no test is called '{mutant.killed_by}'")
    return Outcome(SURVIVED if passed else KILLED)


def fail_unplanted(mutants: Sequence[Mutant], build: CppBuild | None) -> Iterator[str]:
    """Tests that fail already, or that nobody knows."""
    for case in sorted({m.killed_by for m in mutants if m.is_cpp}):
        assert build is not None
        if passes_cpp(build.directory / TARGET, case) is not True:
            yield case
    nodes = sorted({m.killed_by for m in mutants if not m.is_cpp})
    if nodes:
        with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
            if passes_python(mutated_package(None, Path(directory)), nodes) is not True:
                yield "one of " + ", ".join(nodes)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these mutants")
    parser.add_argument("--sample", type=int, metavar="N", help="as many, drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="of the drawing (1)")
    parser.add_argument("--cpp", action="store_true", help="leave out mutants of Python")
    parser.add_argument("--build", type=Path, default=ROOT / "build/mutants", metavar="DIRECTORY")
    parser.add_argument("--least", type=float, default=0.97, help="share to be killed (0.97)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at a time")
    parser.add_argument("--find", metavar="FILES", help="list the C++ tests that fail instead")
    return parser.parse_args()


def chosen(mutants: Sequence[Mutant], options: argparse.Namespace) -> list[Mutant]:
    unknown = set(options.names) - {mutant.name for mutant in mutants}
    if unknown:
        raise SystemExit(f"no mutant is called {', '.join(sorted(unknown))}")
    picked = [m for m in mutants if not options.names or m.name in options.names]
    if options.cpp or options.find:
        picked = [m for m in picked if m.is_cpp]
    if options.sample is not None and options.sample < len(picked):
        picked = random.Random(options.seed).sample(picked, options.sample)
    return picked


def main() -> int:
    options = arguments()
    mutants = all_mutants()
    stale = [m.name for m in mutants if m.text() is None]
    mutants = chosen(mutants, options)
    build = CppBuild(options.build.resolve()) if any(m.is_cpp for m in mutants) else None
    failing = [] if options.find else list(fail_unplanted(mutants, build))
    for test in failing:
        print(f"fails with nothing planted, or is not known: {test}")
    counts = dict.fromkeys((KILLED, SURVIVED, BROKEN), 0)
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = pool.map(lambda mutant: judge(mutant, build, options.find), mutants)
        for mutant, outcome in zip(mutants, outcomes, strict=True):
            counts[outcome.state] += 1
            print(f"{outcome.state:<15} {mutant.name:<34} {mutant.file} {outcome.note}", flush=True)
    print(", ".join(f"{count} {state.lower()}" for state, count in counts.items()))
    for name in stale:
        print(f"does not apply any more: {name}")
    enough = counts[KILLED] >= options.least * len(mutants)
    return 0 if enough and not stale and not failing and counts[BROKEN] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
