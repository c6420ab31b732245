/**
 * A whole response, a stream, a retry that is paid once, and an error, with OpenAI's own package.
 *
 * OPENAI_BASE_URL names the gateway, OPENAI_API_KEY holds one of its keys, MODEL names a model of GET
 * /v1/models.
 */
import { randomUUID } from 'node:crypto';
import OpenAI from 'openai';

const client = new OpenAI(); // reads OPENAI_BASE_URL and OPENAI_API_KEY; repeats after 429 and 5xx by itself
const model = process.env.MODEL ?? 'echo';
const messages = [{ role: 'user' as const, content: 'Hello, Tollgate!' }];

const whole = await client.chat.completions.create({ model, messages });
console.log('whole:', whole.choices[0]?.message.content);
console.log('tokens:', whole.usage?.total_tokens);

process.stdout.write('stream: ');
const stream = await client.chat.completions.create({
  model,
  messages,
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta.content ?? '');
  if (chunk.usage) console.log('\ntokens:', chunk.usage.total_tokens);
}

// The same key and body again: the gateway gives the first response again and charges nothing.
const headers = { 'Idempotency-Key': randomUUID() };
await client.chat.completions.create({ model, messages }, { headers });
const again = await client.chat.completions.create({ model, messages }, { headers }).withResponse();
console.log('replayed:', again.response.headers.get('idempotent-replayed'));

try {
  await client.chat.completions.create({ model, messages, temperature: 3 });
} catch (error) {
  if (!(error instanceof OpenAI.APIError)) throw error;
  console.log('error:', error.code, '-', error.message);
}
