"""The mailbox of a stream, without a registry around it."""

from notification_bus.notification import BusNotification
from notification_bus.subscriptions._mailbox import Mailbox

TOOLS = BusNotification.tools_list_changed()


def update(uri: str, **more: str) -> BusNotification:
    return BusNotification("notifications/resources/updated", {"uri": uri, **more})


def contents(mailbox: Mailbox) -> list[tuple[int | str, BusNotification | None]]:
    found: list[tuple[int | str, BusNotification | None]] = []
    while (change := mailbox.pop()) is not None:
        found.append(change)
    return found


def test_a_change_that_waits_is_replaced_by_the_newer_one_in_its_place() -> None:
    mailbox = Mailbox((0, "a", "b"), 0)
    for key, notification in (("a", update("a", n="1")), (0, TOOLS), ("a", update("a", n="2"))):
        mailbox.put(key, notification)
    assert contents(mailbox) == [("a", update("a", n="2")), (0, TOOLS)]
    assert mailbox.coalesced == 1


def test_a_key_that_changes_all_the_time_keeps_no_other_waiting() -> None:
    mailbox = Mailbox(("a", "b"), 0)
    mailbox.put("a", update("a"))
    mailbox.put("b", update("b"))
    read: list[int | str] = []
    for _ in range(4):
        found = mailbox.pop()
        assert found is not None
        read.append(found[0])
        mailbox.put("a", update("a"))
        mailbox.put("b", update("b"))
    assert read == ["a", "b", "a", "b"]


def test_a_gap_marks_all_keys_and_takes_the_params_of_what_waits() -> None:
    mailbox = Mailbox((0, "a", "b"), 0)
    mailbox.put("b", update("b", version="1"))
    mailbox.mark_all()
    assert contents(mailbox) == [("b", None), (0, None), ("a", None)]


def test_a_notification_after_a_gap_brings_its_params_back() -> None:
    mailbox = Mailbox(("a",), 0)
    mailbox.mark_all()
    mailbox.put("a", update("a", version="2"))
    assert contents(mailbox) == [("a", update("a", version="2"))]


def test_however_much_changes_a_mailbox_holds_no_more_than_its_keys() -> None:
    mailbox = Mailbox((0, 1, 2, "a"), 0)
    for number in range(1000):
        mailbox.put(number % 3, TOOLS)
        mailbox.put("a", update("a"))
        mailbox.put_below("a", f"a/{number}", update(f"a/{number}"))
    mailbox.mark_all()
    assert len(mailbox) == 4


def test_one_sub_resource_is_named_and_two_become_the_resource_above_them() -> None:
    mailbox = Mailbox(("a",), 0)
    mailbox.put_below("a", "a/1", update("a/1", n="1"))
    mailbox.put_below("a", "a/1", update("a/1", n="2"))
    assert contents(mailbox) == [("a", update("a/1", n="2"))]
    mailbox.put_below("a", "a/1", update("a/1"))
    mailbox.put_below("a", "a/2", update("a/2"))
    assert contents(mailbox) == [("a", None)]


def test_once_several_have_become_the_one_above_no_later_one_hides_them() -> None:
    mailbox = Mailbox(("a",), 0)
    for uri in ("a/1", "a/2", "a/2"):
        mailbox.put_below("a", uri, update(uri))
    assert contents(mailbox) == [("a", None)]
    mailbox.put("a", update("a"))
    mailbox.put_below("a", "a/1", update("a/1"))
    assert contents(mailbox) == [("a", None)]
    mailbox.mark_all()
    mailbox.put_below("a", "a/1", update("a/1"))
    assert contents(mailbox) == [("a", None)]


def test_closing_keeps_what_waits_and_discarding_does_not() -> None:
    closed, discarded = Mailbox((0,), 0), Mailbox((0,), 0)
    for mailbox in (closed, discarded):
        mailbox.put(0, TOOLS)
    closed.close()
    discarded.discard()
    assert (contents(closed), contents(discarded)) == ([(0, TOOLS)], [])


def test_a_gap_that_is_told_after_the_end_is_not_kept() -> None:
    mailbox = Mailbox((0,), 0)
    mailbox.discard()
    mailbox.mark_all()
    assert contents(mailbox) == []
