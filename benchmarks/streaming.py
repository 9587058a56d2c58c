"""Peak memory of training on a stream of flights, against the number of flights.

Each size runs in a process of its own, which reports the most memory it ever held.
"""

import argparse
import resource
import subprocess
import sys
from pathlib import Path

SIZES = (300_000, 3_000_000)


def train(rows: int) -> None:
    """Train on so many flights, and print the peak in bytes."""
    import jax

    from unbayes_paper import airline, flights

    jax.config.update("jax_enable_x64", True)
    source = flights.flights(rows)
    everything = airline.standardised(source)
    model = airline.sparse_gp(everything, seed=0)
    airline.train(model, everything)
    print(source.rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def main() -> None:
    """Compare the sizes, and write `streaming.md`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int)
    arguments = parser.parse_args()
    if arguments.rows is not None:
        train(arguments.rows)
        return
    lines = ["| flights | peak memory, GiB |", "| --- | --- |"]
    for rows in SIZES:
        command = [sys.executable, __file__, "--rows", str(rows)]
        found, peak = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        lines.append(f"| {int(found):,} | {int(peak) / 2**30:.2f} |")
    text = "\n".join(lines)
    print(text)
    Path(__file__).with_suffix(".md").write_text(f"# Memory of a stream\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
