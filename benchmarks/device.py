"""Name of the device that a benchmark runs on, in words and as the name of a file.

`python -m benchmarks.device` prints it, with the versions of Python and numerical packages.
"""

import os
import platform
import re
from pathlib import Path

import jax

from bounds.store.provenance import provenance


def device_name() -> str:
    """Returns the kind of the first device; of a CPU its name and number of cores."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return device.device_kind
    cores = usable_cores()
    return f"{processor_name()}, {cores} core{'s' if cores > 1 else ''}"


def usable_cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor_name() -> str:
    """Returns the processor's model name, or its architecture if no name is known."""
    told = Path("/proc/cpuinfo")
    if told.is_file():
        found = re.search(r"(?m)^model name\s*:\s*(.+)$", told.read_text())
        if found:
            return " ".join(found[1].split())
    return platform.processor() or platform.machine()


def file_stem(device: str) -> str:
    """Returns a device's name in lower case with hyphens, for names of files."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def main() -> None:
    """Prints one line: Python, the numerical packages and the device."""
    versions = (f"{name} {found}" for name, found in provenance()["versions"].items())
    print(f"{', '.join(versions)}; {device_name()}", flush=True)


if __name__ == "__main__":
    main()
