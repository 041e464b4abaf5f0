"""A server whose worker never renews a lease: `python unrenewed.py serve …`. For tests only."""

from tertulia import cli
from tertulia.worker.upkeep import Upkeep


async def nothing(_: Upkeep) -> None:
    """What is done instead."""


if __name__ == "__main__":
    assert callable(Upkeep.renew_leases)
    Upkeep.renew_leases = nothing
    cli.main()
