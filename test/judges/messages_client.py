"""The package `anthropic` for Python, unmodified: python messages_client.py BASE_URL KEY FLAKY_MODEL MODEL...

FLAKY_MODEL is at an upstream that fails each other time.
"""

import sys

import anthropic

base_url, key, flaky, *models = sys.argv[1:]
client = anthropic.Anthropic(base_url=base_url, api_key=key, max_retries=0)
TOOL = {"name": "weather", "input_schema": {"type": "object", "properties": {}}}


def ask(text):
    return [{"role": "user", "content": text}]


def fails(kind, **arguments):
    try:
        arguments.pop("client", client).messages.create(**{"max_tokens": 99, **arguments})
    except kind as error:
        return error
    raise SystemExit(f"no {kind}")


for model in models:
    base = {"model": model, "max_tokens": 2000}
    whole = client.messages.create(**base, messages=ask("Hello"))
    assert whole.content[0].text.startswith("w0 ") and whole.stop_reason == "end_turn", whole
    with client.messages.stream(**base, messages=ask("Hello")) as stream:
        text = "".join(stream.text_stream)
        last = stream.get_final_message()
    assert text == whole.content[0].text == last.content[0].text
    assert last.usage.output_tokens == whole.usage.output_tokens, (last.usage, whole.usage)
    assert last.usage.input_tokens == whole.usage.input_tokens, (last.usage, whole.usage)
    thinking = {"type": "enabled", "budget_tokens": 1500}
    messages = ask("x-mock:tool_calls=1&thinking_bytes=60\nWhat is the weather?")
    first = client.messages.create(**base, messages=messages, tools=[TOOL], thinking=thinking)
    assert first.stop_reason == "tool_use", first
    call = next(block for block in first.content if block.type == "tool_use")
    assert call.name == "weather" and isinstance(call.input, dict), call
    assert any(block.type == "thinking" and block.thinking for block in first.content), first
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Sun."}
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = client.messages.create(**base, messages=messages, tools=[TOOL], thinking=thinking)
    assert second.content[-1].text.startswith("w0 "), second
    counted = client.messages.count_tokens(model=model, messages=ask("Hello"))
    assert 0 < counted.input_tokens < 20, counted
    error = fails(anthropic.BadRequestError, model=model, messages=ask("Hello"), extra_body={"temperature": 3})
    assert error.body["error"]["type"] == "invalid_request_error" and error.request_id, error
    fails(anthropic.InternalServerError, model=model, messages=ask("x-mock:status=500"))
    try:
        for _ in client.messages.create(
            **base, messages=ask("x-mock:fault=error-event&chunk_ms=5"), stream=True
        ):
            pass
        raise SystemExit("no error")
    except anthropic.APIStatusError as error:
        assert error.body["error"]["type"] == "api_error", error

fails(anthropic.NotFoundError, model="none", messages=ask("Hello"))
stranger = anthropic.Anthropic(base_url=base_url, api_key="sk-wrong", max_retries=0)
fails(anthropic.AuthenticationError, client=stranger, model=models[0], messages=ask("Hello"))
again = client.with_options(max_retries=2)
assert again.messages.create(model=flaky, max_tokens=9, messages=ask("Hello")).type == "message"
print("ok")
