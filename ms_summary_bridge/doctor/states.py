"""What a conversion remembers of itself, against what lies there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from ms_summary_bridge.convert.state import STATE_NAME, load_state
from ms_summary_bridge.doctor.finding import Finding, fault, good, named
from ms_summary_bridge.doctor.look import LogFacts
from ms_summary_bridge.errors import DamagedStateError, OtherConversionError, ReadError, counted

__all__ = ["check_states"]

_MOST_BYTES: Final = 16 << 20
_STATES: Final = 20


def check_states(log: LogFacts) -> Iterator[Finding]:
    """Yields what is wrong with the directories that `convert` wrote into; counts what it reads."""
    found: list[Finding] = []
    whole = 0
    for directory in log.states[:_STATES]:
        problems = [*_check_state(directory, log)]
        found += problems
        whole += not problems
    yield from found
    if whole:
        yield good("ours.state", f"whole: {counted(whole, 'output')} of convert")


def _check_state(directory: str, log: LogFacts) -> Iterator[Finding]:
    path = os.path.join(directory, STATE_NAME)
    try:
        size = os.path.getsize(path)
        if size > _MOST_BYTES:
            text = f"{path}: {counted(size, 'byte')} are too many to look at"
            yield Finding("ours.state", "not known", text, f"ms-summary-bridge verify SRC {directory}")
            return
        state = load_state(directory)
    except (DamagedStateError, OtherConversionError) as error:
        mend = f"ms-summary-bridge convert SRC {directory} --force, or another DST"
        yield fault("ours.state", "wrong", str(error), mend)
        return
    except (ReadError, OSError) as error:
        yield fault("ours.state", "wrong", str(error), f"chmod u+r {path}")
        return
    log.bytes_read += size
    again = f"ms-summary-bridge convert {state.source or 'SRC'} {directory}"
    killed = [name for name, run in state.runs.items() if run.plan is not None]
    if killed:
        text = f"{directory}: a conversion was killed or is under way: {named(killed)}"
        yield fault("ours.unfinished", "warning", text, f"{again}, which goes on from there")
        return
    changed = []
    for name, run in state.runs.items():
        for output in run.outputs:
            place = os.path.join(directory, *name.split("/"), output.name)
            found = os.path.getsize(place) if os.path.exists(place) else 0
            if found < output.offset:
                changed.append(f"{place} has {found:,} of {output.offset:,} bytes")
    if changed:
        text = f"less than the conversion wrote: {named(changed)}"
        yield fault("ours.outputs", "wrong", text, f"{again} --force")
