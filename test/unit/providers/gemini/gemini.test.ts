/** Where a call to Gemini goes, with what authorisation. */
import t from 'tap';
import { GEMINI } from '#src/providers/gemini/gemini.js';
import { requestOf } from '../../../support/provider-forms.js';
import { geminiCall } from './gemini-call.js';

const written = (...of: Parameters<typeof geminiCall>) => requestOf(GEMINI, geminiCall(...of));

void t.test('a whole response', (t) => {
  const request = written({});
  t.equal(request.path, '/v1beta/models/gemini-2.5-flash:generateContent');
  t.strictSame(request.headers, ['x-goog-api-key', 'AIza-test']);
  t.strictSame(JSON.parse(request.body), { contents: [{ role: 'user', parts: [{ text: 'Hello' }] }] });
  t.end();
});

void t.test('a stream', (t) => {
  const { path } = written({ stream: true }, { stream: true }, { basePath: '/google' });
  t.equal(path, '/google/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse');
  t.end();
});

void t.test('a tuned model has its collection in its name', (t) => {
  const { path } = written({}, { model: 'tunedModels/mine-1' });
  t.equal(path, '/v1beta/tunedModels/mine-1:generateContent');
  t.end();
});

void t.test('no character of a name ends the path', (t) => {
  const { path } = written({}, { model: 'tunedModels/a b?x#y%z' });
  t.equal(path, '/v1beta/tunedModels/a%20b%3Fx%23y%25z:generateContent');
  t.end();
});

void t.test('a token, and no credential', (t) => {
  t.strictSame(written({}, { credential: { kind: 'bearer', token: 'ya29' } }).headers, [
    'authorization',
    'Bearer ya29',
  ]);
  t.strictSame(written({}, { credential: undefined }).headers, []);
  t.end();
});
