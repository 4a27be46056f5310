"""What a person is told of waiting, in a few words. Pure; it imports nothing, so that commands start fast."""


def in_words(seconds: float) -> str:
    """A length of time, as exact as it deserves: `40 s`, `12 min`, `3.5 h`, `2 days`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    if seconds < 36 * 3600:
        return f"{seconds / 3600:.1f} h".replace(".0 h", " h")
    return f"{round(seconds / 86_400)} days"


def standing(position: int, wait_seconds: float | None) -> str:
    """`17 jobs are ahead; about 40 s`."""
    ahead = position - 1
    place = "Next in line" if not ahead else "1 job is ahead" if ahead == 1 else f"{ahead:,} jobs are ahead"
    if wait_seconds is None:
        return place
    return f"{place}; {'about to start' if wait_seconds < 0.5 else 'about ' + in_words(wait_seconds)}"
