"""docs/serving.md says what is done with every field, flag, endpoint and metric."""

import re

import click
import msgspec
import pytest

from draftwood import cli
from draftwood.server.app import ROUTES
from draftwood.server.schemas.chat import ChatRequest
from draftwood.server.schemas.completion import CompletionRequest
from draftwood.server.schemas.fields import StreamOptions
from draftwood.server.schemas.messages import Message, Part
from draftwood.server.schemas.stats import Stats
from draftwood.server.schemas.tokens import DetokenizeRequest, TokenizeRequest
from draftwood.server.values import SUPPORTED, descriptions
from tests.serving import PAGE, written

KINDS = (
    ChatRequest,
    CompletionRequest,
    Message,
    Part,
    StreamOptions,
    TokenizeRequest,
    DetokenizeRequest,
    Stats,
)
OPENAI = "messages model frequency_penalty logit_bias logprobs max_completion_tokens max_tokens n "
OPENAI += "metadata modalities parallel_tool_calls prediction presence_penalty reasoning_effort "
OPENAI += "response_format seed service_tier stop store stream stream_options temperature "
OPENAI += "tool_choice tools top_logprobs top_p user audio function_call functions "
OPENAI += "safety_identifier prompt_cache_key verbosity web_search_options"


def test_the_page_has_the_tables_of_the_structs() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page, "run python -m tests.serving"


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_says_what_is_done_with_it(kind: type[msgspec.Struct]) -> None:
    assert set(descriptions(kind)) == set(kind.__struct_fields__)


def test_every_field_of_openais_chats_is_known() -> None:
    assert set(OPENAI.split()) <= set(ChatRequest.__struct_fields__)


def test_fields_with_few_values_are_fields() -> None:
    known = {*ChatRequest.__struct_fields__, *CompletionRequest.__struct_fields__}
    assert set(SUPPORTED) <= known


def test_the_page_names_every_flag_of_the_command() -> None:
    command = cli.cli.get_command(click.Context(cli.cli), "serve")
    assert command is not None
    page = PAGE.read_text(encoding="utf-8")
    flags = {option for param in command.params for option in param.opts if option[:2] == "--"}
    common = {"--trust-remote-code", "--drafter", "--verifier"}
    assert {flag for flag in flags if f"`{flag}" not in page} == common


def test_the_page_names_every_endpoint() -> None:
    page = PAGE.read_text(encoding="utf-8")
    paths = {re.sub(r"\{.*\}", "NAME", route.path) for route in ROUTES}
    assert not {path for path in paths if f"{path}`" not in page}
