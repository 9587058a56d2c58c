"""What the tests of the command line share."""

import os
import subprocess
import sys

import numpy as np


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def first(files, number):
    x, y = files.problem.full
    return x[:number], y[:number]


def start(code, *arguments, **environment):
    """Run Python in a process of its own, with the programs that this one keeps."""
    kept = {"UNBAYES_CACHE": os.environ["JAX_COMPILATION_CACHE_DIR"]}
    command = [sys.executable, *code, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | kept | environment
    )


def same(one, other, tolerance=1e-10):
    """Whether two Gaussians are the same but for rounding."""
    return np.allclose(one.mean, other.mean, atol=tolerance) and np.allclose(
        one.covariance, other.covariance, atol=tolerance
    )
