"""A job's digits under OpenAI's prefixes, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.openai import ids

DIGITS = "0123456789abcdef0123456789abcdef"
JOB_ID = f"job_{DIGITS}"


@given(st.uuids())
def test_a_job_is_found_by_each_of_its_names(uuid):
    job_id = f"job_{uuid.hex}"
    assert ids.job_id_of(ids.RESPONSE, ids.resp_id(job_id)) == job_id
    assert ids.job_id_of(ids.CHAT, ids.chat_id(job_id)) == job_id
    assert ids.job_id_of(ids.COMPLETION, ids.cmpl_id(job_id)) == job_id


@pytest.mark.parametrize(
    "name",
    ["", "resp_", DIGITS, JOB_ID, f"resp-{DIGITS}", f"resp_{DIGITS.upper()}", f"resp_{DIGITS}0", "resp_x"],
)
def test_what_is_not_spelled_as_we_spell_it_names_no_job(name):
    assert ids.job_id_of(ids.RESPONSE, name) is None


def test_items_are_numbered_under_their_job():
    assert ids.item_id(ids.MESSAGE, JOB_ID, 10) == f"msg_{DIGITS}0a"
    assert ids.item_id(ids.FUNCTION_CALL, JOB_ID, 300) == f"fc_{DIGITS}12c"
    assert ids.input_item_id(ids.MESSAGE, JOB_ID, 0) not in {
        ids.item_id(ids.MESSAGE, JOB_ID, k) for k in range(300)
    }
