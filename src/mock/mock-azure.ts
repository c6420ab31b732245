/**
 * The mock's Azure OpenAI: OpenAI's protocol at other paths, with another header for the key, and with filter
 * results in responses. mock-upstream.ts has the protocol in its table. Pure.
 *
 * Follows "Azure OpenAI REST API reference", learn.microsoft.com, November 2026.
 *
 * Must hold: a wrong path, version or key is rejected as Azure rejects it.
 */
import { OPENAI_MOCK, readOpenAi } from './mock-openai.js';
import { sseFrame, type MockCall, type MockError, type MockProtocol } from './mock-protocol.js';

const AZURE_PATH = /^\/openai\/(?:deployments\/([^/]+)|v1)(\/chat\/completions|\/completions|\/embeddings)$/;
const AZURE_VERSION = /^api-version=\d{4}-\d\d-\d\d(?:-preview)?$/;

function azureError(status: number, code: string, message: string): MockError {
  return { status, error: JSON.stringify({ error: { code, message } }) };
}

/** Azure's error for a wrong path, version or key, or for the deployment `missing`; undefined without one. */
function azureRejection({ path, query, headers }: MockCall): MockError | undefined {
  const [matchedPath, deployment] = AZURE_PATH.exec(path) ?? [];
  const isVersion =
    deployment === undefined ? query === '' || query === 'api-version=preview' : AZURE_VERSION.test(query);
  if (matchedPath === undefined || !isVersion) return azureError(404, '404', 'Resource not found');
  const hasKey = Boolean(headers['api-key']) || headers.authorization?.startsWith('Bearer ') === true;
  if (!hasKey || (headers['api-key'] !== undefined && headers.authorization !== undefined))
    return azureError(
      401,
      '401',
      'Access denied due to invalid subscription key or wrong API endpoint. Make sure to provide a valid key for an active subscription and use a correct regional API endpoint for your resource.',
    );
  if (deployment !== 'missing') return undefined;
  return azureError(404, 'DeploymentNotFound', 'The API deployment for this resource does not exist.');
}

const FILTERS = Object.fromEntries(
  ['hate', 'self_harm', 'sexual', 'violence'].map((name) => [name, { filtered: false, severity: 'safe' }]),
);

/** Filter results come with a whole response, and in an event without choices at the start of a stream. */
export const AZURE_MOCK: MockProtocol = {
  ...OPENAI_MOCK,
  read(call) {
    const error = azureRejection(call);
    if (error !== undefined) return error;
    // `!`: azureRejection has matched the path.
    const request = readOpenAi(AZURE_PATH.exec(call.path)![2]!, call.body);
    return 'problem' in request ? azureError(400, 'BadRequest', request.problem) : request;
  },
  whole(completion) {
    if (completion.request.door?.kind === 'embeddings') return OPENAI_MOCK.whole(completion);
    const response = JSON.parse(OPENAI_MOCK.whole(completion)) as { choices: object[] };
    const choices = response.choices.map((choice) => ({ ...choice, content_filter_results: FILTERS }));
    const prompts = [{ prompt_index: 0, content_filter_results: FILTERS }];
    return JSON.stringify({ ...response, choices, prompt_filter_results: prompts });
  },
  frames: (completion) => [
    sseFrame(
      JSON.stringify({
        choices: [],
        created: 0,
        id: '',
        model: '',
        object: '',
        prompt_filter_results: [{ prompt_index: 0, content_filter_results: FILTERS }],
      }),
    ),
    ...OPENAI_MOCK.frames(completion),
  ],
  error(status, message) {
    if (status !== 400) return azureError(status, String(status), message);
    // The mock's 400 stands for a prompt that the content filter stops.
    const innererror = { code: 'ResponsibleAIPolicyViolation', content_filter_result: FILTERS };
    const error = { message, type: null, param: 'prompt', code: 'content_filter', status, innererror };
    return { status, error: JSON.stringify({ error }) };
  },
};
