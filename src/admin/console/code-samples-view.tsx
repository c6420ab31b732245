/**
 * The request of the playground as code, to take along. Browser.
 */
import { useState } from 'preact/hooks';
import type { ChatRequest } from './chat-stream.js';
import { LANGUAGES, sampleOf, type Language } from './code-samples.js';
import { CopyButton, Segments, TextField } from './controls.js';

interface CodeSamplesProps {
  readonly baseUrl: string;
  readonly onBaseUrl: (url: string) => void;
  readonly request: ChatRequest;
}

export function CodeSamples({ baseUrl, onBaseUrl, request }: CodeSamplesProps) {
  const [language, setLanguage] = useState<Language>('curl');
  const code = sampleOf(language, baseUrl, request);
  return (
    <section class="card">
      <div class="head">
        <h2>As code</h2>
        <div class="head-end">
          <Segments label="Language" value={language} options={LANGUAGES} onChoice={setLanguage} />
          <CopyButton text={code} what="the code" />
        </div>
      </div>
      <TextField
        label="Base address"
        hint="As callers reach this gateway; its own view of it to begin with. The key is taken from the variable TOLLGATE_KEY."
        value={baseUrl}
        onText={onBaseUrl}
      />
      <pre tabIndex={0} role="region" aria-label={`Request in ${language}`}>
        <code>{code}</code>
      </pre>
    </section>
  );
}
