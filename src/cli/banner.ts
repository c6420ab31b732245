/**
 * The banner of `tollgate serve`: what an operator sees first. serve.ts calls both exported functions, in the
 * supervisor process. Pure.
 *
 * Must hold: the commands in the banner work as they are printed (test/unit/cli/banner.test.ts,
 * test/e2e/first-start.test.ts).
 */
import { basename, dirname, relative } from 'node:path';
import { localAuthority } from '../admin/gateway-file.js';
import { DEMO_MODEL } from '../config/examples.js';
import type { Settings } from '../config/schema.js';
import type { GatewayReady } from '../gateway/messages.js';

export interface BannerFacts {
  readonly version: string;
  readonly settings: Settings;
  /** Path of the configuration file; undefined if there is none. */
  readonly source: string | undefined;
  readonly ready: GatewayReady;
  /** How an operator calls this program here: `node dist/cli/main.js`. */
  readonly command: string;
}

/** This many ids of models fit into two lines of a terminal. */
const MODELS_SHOWN_MAX = 8;

/** Returns the banner, which ends with a line break. It has the demo key if this start made the key. */
export function bannerOf(facts: BannerFacts): string {
  const { settings, ready } = facts;
  const address = `${settings.listen.tls === undefined ? 'http' : 'https'}://${localAuthority(settings.listen.host, ready.port)}`;
  const ids = settings.models.map((model) => model.id);
  const omitted = ids.length > MODELS_SHOWN_MAX ? ` and ${ids.length - MODELS_SHOWN_MAX} more` : '';
  const lines = [
    `Tollgate ${facts.version}`,
    '',
    `  Serving   ${address}/v1`,
    // The admin port has no TLS: the settings have no `admin.tls`.
    `  Admin     http://${localAuthority(settings.admin.host, ready.adminPort)}`,
    `  Models    ${ids.slice(0, MODELS_SHOWN_MAX).join(', ')}${omitted}`,
    `  Data      ${settings.data}`,
    `  Settings  ${facts.source ?? 'built in (no tollgate.yaml here); to write one: ' + facts.command + ' config example'}`,
    '',
    ...demoLines(facts, address),
  ];
  return `${lines.join('\n')}\n`;
}

/** Returns the lines about the demo, which serves DEMO_MODEL without TLS; empty if there is no demo. */
function demoLines({ ready, settings, command }: BannerFacts, address: string): string[] {
  if (ready.demoKey !== undefined) {
    return [
      'Demo key, shown only once:',
      '',
      `  ${ready.demoKey}`,
      '',
      'Try it, whole and streamed:',
      '',
      `  ${curlLine(address, ready.demoKey, 'whole')}`,
      '',
      `  ${curlLine(address, ready.demoKey, 'streamed')}`,
      '',
    ];
  }
  if (ready.demoAccountId === undefined) return [];
  return [
    'The demo key was shown at the first start. To make another:',
    '',
    `  ${command} keys create --account ${ready.demoAccountId} --name another --data ${quoted(settings.data)}`,
    '',
  ];
}

/** Returns a command that sends a chat call, whose response comes in one piece or as a stream. */
function curlLine(address: string, key: string, response: 'whole' | 'streamed'): string {
  const isStream = response === 'streamed';
  const body = {
    model: DEMO_MODEL,
    messages: [{ role: 'user', content: 'Hello, Tollgate!' }],
    ...(isStream ? { stream: true } : {}),
  };
  return [
    // With -N curl prints each event as it comes.
    isStream ? 'curl -N' : 'curl',
    `${address}/v1/chat/completions`,
    `-H 'Authorization: Bearer ${key}'`,
    `-H 'Content-Type: application/json'`,
    `-d '${JSON.stringify(body)}'`,
  ].join(' ');
}

/** Returns how an operator in `workingDirectory` calls the script again. npx finds what is in `.bin`. */
export function commandOf(scriptPath: string, workingDirectory: string): string {
  if (basename(scriptPath) === 'tollgate') {
    return basename(dirname(scriptPath)) === '.bin' ? 'npx tollgate' : 'tollgate';
  }
  const path = relative(workingDirectory, scriptPath);
  return `node ${quoted(path.startsWith('..') ? scriptPath : path)}`;
}

/** Returns the word, in quotes if a POSIX shell needs them. */
function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
