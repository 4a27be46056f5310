import orjson
from hypothesis import given
from hypothesis import strategies as st

from app.jobs.tables import JobEvent, JobSegment
from app.streams import frames

PIECES = st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=12)


def segment(pieces, first_seq=5, offset=0, logprobs=None):
    ends, end = [], 0
    for piece in pieces:
        end += len(piece)
        ends.append(end)
    return JobSegment(
        first_seq=first_seq,
        seq=first_seq + len(pieces) - 1,
        char_offset=offset,
        text="".join(pieces),
        ends=ends,
        logprobs=logprobs,
    )


@given(PIECES, st.data())
def test_a_segment_can_be_taken_up_at_any_of_its_numbers(pieces, data):
    row = segment(pieces, offset=40)
    cursor = data.draw(st.integers(row.first_seq - 1, row.seq - 1))
    (frame,) = frames.of_row(row, cursor)
    body = orjson.loads(frame.body)
    seen = "".join(pieces[: cursor - row.first_seq + 1])
    assert seen + body["delta"] == row.text
    assert body["offset"] == 40 + len(seen)
    assert (frame.first_seq, frame.seq) == (cursor + 1, row.seq)
    assert body.get("first_seq", body["seq"]) == cursor + 1


def test_logprobs_are_cut_where_the_text_is():
    row = segment(["a", "b", "c"], logprobs=[[1], [2, 3], [4]])
    (frame,) = frames.of_row(row, 5)
    assert orjson.loads(frame.body)["logprobs"] == [2, 3, 4]


def breaking(first_seq=10, seq=20, offset=7):
    return JobEvent(
        job_id="job_x", first_seq=first_seq, seq=seq, type="job.queued", data={"output_offset": offset}
    )


def test_who_was_shown_what_an_event_voids_is_rewound_first():
    rewind, event = frames.of_row(breaking(), 12)
    assert orjson.loads(rewind.body) == {"type": "output.rewind", "seq": 19, "first_seq": 13, "offset": 7}
    assert (event.first_seq, event.seq) == (20, 20)


def test_who_saw_only_what_is_known_is_not_rewound():
    (event,) = frames.of_row(breaking(), 9)
    assert (event.first_seq, event.seq) == (10, 20)


def test_who_has_the_rewind_already_gets_the_event_alone():
    (event,) = frames.of_row(breaking(), 19)
    assert (event.first_seq, event.seq) == (20, 20)


@given(st.text(max_size=40))
def test_a_frame_is_one_line_for_every_client(text):
    body = frames.delta(1, 1, 0, text).body
    assert len(body.decode().splitlines()) == 1
    assert orjson.loads(body)["delta"] == text


def test_a_frame_comes_back_from_its_json():
    frame = frames.delta(3, 9, 0, "x")
    assert frames.decode(frame.body) == frame
    assert frames.decode(frames.delta(9, 9, 0, "x").body).first_seq == 9


def test_the_last_frames_are_the_terminal_events():
    assert frames.encode(1, 1, "job.cancelled", {}).is_last
    assert not frames.encode(1, 1, "job.queued", {}).is_last
