"""A whole response, a stream, a retry that is paid once, and an error, with OpenAI's own package.

OPENAI_BASE_URL names the gateway, OPENAI_API_KEY holds one of its keys, MODEL names a model of GET /v1/models.
"""

import os
import uuid

import openai

client = openai.OpenAI()  # reads OPENAI_BASE_URL and OPENAI_API_KEY; repeats after 429 and 5xx by itself
model = os.environ.get("MODEL", "echo")
messages = [{"role": "user", "content": "Hello, Tollgate!"}]

whole = client.chat.completions.create(model=model, messages=messages)
print("whole:", whole.choices[0].message.content)
print("tokens:", whole.usage.total_tokens)

print("stream:", end=" ")
stream = client.chat.completions.create(
    model=model, messages=messages, stream=True, stream_options={"include_usage": True}
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    elif chunk.usage:
        print("\ntokens:", chunk.usage.total_tokens)

# The same key and body again: the gateway gives the first response again and charges nothing.
headers = {"Idempotency-Key": str(uuid.uuid4())}
first = client.chat.completions.create(model=model, messages=messages, extra_headers=headers)
again = client.chat.completions.with_raw_response.create(model=model, messages=messages, extra_headers=headers)
assert again.parse().choices[0].message.content == first.choices[0].message.content
print("replayed:", again.headers.get("idempotent-replayed"))

try:
    client.chat.completions.create(model=model, messages=messages, temperature=3)
except openai.BadRequestError as error:
    print("error:", error.code, "-", error.message)
