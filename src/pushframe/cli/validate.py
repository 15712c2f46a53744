"""`pushframe validate`: is this burst fit to be super-resolved?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer
from rich.markup import escape

from ..align import align
from ..errors import BurstError
from ..io import open_burst, read_verified
from ..validate import Finding, examine
from .console import JSON_OPTION, out, print_json

MARKS = {"good": "[green]good[/]", "note": "[yellow]note[/]", "bad": "[bold red]bad [/]"}


def command(
    burst: Path = typer.Argument(..., help="An .npz, a folder of TIFF frames, or a TIFF stack."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Check a burst: files, sizes, exposures, masks, and whether the frames show one scene.

    Truth and true motion, where a burst carries them, are checked too.

    Exit code 0: fit; 1: readable but not fit (each reason names its frame); 2: not readable.

    Examples:

      pushframe validate burst.npz

      pushframe validate frames/ --json
    """
    try:
        _, simulated = read_verified(burst)
        aligned = align(open_burst(burst))
        found = examine(aligned.source.read())
        found += [
            Finding("bad", f"{line.frame}: {line.why}; leave it out")
            for line in aligned.table
            if not line.used
        ]
        if simulated is not None:
            tall, wide = simulated.truth.shape
            found.insert(1, Finding("good", f"truth of {tall}x{wide}, scale {simulated.scale}"))
    except BurstError as error:
        found = [Finding("bad", str(error))]
    fit = all(finding.verdict != "bad" for finding in found)
    if as_json:
        print_json({"fit": fit, "findings": [asdict(finding) for finding in found]})
    else:
        for finding in found:
            out.print(f"{MARKS[finding.verdict]} {escape(finding.message)}", highlight=False)
        out.print("fit to be super-resolved" if fit else "not fit: mend what is bad above")
    if not fit:
        raise typer.Exit(1)
