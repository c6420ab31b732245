/** A small valid body of each door, for tests that change or add members. */
export const DOOR_BODIES = {
  chat: { model: 'm', messages: [{ role: 'user', content: 'x' }] },
  messages: { model: 'm', max_tokens: 1, messages: [{ role: 'user', content: 'x' }] },
  responses: { model: 'm', input: 'x' },
  embeddings: { model: 'm', input: 'x' },
  completions: { model: 'm', prompt: 'x' },
  moderations: { model: 'm', input: 'x' },
  rerank: { model: 'm', query: 'x', documents: ['x'] },
  count_tokens: { model: 'm', messages: [{ role: 'user', content: 'x' }] },
};
