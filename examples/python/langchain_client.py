"""LangChain through the gateway: a whole response and a stream.

OPENAI_BASE_URL names the gateway, OPENAI_API_KEY holds one of its keys, MODEL names a model of GET /v1/models.
"""

import os

from langchain_openai import ChatOpenAI

model = ChatOpenAI(
    model=os.environ.get("MODEL", "echo"),
    base_url=os.environ["OPENAI_BASE_URL"],
    api_key=os.environ["OPENAI_API_KEY"],
    stream_usage=True,
)

whole = model.invoke("Hello, Tollgate!")
print("whole:", whole.content)
print("tokens:", whole.usage_metadata["total_tokens"])

print("stream:", end=" ")
for chunk in model.stream("Hello, Tollgate!"):
    print(chunk.content, end="", flush=True)
print()
