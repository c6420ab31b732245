"""The package `openai` for Python, unmodified, for embeddings: python embeddings_client.py BASE_URL KEY MODEL"""

import math
import sys

import openai

base_url, key, model = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key=key, max_retries=0)


def near(one, other):
    return len(one) == len(other) and all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(one, other))


# The package asks for base64 unless it is told otherwise.
one = client.embeddings.create(model=model, input="Hello")
floats = client.embeddings.create(model=model, input="Hello", encoding_format="float")
assert near(one.data[0].embedding, floats.data[0].embedding), one
assert one.usage.prompt_tokens == one.usage.total_tokens == 2, one.usage
many = client.embeddings.create(model=model, input=["Hello", "Größe", "c"], dimensions=400)
assert [len(each.embedding) for each in many.data] == [400, 400, 400], many
assert [each.index for each in many.data] == [0, 1, 2], many
tokens = client.embeddings.create(model=model, input=[[1, 2, 3], [4]])
assert tokens.usage.prompt_tokens == 4, tokens.usage
for refused, kind in [({"input": []}, openai.BadRequestError), ({"model": "none"}, openai.BadRequestError)]:
    try:
        client.embeddings.create(**{"model": model, "input": "Hello", **refused})
        raise SystemExit(f"no error: {refused}")
    except kind as error:
        assert error.body["message"] and error.request_id, error
print("ok")
