"""From a stored job to what is asked of the engine: the prompt's tokens, the sampling, and the output so far
that the engine is to continue.
"""

from app.db import transaction
from app.jobs import lifecycle, log
from app.jobs.log import Output
from app.jobs.requests import JobRequest, JsonObject, JsonSchema
from app.streams.announce import announce
from config.queues import Tier
from workers.engine import Call, Engine, FinishReason, PromptRejected, Sampling
from workers.output import TextAssembler
from workers.reading import Reading
from workers.running import Cause, RunningJob


def prepare(engine: Engine, job: RunningJob) -> Call | None:
    """None where earlier attempts, or a stop that came first, leave nothing to generate. Raises
    `PromptRejected`.
    """
    request = JobRequest.model_validate(job.job.request)
    if request.tool_use and not engine.spec.tool_parser:
        raise PromptRejected(f"The model {engine.spec.name} calls no tools.")
    prompt_ids = engine.encode(request.prompt)
    job.input_tokens = len(prompt_ids)
    sampling = sampling_of(request, room=engine.spec.context_tokens - len(prompt_ids))
    if request.logprobs is not None:
        job.collect_logprobs(engine)
    _continue(engine, job, request, sampling, prompt_ids)
    if job.is_stopped:
        job.finish = FinishReason.STOP
    elif job.tokens >= sampling.max_tokens:
        job.finish = FinishReason.LENGTH
    if job.finish or job.cause:
        return None
    return Call(
        id=f"{job.id}:{job.attempt}",
        prompt_ids=prompt_ids,
        sampling=sampling,
        prior_ids=job.prior_ids,
        priority=list(Tier).index(job.job.tier),
        cache_salt=job.job.account_id,
    )


def sampling_of(request: JobRequest, *, room: int) -> Sampling:
    """`room` is how many tokens the context window has left. Raises `PromptRejected` if there is none."""
    if room < 1:
        raise PromptRejected("The input is longer than the model's context window.")
    wanted = request.text.format
    return Sampling(
        max_tokens=min(request.max_output_tokens or room, room),
        min_tokens=min(request.min_output_tokens, room),
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        min_p=request.min_p,
        seed=request.seed,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        repetition_penalty=request.repetition_penalty,
        logit_bias=request.logit_bias,
        logprobs=request.logprobs,
        ignore_eos=request.ignore_eos,
        json_schema=wanted.schema_ if isinstance(wanted, JsonSchema) else None,
        json_object=isinstance(wanted, JsonObject),
        tool_use=request.tool_use,
    )


def _continue(
    engine: Engine, job: RunningJob, request: JobRequest, sampling: Sampling, prompt_ids: list[int]
) -> None:
    """Go on where earlier attempts stopped, or begin again where that cannot be: a grammar cannot start half
    way, and another tokenizer (a new release of the model) reads the stored tokens differently.
    """

    def assembler() -> TextAssembler:
        return TextAssembler(engine.decoder(prompt_ids), request.stop, request.min_output_tokens)

    def reading() -> Reading | None:
        if request.prompt_format == "raw":
            return None
        reader = engine.reader(request.tool_use, prompt_ids, job.id)
        return None if reader is None else Reading(reader)

    with transaction() as session:
        prior = log.read_output(session, job.job) if job.attempt > 1 else Output()
    if job.resume(assembler(), reading(), prior) and not (prior.token_ids and sampling.is_structured):
        return
    with transaction() as session:
        rewind = lifecycle.restart(session, job.id, job.lease_id)
    if rewind is None:
        job.stop(Cause.LEASE_LOST)
        return
    announce([rewind])
    job.restart(assembler(), reading(), rewind.seq)
