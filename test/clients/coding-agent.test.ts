/**
 * Coding agents, OpenAI's Codex and Anthropic's Claude Code, unmodified and without a login, through a
 * gateway: at an upstream that speaks their protocol, and at one that speaks chat completions. The upstream's
 * script is a call of the agent's own tool, then a text.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import t from 'tap';
import { picoUnitsOf } from '#src/core/money.js';
import { ANTHROPIC_MOCK } from '#src/mock/mock-anthropic.js';
import { OPENAI_MOCK } from '#src/mock/mock-openai.js';
import { RESPONSES_MOCK } from '#src/mock/mock-responses.js';
import { eventually, startGateway, temporaryFolder, TEST_PRICE } from '../support/gateway.js';
import { FOLDER, WANTS_CLIENTS } from './installed.js';
import { COMMAND, COST, SAID, startScript, USAGE, type Script } from './script-server.js';

const MODEL = 'coder';
const SECONDS_MAX = 60;
const PROMPT = 'Mend the greeting in greeting.txt.';

interface Agent {
  readonly name: string;
  readonly script: Script;
  readonly upstream: (origin: string) => object;
  /** What Node runs. */
  readonly args: (gateway: string) => readonly string[];
  readonly env: (gateway: string, key: string) => Readonly<Record<string, string>>;
}

function codexArgs(gateway: string): readonly string[] {
  const provider = `{name="tollgate",base_url="${gateway}/v1",env_key="TOLLGATE_KEY",wire_api="responses"}`;
  const settings = ['model_provider="tollgate"', `model_providers.tollgate=${provider}`];
  return [
    join(FOLDER, 'node_modules/@openai/codex/bin/codex.js'),
    'exec',
    '--skip-git-repo-check',
    '--dangerously-bypass-approvals-and-sandbox',
    ...settings.flatMap((setting) => ['-c', setting]),
    ...['-m', MODEL, PROMPT],
  ];
}
const CODEX = {
  args: codexArgs,
  env: (_: string, key: string) => ({ TOLLGATE_KEY: key }),
};
const CLAUDE_CODE = {
  args: () => [
    join(FOLDER, 'node_modules/@anthropic-ai/claude-code/cli-wrapper.cjs'),
    ...['--print', '--allowedTools', 'Bash', '--model', MODEL, PROMPT],
  ],
  env: (gateway: string, key: string) => ({
    ANTHROPIC_BASE_URL: gateway,
    ANTHROPIC_API_KEY: key,
    // For titles and the like.
    ANTHROPIC_DEFAULT_HAIKU_MODEL: MODEL,
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
  }),
};
const COMMAND_TOOL = { tool: 'exec_command', input: { cmd: COMMAND } };
const BASH_TOOL = { tool: 'Bash', input: { command: COMMAND, description: 'Mends the greeting' } };
const isToolMessage = (body: string): boolean => body.includes('"role":"tool"');

const AGENTS: readonly Agent[] = [
  {
    name: 'Codex, passed',
    ...CODEX,
    script: {
      ...COMMAND_TOOL,
      protocol: RESPONSES_MOCK,
      hasResult: (body) => body.includes('function_call_output'),
    },
    upstream: (origin) => ({ url: `${origin}/v1`, speaks: ['responses'] }),
  },
  {
    name: 'Codex, translated',
    ...CODEX,
    script: { ...COMMAND_TOOL, protocol: OPENAI_MOCK, hasResult: isToolMessage },
    upstream: (origin) => ({ url: `${origin}/v1` }),
  },
  {
    name: 'Claude Code, passed',
    ...CLAUDE_CODE,
    script: { ...BASH_TOOL, protocol: ANTHROPIC_MOCK, hasResult: (body) => body.includes('"tool_result"') },
    upstream: (origin) => ({ provider: 'anthropic', url: origin, key: '${UPSTREAM_KEY}' }),
  },
  {
    name: 'Claude Code, translated',
    ...CLAUDE_CODE,
    script: { ...BASH_TOOL, protocol: OPENAI_MOCK, hasResult: isToolMessage },
    upstream: (origin) => ({ url: `${origin}/v1` }),
  },
];

for (const { name, script, upstream, args, env } of AGENTS) {
  void t.test(`${name}: edits a file, and its calls are in the books`, WANTS_CLIENTS, async (t) => {
    const { origin, bodies } = await startScript(t, script);
    const gateway = await startGateway(t, {
      config: {
        // Codex offers a search that a provider runs.
        models: [
          {
            id: MODEL,
            price: TEST_PRICE,
            upstreams: [upstream(origin)],
            pass_members: ['hosted_tools'],
          },
        ],
        plans: [{ id: 'ample', requests_per_minute: 1_000, calls_per_day: 1_000 }],
      },
      env: { UPSTREAM_KEY: 'sk-upstream-0123456789' },
    });
    const who = await gateway.admin.customer();
    const [home, folder] = [temporaryFolder(t), temporaryFolder(t)];
    mkdirSync(join(home, '.codex'));
    const file = join(folder, 'greeting.txt');
    writeFileSync(file, 'Hello wrold\n');
    const child = spawn(process.execPath, args(gateway.url), {
      cwd: folder,
      // Nothing of this machine's own settings or keys.
      env: { PATH: process.env.PATH, HOME: home, ...env(gateway.url, who.key) },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: SECONDS_MAX * 1_000,
    });
    const [said, told, [code]] = await Promise.all([
      text(child.stdout),
      text(child.stderr),
      once(child, 'close') as Promise<[number | null]>,
    ]);
    if (!t.equal(code, 0, told + said)) return;
    t.match(said, SAID);
    t.equal(readFileSync(file, 'utf8'), 'Hello world\n', 'by a tool call');
    t.ok(bodies.length >= 2);
    const row = await eventually('its calls in the books', async () => {
      const row = await gateway.admin.usageOf(who.accountId);
      return row?.calls === bodies.length ? row : undefined;
    });
    const calls = bodies.length;
    t.match(row, { prompt_tokens: calls * USAGE.prompt, completion_tokens: calls * USAGE.completion });
    t.equal(picoUnitsOf(row.cost), BigInt(calls) * COST);
    await gateway.stop();
  });
}
