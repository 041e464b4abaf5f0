"""Who gets a slot next: no tenant takes all, no user all of their tenant's, and those who wait take turns."""

from uuid import uuid4

from tertulia.core.model import Owner
from tertulia.queue.consumer import Wakeup
from tertulia.worker.shares import Shares

ANN, BOB, EVE = Owner("acme", "ann"), Owner("acme", "bob"), Owner("other", "eve")


def wakeup(owner: Owner) -> Wakeup:
    return Wakeup("1-0", owner, uuid4(), uuid4())


def test_a_tenant_and_a_user_have_only_so_many_slots() -> None:
    shares = Shares(per_tenant=3, per_user=2)
    assert [shares.enter(ANN) for _ in range(3)] == [True, True, False]
    assert [shares.enter(BOB) for _ in range(2)] == [True, False]
    assert shares.enter(EVE)


def test_a_slot_that_is_given_back_can_be_taken_again() -> None:
    shares = Shares(per_tenant=1, per_user=1)
    assert shares.enter(ANN)
    assert not shares.enter(BOB)
    shares.leave(ANN)
    assert shares.enter(BOB)


def test_users_who_wait_take_turns_and_each_users_messages_keep_their_order() -> None:
    shares = Shares(per_tenant=10, per_user=10)
    anns, bobs = [wakeup(ANN) for _ in range(3)], [wakeup(BOB) for _ in range(2)]
    assert all(shares.park(each) for each in [*anns, *bobs])
    assert [shares.next("acme") for _ in range(6)] == [anns[0], bobs[0], anns[1], bobs[1], anns[2], None]


def test_a_user_without_a_free_slot_is_passed_over() -> None:
    shares = Shares(per_tenant=3, per_user=1)
    assert shares.enter(ANN)
    anns, bobs = wakeup(ANN), wakeup(BOB)
    assert shares.park(anns)
    assert shares.park(bobs)
    assert shares.next("acme") == bobs
    assert shares.next("acme") is None
    shares.leave(ANN)
    assert shares.next("acme") == anns


def test_only_so_many_of_a_tenant_wait_here_and_nobody_elses_place_is_taken() -> None:
    shares = Shares(per_tenant=1, per_user=1, waiting=2)
    assert [shares.park(wakeup(ANN)) for _ in range(3)] == [True, True, False]
    assert not shares.park(wakeup(BOB))
    assert shares.park(wakeup(EVE))
    assert shares.next("acme") is not None
    assert shares.park(wakeup(BOB))


def test_nothing_is_kept_of_those_who_have_left() -> None:
    shares = Shares(per_tenant=1, per_user=1)
    shares.enter(ANN)
    shares.park(wakeup(BOB))
    shares.leave(ANN)
    shares.next("acme")
    assert (shares._tenants, shares._users, shares._waiting, shares._lengths) == ({}, {}, {}, {})
