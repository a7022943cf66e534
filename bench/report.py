"""Measures the library on this machine's processor against its floors and two contenders in plain PyTorch.

Writes report.json, report.md and pictures to a folder, and prints the bars with their figures. It takes 15 to 30
minutes, in which nothing else should run. The rates of a matrix product and of a copy are measured too, since most
figures are ratios. Missing data sets are downloaded (SEEGERA_DATA names their folder).

    python bench/report.py                              everything, to runs/bench
    python bench/report.py --only link growth           the sections whose names hold one of these words
    python bench/report.py --list                       names the sections
    python bench/report.py --render bench/results/*     pages and pictures anew from report.json; measures nothing

Exit status: 0 all is well; 3 a bar was missed; 4 something could not be measured (the first that applies).
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from report_sections import SECTIONS
from reporter import Record, Report

import seegera_fast as sf
from seegera_fast.environment import processor


def machine() -> dict[str, object]:
    """The processor, and the versions of libraries."""
    return {
        "processor": processor(),
        "instruction set": sf.backends.instruction_set(),
        "bfloat16 products": sf.backends.bfloat16_products(),
        "threads": torch.get_num_threads(),
        "load before": round(os.getloadavg()[0], 2),
        "torch": torch.__version__,
        "seegera_fast": sf.__version__,
        "python": platform.python_version(),
    }


def measure(sections: Mapping[str, Callable[[Record], None]], folder: Path, *, dry: bool = False) -> int:
    """Runs sections, writes the report after each, and returns the exit status; ``dry``: see :class:`Report`."""
    report = Report(folder, dry=dry)
    report.content["machine"] = machine()
    print(", ".join(f"{key} {value}" for key, value in report.content["machine"].items()), flush=True)
    for name, section in sections.items():
        record = Record()
        report.content["sections"][name] = record.content
        try:
            section(record)
        except Exception as error:
            record.fail(error)
        record.finish()
        report.show(name)
        report.save()
    return report.close()


def add_section_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that :func:`chosen_sections` reads."""
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="sections whose names hold one of these")
    parser.add_argument("--list", action="store_true", help="names the sections and ends")


def chosen_sections(parser: argparse.ArgumentParser, options: argparse.Namespace, sections: Iterable[str]) -> list[str]:
    """The names of the sections that are to be measured; none if they were only to be listed."""
    chosen = [name for name in sections if not options.only or any(word in name for word in options.only)]
    if not chosen:
        parser.error(f"--only: no section holds {' or '.join(options.only)}; --list names them")
    if options.list:
        print("\n".join(chosen))
        return []
    return chosen


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder of the report (runs/bench)")
    add_section_options(parser)
    parser.add_argument(
        "--render", nargs="+", type=Path, metavar="FOLDER", help="writes page and pictures of these folders anew"
    )
    options = parser.parse_args(arguments)
    if options.render:
        for folder in options.render:
            if not (folder / "report.json").is_file():
                parser.error(f"--render: got {folder}, want a folder that holds a report.json")
            Report.read(folder).render()
        return 0
    chosen = chosen_sections(parser, options, SECTIONS)
    return measure({name: SECTIONS[name] for name in chosen}, options.out) if chosen else 0


if __name__ == "__main__":
    sys.exit(main())
