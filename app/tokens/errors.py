"""What can be wrong with a prompt before an engine sees it."""

from app.jobs.errors import JobError


class PromptInvalid(JobError):
    """The model's chat template refuses the messages."""

    code = "invalid_prompt"
    param = "input"


class ContextLengthExceeded(JobError):
    code = "context_length_exceeded"
    param = "input"

    def __init__(self, prompt_tokens: int, output_tokens: int | None, context_tokens: int) -> None:
        asked = f" and you ask for {output_tokens} more" if output_tokens else ""
        super().__init__(
            f"This model's maximum context length is {context_tokens} tokens; your input has"
            f" {prompt_tokens}{asked}. Shorten the input{' or max_output_tokens' if output_tokens else ''}."
        )
