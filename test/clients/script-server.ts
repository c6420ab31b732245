/** A provider's API for a coding agent: it calls one of the agent's tools, then says something. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { isRecord, parsedJson } from '#src/core/json.js';
import type { MockCompletion, MockProtocol } from '#src/mock/mock-protocol.js';
import type { Scope } from '../support/mock.js';

export const SAID = 'The greeting is mended.';
export const COMMAND = "sed -i 's/wrold/world/' greeting.txt";
export const USAGE = {
  prompt: 1_000,
  cached: 400,
  written: 0,
  writtenForHour: 0,
  completion: 50,
  reasoning: 0,
};
/** Of one call at TEST_PRICE, in pico-units. */
export const COST = 600n * 1_500_000n + 400n * 750_000n + 50n * 2_250_000n;

export interface Script {
  readonly protocol: MockProtocol;
  /** The agent's tool, and its arguments. */
  readonly tool: string;
  readonly input: object;
  /** Whether the request has the tool's result. */
  readonly hasResult: (body: string) => boolean;
}

export interface ScriptServer {
  /** Without a path. */
  readonly origin: string;
  /** Of all requests so far. */
  readonly bodies: readonly string[];
}

/** Requests without the tool, as for a title, get the text. */
export async function startScript(t: Scope, script: Script): Promise<ScriptServer> {
  const { protocol, tool, input, hasResult } = script;
  const bodies: string[] = [];
  const server = createServer((request, response) => {
    void text(request).then((body) => {
      bodies.push(body);
      const { stream, model, tools } = (parsedJson(body) ?? {}) as Readonly<Record<string, unknown>>;
      const isAsked =
        Array.isArray(tools) &&
        tools.some((one) => isRecord(one) && JSON.stringify(one).includes(`"${tool}"`));
      const calls = isAsked && !hasResult(body);
      const answer: MockCompletion = {
        request: {
          model: String(model),
          stream: stream === true,
          includeUsage: true,
          promptTokens: 0,
          directives: undefined,
          toolNames: [],
          endsWithToolResult: !calls,
        },
        thinking: [],
        texts: [calls ? 'I mend it.' : SAID],
        tools: calls ? [{ id: 'call_1', name: tool, pieces: [JSON.stringify(input)] }] : [],
        finish: calls ? 'tool_calls' : 'stop',
        usage: USAGE,
        isUsageLate: false,
      };
      const type = stream === true ? protocol.streamType : 'application/json';
      response.writeHead(200, { 'content-type': type });
      response.end(stream === true ? Buffer.concat(protocol.frames(answer)) : protocol.whole(answer));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  return { origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, bodies };
}
