/** The model in the first piece of a body: found where it is certain, and nowhere else. */
import t from 'tap';
import { modelInFirstPiece } from '#src/protocol/request-bytes.js';

const of = (text: string): string | undefined => modelInFirstPiece(Buffer.from(text));

void t.test('found where it stands whole at the top', (t) => {
  t.equal(of('{"model":"m"'), 'm');
  t.equal(of(' \n{ "model" : "m" , "messages":[{"role":"user","content":"xxx'), 'm');
  t.equal(
    of('{"messages":[{"model":"other","content":"\\"model\\":\\"x\\""}],"x":{"model":1},"model":"é\\u0041"'),
    'éA',
  );
  t.equal(of('{"stream":true,"n":1,"model":""}'), undefined);
  t.end();
});

void t.test('undefined where it is not there or not certain', (t) => {
  const cases = [
    ['nothing', ''],
    ['spaces', '  '],
    ['no object', '["model","m"]'],
    ['within another', '{"x":{"model":"m"}'],
    ['in a text', '{"x":"\\"model\\":\\"m\\""'],
    ['no string', '{"model":["m"],"model":"m"'],
    ['not JSON so far', '{"x":tru,"model":"m"}'],
    ['cut in the value before', '{"messages":[{"role":"user","content":"model":"m"'],
    ['an escaped name', '{"mod\\u0065l":"a","model":"m"'],
    ['a broken string', '{"model":"m\n"'],
    ['a name that is too long', `{"model":"${'m'.repeat(5_000)}"`],
    ['nested too deep', `{"x":${'['.repeat(1_000_000)},"model":"m"`],
    ['a byte-order mark', '\uFEFF{"model":"m"}'],
    ['no UTF-8', Buffer.from('{"model":"\xff"', 'latin1')],
  ] as const;
  for (const [what, text] of cases) t.equal(modelInFirstPiece(Buffer.from(text as string)), undefined, what);
  t.end();
});

void t.test('a piece cut anywhere gives the model or nothing', (t) => {
  const text = '{"x":[1,{"model":"a"}],"y":"\\"","mod":"b","model":"the model €","messages":[]}';
  const bytes = Buffer.from(text);
  const whole = Buffer.byteLength(text.slice(0, text.indexOf(',"messages')));
  for (let length = 0; length <= bytes.length; length++) {
    const seen = modelInFirstPiece(bytes.subarray(0, length));
    if (seen !== (length >= whole ? 'the model €' : undefined)) t.fail(`at ${length}: ${String(seen)}`);
  }
  t.end();
});
