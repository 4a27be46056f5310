from datetime import UTC, datetime, timedelta

import pytest

from app.ids import earliest_id, is_id, new_id, to_uuid


def test_ids_say_what_they_name_and_sort_by_time():
    ids = [new_id("job") for _ in range(100)]
    assert all(is_id("job", one) for one in ids)
    assert sorted(ids) == ids


@pytest.mark.parametrize(
    "bad", ["", "job_", "job_x", "acct_" + "0" * 32, "0" * 32, "job_" + "0" * 31, "job_" + "A" * 32]
)
def test_what_is_no_id_is_told_apart(bad):
    assert not is_id("job", bad)
    with pytest.raises(ValueError, match=r".*"):
        to_uuid("job", bad)


def test_ids_of_an_hour_lie_between_the_earliest_of_it_and_of_the_next():
    now = datetime.now(UTC)
    assert (
        earliest_id("job", now - timedelta(hours=1))
        < new_id("job")
        < earliest_id("job", now + timedelta(hours=1))
    )
    assert is_id("job", earliest_id("job", now))
