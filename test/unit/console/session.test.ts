/** Who the console takes for signed in. Its file is bundled for Node. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';
import t from 'tap';
import { eventually } from '../../support/gateway.js';

interface Bundle {
  readonly signIn: (token: string) => Promise<void>;
  readonly signOut: () => Promise<unknown>;
  readonly checkSession: () => Promise<boolean>;
  readonly keepPage: () => () => void;
  readonly may: (right: 'keys') => boolean;
  readonly operatorNow: () => unknown;
  readonly whenSignedOut: (callback: () => void) => void;
  readonly get: (path: string) => Promise<unknown>;
}

async function bundle(): Promise<Bundle> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-console-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const outfile = join(folder, 'session.mjs');
  const contents = "export * from './src/console/session.ts'; export { get } from './src/console/api.ts';";
  const stdin = { contents, resolveDir: process.cwd() };
  await build({ stdin, outfile, bundle: true, format: 'esm', platform: 'node', logLevel: 'warning' });
  return (await import(outfile)) as Bundle;
}

void t.test('nobody is taken for signed in after the end of the session', async (t) => {
  const { signIn, signOut, checkSession, keepPage, may, operatorNow } = await bundle();
  const signedOut = { signed_in: false, who: null, role: null };
  let response: object = {};
  t.intercept(globalThis, 'fetch', { value: () => Promise.resolve(Response.json(response)) });
  const enter = (): Promise<void> => {
    response = { signed_in: true, who: 'ann', role: 'admin' };
    return signIn('token');
  };
  t.notOk(may('keys'));
  await enter();
  t.ok(may('keys'));
  response = signedOut;
  await signOut();
  t.notOk(may('keys'), 'signed out');
  t.equal(operatorNow(), undefined);

  await enter();
  response = signedOut;
  const letPageGo = keepPage();
  t.notOk(await checkSession());
  t.ok(may('keys'), 'the page is kept as it is, for a dialog');
  letPageGo();
  await eventually('the end of the session', () => !may('keys') || undefined);

  await enter();
  const letAgainGo = keepPage();
  letPageGo();
  response = signedOut;
  t.notOk(await checkSession());
  t.ok(may('keys'), 'what was let go before lets go of nothing else');
  response = { signed_in: true, who: 'ann', role: 'admin' };
  t.ok(await checkSession(), 'signed in again in another tab');
  letAgainGo();
  t.ok(may('keys'), 'the session goes on');
});

void t.test('who has signed in again in another tab, unknown here, keeps the page', async (t) => {
  const { whenSignedOut, signIn, checkSession, keepPage } = await bundle();
  let signedOutCount = 0;
  whenSignedOut(() => {
    signedOutCount += 1;
  });
  const signedIn = { signed_in: true, who: 'ann', role: 'admin' };
  let response: object | undefined = signedIn;
  let requests = 0;
  const respond = (): Promise<Response> => {
    requests += 1;
    return response === undefined
      ? Promise.reject(new TypeError())
      : Promise.resolve(Response.json(response));
  };
  t.intercept(globalThis, 'fetch', { value: respond });
  for (const [answer, ends] of [
    [signedIn, false],
    // Whether the session has ended is not known, so the page stays.
    [undefined, false],
    [{ signed_in: false, who: null, role: null }, true],
  ] as const) {
    response = signedIn;
    await signIn('token');
    const letGo = keepPage();
    const letOtherGo = keepPage();
    response = { signed_in: false, who: null, role: null };
    await checkSession();
    response = answer;
    letGo();
    const before = requests;
    letOtherGo();
    await eventually('the question', () => requests === before + 1 || undefined);
    await new Promise((resolve) => setTimeout(resolve, 20));
    t.equal(signedOutCount, ends ? 1 : 0);
  }
});

void t.test('a 401 ends the session only if the session is over', async (t) => {
  const { whenSignedOut, get, signIn } = await bundle();
  let signedOutCount = 0;
  whenSignedOut(() => {
    signedOutCount += 1;
  });
  let isSignedIn = true;
  let sessionRequests = 0;
  const respond = (path: string): Promise<Response> => {
    if (path !== '/admin/session') return Promise.resolve(Response.json({}, { status: 401 }));
    sessionRequests += 1;
    const view = isSignedIn
      ? { signed_in: true, who: 'ann', role: 'admin' }
      : { signed_in: false, who: null };
    return Promise.resolve(Response.json({ role: null, ...view }));
  };
  t.intercept(globalThis, 'fetch', { value: respond });
  await signIn('token');
  await t.rejects(get('/accounts'), /status 401/);
  await eventually('the session is asked for', () => sessionRequests === 2 || undefined);
  isSignedIn = false;
  await t.rejects(get('/accounts'), /status 401/);
  await eventually('the end of the session is reported', () => signedOutCount === 1 || undefined);
  t.equal(sessionRequests, 3, 'the first answer, that the session goes on, ended nothing');
});
