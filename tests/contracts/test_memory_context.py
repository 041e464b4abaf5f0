"""What only the context in memory promises."""

from tertulia.context.limits import ContextLimits
from tertulia.context.memory import MemoryContextStores
from tests.contracts.contexts import (
    ANA,
    is_there,
)


async def test_closing_the_memory_stores_empties_them() -> None:
    stores = MemoryContextStores(ContextLimits())
    await stores.open(ANA).create("c1")
    await stores.close()
    assert not await is_there(stores.open(ANA), "c1")
