import pytest

from cluster.clock import ManualClock
from cluster.errors import ConfigError, OverloadedError
from deployments.admission import MAX_RETRY_AFTER_S, Admission, AdmissionConfig


def _admission(clock: ManualClock | None = None, **bounds: int) -> Admission:
    return Admission(AdmissionConfig(**bounds), clock or ManualClock())


def test_a_full_queue_refuses_by_requests_and_changes_nothing() -> None:
    admission = _admission(max_queued_requests=2)
    admission.admit({"a": 5, "b": 5})
    with pytest.raises(OverloadedError) as caught:
        admission.admit({"c": 1})
    assert caught.value.param == "max_queued_requests"
    assert (admission.num_requests, admission.num_tokens) == (2, 10)


def test_a_full_queue_refuses_by_tokens() -> None:
    admission = _admission(max_queued_tokens=10)
    admission.admit({"a": 8})
    with pytest.raises(OverloadedError) as caught:
        admission.admit({"b": 3})
    assert caught.value.param == "max_queued_tokens"
    admission.admit({"c": 2})


def test_a_request_larger_than_the_bound_is_still_served_alone() -> None:
    _admission(max_queued_tokens=10).admit({"a": 1000})


def test_started_and_dropped_choices_leave_the_queue_once() -> None:
    admission = _admission(max_queued_requests=2)
    admission.admit({"a": 5, "b": 7})
    admission.start("a")
    admission.start("a")
    admission.drop("a")
    admission.drop("b")
    admission.start("unknown")
    assert (admission.num_requests, admission.num_tokens) == (0, 0)


def test_retry_after_is_the_excess_over_the_drain_rate() -> None:
    clock = ManualClock()
    admission = _admission(clock, max_queued_tokens=100)
    for index in range(10):  # 10 choices of 20 tokens leave over 9 seconds
        admission.admit({f"d{index}": 20})
        admission.start(f"d{index}")
        clock.advance(1.0)
    admission.admit({"big": 100})
    with pytest.raises(OverloadedError) as caught:
        admission.admit({"next": 80})
    # 200 tokens drained in 10 s; 80 tokens too many are gone after 4 s.
    assert caught.value.retry_after_s == pytest.approx(4.0)


def test_retry_after_is_finite_when_nothing_drains_and_never_below_a_second() -> None:
    clock = ManualClock()
    admission = _admission(clock, max_queued_requests=1)
    admission.admit({"a": 1})
    with pytest.raises(OverloadedError) as caught:
        admission.admit({"b": 1})
    assert caught.value.retry_after_s == MAX_RETRY_AFTER_S
    for _ in range(50):
        admission.start("a")
        admission.admit({"a": 1})
    with pytest.raises(OverloadedError) as caught:
        admission.admit({"b": 1})
    assert caught.value.retry_after_s == 1.0


def test_old_drains_are_forgotten() -> None:
    clock = ManualClock()
    admission = _admission(clock, max_queued_requests=1)
    admission.admit({"a": 1})
    admission.start("a")
    clock.advance(1000)
    admission.admit({"b": 1})
    with pytest.raises(OverloadedError) as caught:
        admission.admit({"c": 1})
    assert caught.value.retry_after_s == MAX_RETRY_AFTER_S


def test_bounds_below_one_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"admission\.max_queued_requests"):
        AdmissionConfig(max_queued_requests=0)
