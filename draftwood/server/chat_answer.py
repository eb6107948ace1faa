"""The response of ``/v1/chat/completions``."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from msgspec import UNSET

from draftwood.engine.logprobs import TokenLogprob
from draftwood.engine.request import Completion, Delta
from draftwood.server.answer import Answer
from draftwood.server.logprobs import chat_logprobs
from draftwood.server.parsing import AnswerParser, Call, Part, Reasoning, Text
from draftwood.server.schemas.answers import (
    AnswerMessage,
    AnswerToolCall,
    ChatChoice,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    Chunk,
    FinishReason,
    Function,
    finish_reason,
)


@dataclass(eq=False)
class _Parts:
    """All parts of one choice so far."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[AnswerToolCall] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    deltas: list[Delta] = field(default_factory=list)

    def add(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if isinstance(part, Call):
                self.calls.append(_call(part))
            else:
                (self.text if isinstance(part, Text) else self.reasoning).append(part.text)

    def message(self) -> AnswerMessage:
        text = "".join(self.text)
        return AnswerMessage(
            content=None if self.calls and not text else text,
            reasoning_content="".join(self.reasoning) if self.reasoning else UNSET,
            tool_calls=self.calls or UNSET,
        )


class ChatAnswer(Answer):
    """The answers to a conversation."""

    prefix = "chatcmpl"
    chunk_object = "chat.completion.chunk"
    parsers: Sequence[AnswerParser]
    """Of the choices."""

    async def whole(self) -> ChatCompletion:
        """See :class:`Answer`."""
        found = [_Parts() for _ in self.parsers]
        choices: dict[int, ChatChoice] = {}
        async for index, event in self.events():
            parts = found[index]
            if isinstance(event, Delta):
                parts.add(self._parts(index, event))
                parts.logprobs += event.logprobs
                parts.deltas.append(event)
                continue
            parts.add(self.parsers[index].finish())
            choices[index] = ChatChoice(
                index=index,
                message=parts.message(),
                logprobs=self._logprobs(parts.logprobs),
                finish_reason=_reason(event, called=bool(parts.calls)),
                speculative_decoding_stats=self.stats(event),
                token_sources=self.sources(*parts.deltas),
            )
        return ChatCompletion(
            id=self.id,
            created=self.created,
            model=self.model,
            choices=[choices[index] for index in sorted(choices)],
            usage=self.usage,
            metrics=self.metrics,
        )

    def beginning(self, index: int) -> Chunk:
        """See :class:`Answer`."""
        begin = ChatDelta(role="assistant", content="")
        return self.chunk([ChatChunkChoice(index=index, delta=begin)])

    def chunks(self, index: int, event: Delta | Completion) -> Iterator[Chunk]:
        """See :class:`Answer`."""
        if isinstance(event, Delta):
            parts, logprobs = self._parts(index, event), self._logprobs(event.logprobs)
            sources = self.sources(event)
        else:
            parts, logprobs, sources = self.parsers[index].finish(), None, UNSET
        deltas = _deltas(parts, self._calls[index])
        self._calls[index] += sum(isinstance(part, Call) for part in parts)
        if (logprobs is not None or sources) and not deltas:
            deltas = [ChatDelta(content="")]
        for delta in deltas:
            found = ChatChunkChoice(index=index, delta=delta, logprobs=logprobs)
            found.token_sources = sources
            yield self.chunk([found])
            logprobs, sources = None, UNSET
        if not isinstance(event, Delta):
            last = ChatChunkChoice(index=index, delta=ChatDelta())
            last.finish_reason = _reason(event, called=self._calls[index] > 0)
            last.speculative_decoding_stats = self.stats(event)
            yield self.chunk([last])

    @cached_property
    def _calls(self) -> Counter[int]:
        """The calls that the stream of each choice has had so far."""
        return Counter()

    def _parts(self, index: int, delta: Delta) -> list[Part]:
        parser = self.parsers[index]
        return [part for piece in delta.pieces for part in parser.feed(piece)]

    def _logprobs(self, found: Sequence[TokenLogprob]) -> ChatLogprobs | None:
        return chat_logprobs(found, self.service.text) if found else None


def _deltas(parts: Sequence[Part], calls: int) -> list[ChatDelta]:
    """What chunks add for some parts; neighbours of one kind are joined."""
    found: list[ChatDelta] = []
    for part in parts:
        last = found[-1] if found else None
        if isinstance(part, Call):
            found.append(ChatDelta(tool_calls=[_call(part, calls)]))
            calls += 1
        elif isinstance(part, Reasoning):
            if last is None or last.reasoning_content is None:
                found.append(ChatDelta(reasoning_content=part.text))
            else:
                last.reasoning_content += part.text
        elif last is None or last.content is None:
            found.append(ChatDelta(content=part.text))
        else:
            last.content += part.text
    return found


def _call(part: Call, index: int | None = None) -> AnswerToolCall:
    function = Function(part.name, part.arguments)
    return AnswerToolCall(id=part.id, function=function, index=UNSET if index is None else index)


def _reason(completion: Completion, *, called: bool) -> FinishReason:
    # Of an answer that was cut off, calls may be missing.
    reason = finish_reason(completion)
    return "tool_calls" if called and reason == "stop" else reason
