"""The flags that share work out: over the devices of a process, and over processes."""

import contextlib
import dataclasses

import jax
import numpy as np
from absl import flags
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from bounds.influence.sharding import device_mesh
from jax_models.errors import InputError

CLUSTER_FLAGS = ("coordinator", "num_processes", "process_id")
# Seconds until a process that does not find the others says so.
PATIENCE = 60


def define_devices(values: flags.FlagValues) -> None:
    """Add `--num_devices` and the flags of `jax.distributed`."""
    flags.DEFINE_integer(
        "num_devices",
        None,
        "Devices of each process that positions are shared out over; a CPU is divided "
        "into as many. By default one, with several processes all.",
        lower_bound=1,
        flag_values=values,
    )
    flags.DEFINE_string(
        "coordinator",
        None,
        "Several processes: address host:port of process 0, the same for all.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "num_processes",
        None,
        "Several processes: how many.",
        lower_bound=1,
        flag_values=values,
    )
    flags.DEFINE_integer(
        "process_id",
        None,
        "Several processes: which one this is, from 0. Process 0 writes the results.",
        lower_bound=0,
        flag_values=values,
    )


@dataclasses.dataclass(frozen=True)
class Devices:
    """Where a command computes.

    Attributes:
        mesh: What positions are shared out over; None is the default device.
        leads: Whether this process keeps the results. The others only compute.
    """

    mesh: Mesh | None
    leads: bool

    def agree(self, chosen: list[bool]) -> list[bool]:
        """Return the choice of the leading process, in every process."""
        if jax.process_count() == 1:
            return chosen
        told = multihost_utils.broadcast_one_to_all(np.array(chosen, np.int32))
        return [bool(one) for one in np.asarray(told)]


def open_devices(options: flags.FlagValues) -> Devices:
    """Return where to compute, connected to the other processes if there are any.

    To be called before JAX computes anything.

    Args:
        options: Flags of `define_devices`.

    Returns:
        The devices.

    Raises:
        InputError: The flags do not fit together, there are fewer devices, or the other
            processes are not found.
    """
    given = [name for name in CLUSTER_FLAGS if options[name].value is not None]
    if given and len(given) < len(CLUSTER_FLAGS):
        missing = [f"--{name}" for name in CLUSTER_FLAGS if name not in given]
        raise InputError(
            f"--{given[0]} is for several processes, which also need "
            f"{' and '.join(missing)}"
        )
    if options.num_devices is not None:
        # Only a CPU heeds it; where JAX has its devices already, they are what there is.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", options.num_devices)
    if given:
        _connect(options)
    elif options.num_devices is None:
        return Devices(None, True)
    return Devices(device_mesh(options.num_devices), jax.process_index() == 0)


def _connect(options: flags.FlagValues) -> None:
    number, count = options.process_id, options.num_processes
    if number >= count:
        raise InputError(
            f"--process_id={number}, but --num_processes={count} counts from 0 to "
            f"{count - 1}"
        )
    if not options.coordinator.rpartition(":")[2].isdigit():
        raise InputError(
            f"--coordinator={options.coordinator}: expected host:port, as in "
            "10.0.0.1:1234"
        )
    try:
        jax.distributed.initialize(
            options.coordinator,
            count,
            number,
            initialization_timeout=PATIENCE,
        )
    except RuntimeError as error:
        raise InputError(
            f"process {number} of {count} does not find the others at "
            f"{options.coordinator} within {PATIENCE} s: {error}"
        ) from error
