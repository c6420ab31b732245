"""The package `openai` for Python, unmodified: python responses_client.py BASE_URL KEY MODEL..."""

import sys

import openai
from pydantic import BaseModel


class Answer(BaseModel):
    text: str


base_url, key, *models = sys.argv[1:]
class Echo(BaseModel):
    """What the mock echoes: the body that it got."""

    body: str


client = openai.OpenAI(base_url=base_url, api_key=key, max_retries=0)
TOOL = openai.pydantic_function_tool(Answer, name="weather")["function"]
TOOL = {"type": "function", "name": "weather", "parameters": TOOL["parameters"], "strict": True}

for model in models:
    whole = client.responses.create(model=model, input="Hello")
    assert whole.status == "completed" and whole.output_text.startswith("w0 "), whole
    with client.responses.stream(model=model, input="Hello") as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        last = stream.get_final_response()
    assert text == last.output_text == whole.output_text
    assert last.usage == whole.usage, (last.usage, whole.usage)
    items = [{"role": "user", "content": "x-mock:tool_calls=1&thinking_bytes=60\nWhat is the weather?"}]
    first = client.responses.create(model=model, input=items, tools=[TOOL], store=False)
    call = next(item for item in first.output if item.type == "function_call")
    items += first.output
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "Sun."})
    second = client.responses.create(model=model, input=items, tools=[TOOL], store=False)
    assert second.output_text.startswith("w0 "), second
    parsed = client.responses.parse(model=model, input="x-mock:tool_calls=1", tools=[TOOL])
    assert parsed.output[-1].name == "weather", parsed
    echoed = client.responses.parse(model=model, input="x-mock:echo=1", text_format=Echo)
    assert "additionalProperties" in echoed.output_parsed.body, echoed
    with client.responses.stream(model=model, input="x-mock:echo=1", text_format=Echo) as stream:
        last = stream.get_final_response()
    assert "additionalProperties" in last.output_parsed.body, last
    try:
        client.responses.create(model=model, input="Hello", temperature=3)
        raise SystemExit("no error")
    except openai.BadRequestError as error:
        assert error.code == "invalid_parameters", error
    try:
        for _ in client.responses.create(model=model, input="x-mock:fault=error-event&chunk_ms=5", stream=True):
            pass
        raise SystemExit("no error")
    except openai.APIError as error:
        assert error.code == "provider_unavailable", error
print("ok")
