/** Signatures of AWS's own examples. bedrock.test.ts compares whole requests with the SDK's. */
import { createHash } from 'node:crypto';
import t from 'tap';
import { Signer, signatureHeaders, type AwsCredential } from '#src/providers/bedrock/signature.js';

const CREDENTIAL: AwsCredential = {
  kind: 'aws',
  accessKeyId: 'AKIDEXAMPLE',
  secretAccessKey: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY',
  sessionToken: undefined,
};

/**
 * Of the AWS Signature Version 4 test suite, as github.com/awslabs/aws-c-auth has it (Apache-2.0): names,
 * requests and signatures of those without a query. Their region is us-east-1, their service `service`.
 */
const VECTORS: readonly (readonly [
  name: string,
  method: string,
  path: string,
  headers: Readonly<Record<string, string>>,
  body: string,
  signature: string,
])[] = [
  ['post-vanilla', 'POST', '/', {}, '', '5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b'],
  [
    'post-header-key-sort',
    'POST',
    '/',
    { 'my-header1': 'value1' },
    '',
    'c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c',
  ],
  [
    'post-x-www-form-urlencoded',
    'POST',
    '/',
    {
      'content-length': '13',
      'content-type': 'application/x-www-form-urlencoded',
      'x-amz-content-sha256': '9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e',
    },
    'Param1=value1',
    'd3875051da38690788ef43de4db0d8f280229d82040bfac253562e56c3f20e0b',
  ],
  [
    'get-vanilla-with-session-token',
    'GET',
    '/',
    { 'x-amz-security-token': '6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267' },
    '',
    '07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8',
  ],
  ['get-utf8', 'GET', '/ሴ', {}, '', '8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85'],
  [
    'get-unreserved',
    'GET',
    '/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz',
    {},
    '',
    '07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f',
  ],
  [
    'get-space-normalized',
    'GET',
    '/example space/',
    {},
    '',
    '652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741',
  ],
  [
    'get-slashes-normalized',
    'GET',
    '//example//',
    {},
    '',
    '9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84',
  ],
];

for (const [name, method, path, more, body, signature] of VECTORS) {
  void t.test(name, (t) => {
    const given = { host: 'example.amazonaws.com', 'x-amz-date': '20150830T123600Z', ...more };
    const headers = Object.fromEntries(
      Object.entries(given).sort(([one], [other]) => (one < other ? -1 : 1)),
    );
    const bodyHash = createHash('sha256').update(body).digest('hex');
    const form = { method, path, headers, credential: CREDENTIAL, region: 'us-east-1', service: 'service' };
    t.equal(
      new Signer(form).authorizationOf(bodyHash),
      `AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=${Object.keys(headers).join(';')}, Signature=${signature}`,
    );
    t.end();
  });
}

void t.test('what is kept of a call is of no use to another one', (t) => {
  const other: AwsCredential = { ...CREDENTIAL, secretAccessKey: 'another' };
  const session: AwsCredential = { ...CREDENTIAL, sessionToken: 'token' };
  type Asked = readonly [
    path: string,
    host: string,
    body: string,
    credential: AwsCredential,
    region: string,
    ms: number,
  ];
  const first: Asked = ['/model/m/converse', 'h', 'ab', CREDENTIAL, 'us-east-1', Date.UTC(2026, 10, 23)];
  const [path, host, body, credential, region, ms] = first;
  const asked: readonly Asked[] = [
    first,
    ['/model/m/converse-stream', host, body, credential, region, ms],
    [path, 'other', body, credential, region, ms],
    [path, host, 'cd', credential, region, ms],
    [path, host, body, other, region, ms],
    [path, host, body, session, region, ms],
    [path, host, body, credential, 'eu-west-1', ms],
    [path, host, body, credential, region, ms + 1_000],
    [path, host, body, credential, region, ms + 86_400_000],
  ];
  const signed = ([path, host, body, credential, region, ms]: Asked): string =>
    signatureHeaders(path, host, body, credential, region, ms).join();
  const fresh = asked.map(([path, host, body, credential, region, ms]) => {
    // Nothing is kept of a credential that is new, in a second that was not yet.
    signatureHeaders('', '', '', credential, region, 0);
    return signed([path, host, body, { ...credential }, region, ms]);
  });
  t.equal(new Set(fresh).size, asked.length);
  t.same([...asked, ...asked].map(signed), [...fresh, ...fresh]);
  t.same([...asked].reverse().map(signed), [...fresh].reverse());
  t.end();
});
