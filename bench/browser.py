"""Integration tests that drive Chromium and leave what they counted in a file: how benchmarks run one."""

import os
import shutil
import subprocess

from measure import BenchError, CannotHere

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def command(test):
    """The selection of `make test`, whose dependencies are built."""
    return ["cargo", "test", "--workspace", "--features", "stentor-kit/engines", "--test", "all", test]


def result(name):
    return os.path.join(ROOT, "target", "browser", name)


def drive(bench, words, path):
    """Runs the command, which leaves the file."""
    # It has one size: a smoke run takes what the integration tests, which `make test` runs before it, have left.
    if bench.smoke and os.path.exists(path):
        return
    for program in ("node", "chromium"):
        if not shutil.which(program):
            raise CannotHere(f"{program} is missing: testing/install.sh installs it")
    if os.path.exists(path):
        os.remove(path)
    # Skipping would count nothing and look well.
    environment = {**os.environ, "STENTOR_BIN": bench.binary, "STENTOR_NO_SKIP": "1"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800)
    if not os.path.exists(path):
        raise BenchError(f"{' '.join(words)}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
