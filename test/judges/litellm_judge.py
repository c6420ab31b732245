"""What LiteLLM makes of chat completions for other providers, and of their answers. No network: its HTTP
client has a transport that records the request and gives the answer.

Reads lines of JSON: {id, model, request, answer}. `request` is a chat completion without its model. `answer`:
{status, headers, body} with `body` in base64. Writes a line for each: {id, url, sent, completion, chunks, error};
`sent` is the body for the provider, `completion` or `chunks` what a caller gets, `error` {status, kind, message}.
"""

import base64
import json
import logging
import os
import socket
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["LITELLM_MODE"] = "PRODUCTION"
os.environ["AWS_BEARER_TOKEN_BEDROCK"] = "judge-key"
os.environ["AWS_REGION"] = "us-east-1"


def refuse(*_, **__):
    raise OSError("a judge has no network")


socket.socket.connect = refuse
socket.getaddrinfo = refuse

import httpx  # noqa: E402
import litellm  # noqa: E402
from litellm.llms.custom_httpx.http_handler import HTTPHandler  # noqa: E402
from litellm.llms.vertex_ai.vertex_llm_base import VertexBase  # noqa: E402

# A token of Google's, which it would ask the network for.
VertexBase._ensure_access_token = lambda self, *_, **__: ("judge-token", "project-of-ours")

litellm.suppress_debug_info = True
litellm.num_retries = 0
logging.disable(logging.CRITICAL)


def authorised(model):
    if model.startswith("vertex_ai/"):
        return {"vertex_project": "project-of-ours", "vertex_location": "us-east5"}
    return {"api_key": "judge-key"}


def judge(case):
    sent = {}
    answer = case["answer"]

    def handle(request):
        sent["url"] = str(request.url)
        sent["body"] = json.loads(request.content)
        return httpx.Response(
            answer["status"], headers=answer["headers"], content=base64.b64decode(answer["body"])
        )

    client = HTTPHandler(client=httpx.Client(transport=httpx.MockTransport(handle)))
    result = {"completion": None, "chunks": None, "error": None}
    try:
        given = litellm.completion(
            model=case["model"], client=client, num_retries=0, **authorised(case["model"]), **case["request"]
        )
        if case["request"].get("stream"):
            result["chunks"] = [chunk.model_dump(exclude_none=True) for chunk in given]
        else:
            result["completion"] = given.model_dump(exclude_none=True)
    except Exception as error:  # Whatever it is, it is this judge's word on the case.
        is_length = isinstance(error, litellm.ContextWindowExceededError)
        result["error"] = {
            "status": getattr(error, "status_code", None),
            "kind": "context_length_exceeded" if is_length else None,
            "message": str(error)[:300],
        }
    return {"id": case["id"], "url": sent.get("url"), "sent": sent.get("body"), **result}


for line in sys.stdin:
    print(json.dumps(judge(json.loads(line))), flush=True)
# LiteLLM's threads may wait for the network.
sys.stdout.flush()
os._exit(0)
