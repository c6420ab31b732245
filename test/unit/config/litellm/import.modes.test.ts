/** What a model serves whose entry does not say it. */
import t from 'tap';
import { imported, importedFile } from './support.js';

const NOT_IN_FILE = 'model_info.mode is not in the file: ';

void t.test('a model without a mode serves what its name says', (t) => {
  const { models, lines, leftOut } = imported(
    t,
    { model: 'openai/text-embedding-3-small' },
    { model: 'hosted_vllm/BAAI/bge-reranker-v2-m3', api_base: 'http://h/v1' },
    { model: 'hosted_vllm/BAAI/bge-m3', api_base: 'http://h/v1' },
    { model: 'openai/omni-moderation-latest' },
    { model: 'openai/gpt-3.5-turbo-instruct' },
    { model: 'openai/gpt-4o' },
    { model: 'openai/o3-mini' },
    { model: 'groq/llama-3.3-70b-versatile' },
    { model: 'anthropic/x' },
    { model: 'openai/whisper-1' },
    { model: 'openai/gpt-4o-mini-tts' },
    { model: 'openai/dall-e-3' },
    { model: 'gemini/text-embedding-004' },
  );
  t.same(
    models.map(({ id, serves }) => [id, serves]),
    [
      ['m0', ['embeddings']],
      ['m1', ['rerank']],
      ['m2', ['embeddings']],
      ['m3', ['moderations']],
      ['m4', ['completions']],
      ...[5, 6, 7, 8].map((at) => [`m${at}`, ['chat']]),
    ],
  );
  t.equal(leftOut, 4, 'what Tollgate does not serve, or not of this provider');
  t.same(
    lines.filter((line) => line.includes(NOT_IN_FILE)).map((line) => line.split(':')[0]),
    [0, 1, 2, 3, 4, 9, 10, 11, 12].map((at) => `model_list[${at}].litellm_params.model`),
    'a name that is not of a chat model is told of',
  );
  t.ok(
    lines.includes(
      `model_list[0].litellm_params.model: ${NOT_IN_FILE}"text-embedding-3-small" was taken for embedding by its name; if it is not, set mode and import again`,
    ),
  );
  t.end();
});

void t.test('a name of a chat model that may be of something else', (t) => {
  const { models, lines, leftOut } = imported(
    t,
    { model: 'openai/gpt-4o-realtime-preview' },
    { model: 'openai/gpt-realtime' },
    { model: 'xai/grok-2-image' },
    { model: 'mistral/mistral-ocr-latest' },
    { model: 'openai/gpt-4o-audio-preview' },
    { model: 'gemini/gemini-2.5-flash-image' },
    { model: 'openai/gpt-4.1' },
  );
  t.same(
    models.map(({ id, serves }) => [id, serves]),
    [2, 3, 4, 5, 6].map((at) => [`m${at}`, ['chat']]),
  );
  t.equal(leftOut, 2, 'what speaks over a socket');
  t.same(
    lines.filter((line) => line.includes(NOT_IN_FILE)).map((line) => line.split(': ').at(-1)),
    ['realtime', 'realtime', 'chat', 'chat'].map((mode, at) => {
      const model = ['gpt-4o-realtime-preview', 'gpt-realtime', 'grok-2-image', 'mistral-ocr-latest'][at];
      const byName = mode === 'chat' ? '' : ' by its name';
      return `"${model}" was taken for ${mode}${byName}; if it is not, set mode and import again`;
    }),
  );
  t.end();
});

void t.test('a model that its provider has by Responses alone', (t) => {
  const model_info = { mode: 'responses' };
  const azure = { api_base: 'https://r.openai.azure.com', api_key: 'os.environ/K', api_version: 'v1' };
  const { upstreams, models, lines, leftOut } = importedFile(t, {
    model_list: [
      { model_name: 'pro', litellm_params: { model: 'openai/o3-pro' }, model_info },
      { model_name: 'at-azure', litellm_params: { model: 'azure/d', ...azure }, model_info },
      { model_name: 'claude', litellm_params: { model: 'anthropic/claude-opus-4-5' }, model_info },
    ],
  });
  t.equal(leftOut, 0);
  t.same(
    models.map(({ serves }) => serves),
    [['chat'], ['chat'], ['chat']],
  );
  t.same(
    upstreams.map(({ speaks }) => speaks),
    [['responses'], ['responses'], []],
    'calls of it are translated for Anthropic',
  );
  t.same(
    lines.filter((line) => line.includes('.mode:')).map((line) => line.split(':')[0]),
    [0, 1].map((at) => `model_list[${at}].model_info.mode`),
  );
  t.match(lines.join('\n'), /mode: responses: callers reach it by POST \/v1\/responses alone/);
  t.end();
});

void t.test('a name that says nothing', (t) => {
  const azure = { model: 'azure/d', api_base: 'https://r.openai.azure.com', api_version: '2024-10-21' };
  const { models, lines } = importedFile(t, {
    model_list: [
      { model_name: 'plain', litellm_params: azure },
      { model_name: 'text-embedding-ada-002', litellm_params: azure },
      { model_name: 'b', litellm_params: azure, model_info: { base_model: 'azure/text-embedding-3-large' } },
      { model_name: 'c', litellm_params: azure, model_info: { mode: 'embedding' } },
    ],
  });
  t.same(
    models.map(({ id, serves }) => [id, serves]),
    [
      ['plain', ['chat']],
      ['text-embedding-ada-002', ['embeddings']],
      ['b', ['embeddings']],
      ['c', ['embeddings']],
    ],
  );
  t.ok(
    lines.includes(
      `model_list[0].litellm_params.model: ${NOT_IN_FILE}"d" was taken for chat; if it is not, set mode and import again`,
    ),
  );
  t.notOk(lines.some((line) => line.startsWith('model_list[3]') && line.includes(NOT_IN_FILE)));
  t.match(lines.join('\n'), /model_list\[2\]\.model_info: base_model: a description/);
  t.end();
});

void t.test('a price of input alone is whole where there is no output', (t) => {
  const cost = { input_cost_per_token: 2e-8 };
  const { models, lines } = imported(
    t,
    { model: 'openai/text-embedding-3-small', ...cost },
    { model: 'openai/gpt-3.5-turbo-instruct', ...cost },
    { name: 'both', model: 'openai/gpt-4o', ...cost },
    { name: 'both', model: 'openai/text-embedding-3-small', ...cost },
  );
  t.match(models[0]!.price, { input: '0.02', output: '0' });
  t.same(
    lines.filter((line) => line.includes('only one of the two prices')).map((line) => line.split(':')[0]),
    ['model_list[1].model_name', 'model_list[2].model_name'],
  );
  t.end();
});
