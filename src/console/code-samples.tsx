/**
 * The request of a chat call as a program would send it: with curl, in TypeScript or in Python.
 * playground-page.tsx shows the samples below the conversation. Browser.
 *
 * Must hold: no sample has the key itself. Each reads the variable TOLLGATE_KEY (test/e2e/console.test.ts).
 * Each runs as it stands, whatever text the request and the address have (test/e2e/console-pages.test.ts).
 */
import { useState } from 'preact/hooks';
import type { ChatRequest } from './chat-stream.js';
import { ButtonChoice, CopyButton, type Input, TextField } from './controls.js';

/** By language: the function that makes the code sample. */
const SAMPLES = { curl: curlOf, TypeScript: typescriptOf, Python: pythonOf };
type Language = keyof typeof SAMPLES;
const LANGUAGES = Object.keys(SAMPLES) as Language[];

function curlOf(baseUrl: string, request: ChatRequest): string {
  return `curl ${shellWord(`${baseUrl}/chat/completions`)} \\
  -H "Authorization: Bearer $TOLLGATE_KEY" \\
  -H "Content-Type: application/json" \\
  ${request.stream ? '--no-buffer ' : ''}-d ${shellWord(JSON.stringify(request, null, 2))}`;
}

/** In quotes if needed, within which a shell leaves everything unchanged but the quote itself. */
function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

function typescriptOf(baseUrl: string, request: ChatRequest): string {
  const call = `await client.chat.completions.create(${JSON.stringify(request, null, 2)})`;
  const program = request.stream
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

${program}`;
}

function pythonOf(baseUrl: string, request: ChatRequest): string {
  const fields = Object.entries(request).map(([name, value]) => `    ${name}=${pythonLiteral(value, 1)},`);
  const call = `client.chat.completions.create(\n${fields.join('\n')}\n)`;
  const program = request.stream
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

${program}`;
}

/** Returns a Python literal: JSON with other words for null, true and false, indented by `depth` levels. */
function pythonLiteral(value: unknown, depth: number): string {
  const indent = '    '.repeat(depth + 1);
  const outerIndent = '    '.repeat(depth);
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (value === null) return 'None';
  if (Array.isArray(value)) {
    return `[\n${value.map((item) => `${indent}${pythonLiteral(item, depth + 1)},`).join('\n')}\n${outerIndent}]`;
  }
  if (typeof value === 'object') {
    const entries = Object.entries(value).map(
      ([name, item]) => `${JSON.stringify(name)}: ${pythonLiteral(item, depth + 1)}`,
    );
    return `{${entries.join(', ')}}`;
  }
  return JSON.stringify(value);
}

interface CodeSamplesProps {
  readonly baseUrl: Input;
  readonly request: ChatRequest;
}

/** The request of the next call as code, and the base address to put into it. */
export function CodeSamples({ baseUrl, request }: CodeSamplesProps) {
  const [language, setLanguage] = useState<Language>('curl');
  // A path with a slash of its own is appended.
  const code = SAMPLES[language](baseUrl.value.trim().replace(/\/$/, ''), request);
  return (
    <section class="card">
      <div class="head">
        <h2>As code</h2>
        <div class="head-end">
          <ButtonChoice label="Language" value={language} options={LANGUAGES} onValue={setLanguage} />
          <CopyButton text={code} noun="the code" />
        </div>
      </div>
      <TextField
        label="Base address"
        hint="As callers reach this gateway; its own view of it to begin with. The key is taken from the variable TOLLGATE_KEY."
        {...baseUrl}
      />
      <pre tabIndex={0} role="region" aria-label={`Request in ${language}`}>
        <code>{code}</code>
      </pre>
    </section>
  );
}
