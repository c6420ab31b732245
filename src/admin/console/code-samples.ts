/**
 * The playground's request as a program would send it. The key is named and never written out. Pure; browser.
 */
import type { ChatRequest } from './chat-stream.js';

export const LANGUAGES = ['curl', 'TypeScript', 'Python'] as const;
export type Language = (typeof LANGUAGES)[number];

export function sampleOf(language: Language, baseUrl: string, request: ChatRequest): string {
  switch (language) {
    case 'curl':
      return curlOf(baseUrl, request);
    case 'TypeScript':
      return typescriptOf(baseUrl, request);
    case 'Python':
      return pythonOf(baseUrl, request);
  }
}

function curlOf(baseUrl: string, request: ChatRequest): string {
  // Within quotes a shell takes everything as it is but the quote itself.
  const body = JSON.stringify(request, null, 2).replaceAll("'", `'\\''`);
  return `curl ${baseUrl}/chat/completions \\
  -H "Authorization: Bearer $TOLLGATE_KEY" \\
  -H "Content-Type: application/json" \\
  ${request.stream ? '--no-buffer ' : ''}-d '${body}'`;
}

function typescriptOf(baseUrl: string, request: ChatRequest): string {
  const call = `await client.chat.completions.create(${JSON.stringify(request, null, 2)})`;
  const rest = request.stream
    ? `const stream = ${call};
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta?.content ?? '');
}`
    : `const completion = ${call};
console.log(completion.choices[0]?.message.content);`;
  return `import OpenAI from 'openai';

const client = new OpenAI({
  baseURL: ${JSON.stringify(baseUrl)},
  apiKey: process.env.TOLLGATE_KEY,
});

${rest}`;
}

function pythonOf(baseUrl: string, request: ChatRequest): string {
  const fields = Object.entries(request).map(([name, value]) => `    ${name}=${pythonLiteral(value, 1)},`);
  const call = `client.chat.completions.create(\n${fields.join('\n')}\n)`;
  const rest = request.stream
    ? `stream = ${call}
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)`
    : `completion = ${call}
print(completion.choices[0].message.content)`;
  return `import os
from openai import OpenAI

client = OpenAI(
    base_url=${JSON.stringify(baseUrl)},
    api_key=os.environ["TOLLGATE_KEY"],
)

${rest}`;
}

/** JSON but for its three words. Text in JSON's quotes is text in Python's. */
function pythonLiteral(value: unknown, depth: number): string {
  const indent = '    '.repeat(depth + 1);
  const end = '    '.repeat(depth);
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (value === null) return 'None';
  if (Array.isArray(value)) {
    return `[\n${value.map((item) => `${indent}${pythonLiteral(item, depth + 1)},`).join('\n')}\n${end}]`;
  }
  if (typeof value === 'object') {
    const members = Object.entries(value).map(
      ([name, member]) => `${JSON.stringify(name)}: ${pythonLiteral(member, depth + 1)}`,
    );
    return `{${members.join(', ')}}`;
  }
  return JSON.stringify(value);
}
