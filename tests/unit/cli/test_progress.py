from app.cli.progress import Progress


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def make(**fields):
    clock = Clock()
    return Progress(clock, 100.0, **fields), clock


def test_a_waiting_job_says_for_what_and_how_long():
    progress, clock = make(waiting="No worker serves 'x' right now.")
    clock.now += 2.5
    assert progress.line() == "queued · waiting: No worker serves 'x' right now. · 2.5 s"


def test_a_running_job_shows_its_recent_speed_and_its_first_token():
    progress, clock = make(status="in_progress", waiting="not shown any more")
    clock.now += 0.25
    progress.note_output(1, is_replay=False)
    clock.now += 2
    progress.note_output(40, is_replay=False)
    assert progress.line() == "in_progress · 2.2 s · 41 tokens · 20.0 tokens/s · first token 0.25 s"


def test_a_replay_says_nothing_of_the_first_token():
    progress, _ = make(status="in_progress")
    progress.note_output(500, is_replay=True)
    assert progress.line() == "in_progress · 0.0 s · 500 tokens"


def test_a_rewind_takes_its_tokens_back():
    progress, _ = make()
    progress.note_output(100, is_replay=False)
    progress.note_rewind(0.25)
    assert progress.tokens == 25
    assert progress.tokens_per_second is None


def test_a_broken_connection_shows():
    progress, _ = make(status="in_progress", is_connected=False)
    assert progress.line().startswith("in_progress, connection lost, trying again")


def test_the_last_line_has_the_exact_usage():
    progress, clock = make(status="incomplete")
    clock.now += 1
    progress.note_output(1, is_replay=False)
    clock.now += 2
    progress.ended_at = clock.now
    clock.now += 50
    ending = {
        "usage": {"input_tokens": 7, "output_tokens": 21},
        "incomplete_details": {"reason": "max_output_tokens"},
        "error": None,
    }
    assert progress.summary(ending) == (
        "incomplete: max_output_tokens · 7 tokens in, 21 out · 3.0 s · 10.0 tokens/s · first token 1.00 s"
    )
    progress.status = "failed"
    assert progress.summary({"error": {"message": "It broke."}}).startswith("failed: It broke. · 0 tokens in")


def test_a_job_in_the_line_shows_its_place_and_counts_down():
    progress, clock = make()
    progress.note_place(18, 40.0)
    clock.now += 2
    assert progress.line() == "queued · 17 jobs are ahead; about 38 s · 2.0 s"
    progress.note_place(2, None)
    assert progress.line() == "queued · 1 job is ahead · 2.0 s"
    progress.waiting = "No worker serves 'x' right now."
    assert progress.line() == "queued · waiting: No worker serves 'x' right now. · 2.0 s"


def test_a_place_is_forgotten_once_the_job_runs():
    progress, _ = make()
    progress.note_place(2, 1.0)
    progress.note_status("in_progress")
    progress.note_status("queued")
    assert progress.line() == "queued · 0.0 s"
