/** What goes to Bedrock: paths, authorisation, and signatures as the AWS SDK makes them. */
import {
  BedrockRuntimeClient,
  ConverseCommand,
  ConverseStreamCommand,
} from '@aws-sdk/client-bedrock-runtime';
import t from 'tap';
import { BEDROCK } from '#src/providers/bedrock/bedrock.js';
import { BEDROCK_SETTINGS, bedrockCall, CLAUDE } from '../../../support/bedrock.js';
import { requestOf } from '../../../support/provider-forms.js';

const PROFILE =
  'arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-sonnet-4-5-20250929-v1:0';
const BODY = { messages: [{ role: 'user', content: 'Grüße' }] };
const AWS = {
  kind: 'aws',
  accessKeyId: 'AKIDEXAMPLE',
  secretAccessKey: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY',
} as const;

void t.test('a key is a bearer token, and nothing is signed', (t) => {
  const request = requestOf(BEDROCK, bedrockCall(BODY));
  t.equal(request.path, '/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse');
  t.same(request.headers, ['authorization', 'Bearer bedrock-key']);
  t.same(JSON.parse(request.body), { messages: [{ role: 'user', content: [{ text: 'Grüße' }] }] });
  t.end();
});

void t.test('the base path of the settings is before the model', (t) => {
  const call = bedrockCall({ ...BODY, stream: true }, { settings: { basePath: '/proxy' }, model: PROFILE });
  t.equal(requestOf(BEDROCK, call).path, `/proxy/model/${encodeURIComponent(PROFILE)}/converse-stream`);
  t.end();
});

interface SdkRequest {
  readonly path: string;
  headers: Record<string, string>;
  body: unknown;
}

/** What the SDK signs at the time of `bedrockCall`: our body, and none of the headers that it alone sends. */
async function sdkRequest(
  model: string,
  stream: boolean,
  body: string,
  sessionToken: string | undefined,
): Promise<SdkRequest> {
  let sent: SdkRequest | undefined;
  const { accessKeyId, secretAccessKey } = AWS;
  const client = new BedrockRuntimeClient({
    region: BEDROCK_SETTINGS.region,
    credentials: { accessKeyId, secretAccessKey, ...(sessionToken !== undefined && { sessionToken }) },
    systemClockOffset: bedrockCall({}).nowMs - Date.now(),
    maxAttempts: 1,
    requestHandler: {
      handle: (request: SdkRequest) => {
        sent = request;
        return Promise.reject(new Error('not sent'));
      },
    } as never,
  });
  const bare = (next: (args: unknown) => unknown) => (args: { readonly request: SdkRequest }) => {
    const { request } = args;
    const { host, 'content-type': type } = request.headers;
    request.headers = { host: host!, 'content-type': type! };
    request.body = body;
    return next(args);
  };
  client.middlewareStack.addRelativeTo(bare as never, {
    relation: 'before',
    toMiddleware: 'httpSigningMiddleware',
  });
  const input = { modelId: model, messages: [] };
  const sending: Promise<unknown> = stream
    ? client.send(new ConverseStreamCommand(input))
    : client.send(new ConverseCommand(input));
  await t.rejects(sending, /not sent/);
  return sent!;
}

for (const model of [CLAUDE, PROFILE, "odd!'()* model"]) {
  for (const stream of [false, true]) {
    for (const sessionToken of [undefined, 'IQoJb3JpZ2luX2VjE/+=']) {
      const name = `${model}${stream ? ', streamed' : ''}${sessionToken === undefined ? '' : ', with a session'}`;
      void t.test(`signed as the SDK signs: ${name}`, async (t) => {
        const call = bedrockCall({ ...BODY, stream }, { model, credential: { ...AWS, sessionToken } });
        const request = requestOf(BEDROCK, call);
        const theirs = await sdkRequest(model, stream, request.body, sessionToken);
        const headers = new Map<string, string>();
        for (let at = 0; at < request.headers.length; at += 2) {
          headers.set(request.headers[at]!, request.headers[at + 1]!);
        }
        t.equal(request.path, theirs.path);
        t.equal(headers.get('x-amz-date'), theirs.headers['x-amz-date']);
        t.equal(headers.get('authorization'), theirs.headers.authorization);
        t.equal(headers.get('x-amz-security-token'), sessionToken);
        t.match(
          headers.get('authorization'),
          /\/us-east-1\/bedrock\/aws4_request, SignedHeaders=content-type;host;x-amz-content-sha256;x-amz-date/,
        );
      });
    }
  }
}
