/**
 * A real browser for tests: Debian's Chromium, steered by playwright-core; tests that want it skip themselves
 * where it is not. Its headless shell comes first, the same engine without windows: the full program makes
 * one for each page, which nobody sees: 1.6 s of CPU a page, the shell 0.3 s.
 */
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import root from 'tap';
import {
  chromium,
  type Browser as Program,
  type BrowserContext,
  type BrowserContextOptions,
  type Page,
} from 'playwright-core';
import type { Gateway } from './gateway.js';
import type { Scope } from './mock.js';

const EXECUTABLES = [
  '/usr/bin/chromium-headless-shell',
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
];
const executablePath = EXECUTABLES.find((path) => existsSync(path));
export const HAS_BROWSER = executablePath !== undefined;

/** Of one step of a page: a loaded machine is slow, a broken page never gets there. */
const STEP_TIMEOUT_MS = 60_000;

export interface WatchedPage {
  readonly page: Page;
  /** What its console called an error, and what it did not catch. */
  readonly faults: string[];
}

export interface Browser {
  /** A page with cookies of its own. */
  open(options?: BrowserContextOptions): Promise<WatchedPage>;
}

let launched: Promise<Program> | undefined;

/** The one of this file, which its tests share: it ends with the file. */
async function launch(): Promise<Program> {
  const program = await chromium.launch({
    executablePath: executablePath!,
    // As root, and in a container, its own sandbox cannot be had. The pages are this test's.
    args: ['--no-sandbox', '--disable-dev-shm-usage'],
  });
  root.teardown(() => program.close());
  return program;
}

/** The pages that are opened here close with the test. */
export async function startBrowser(t: Scope): Promise<Browser> {
  const program = await (launched ??= launch());
  const contexts: BrowserContext[] = [];
  t.teardown(() => Promise.all(contexts.map((context) => context.close())));
  return {
    open: async (options = {}) => {
      const context = await program.newContext(options);
      contexts.push(context);
      context.setDefaultTimeout(STEP_TIMEOUT_MS);
      const page = await context.newPage();
      const faults: string[] = [];
      page.on('console', (message) => {
        if (message.type() === 'error') faults.push(message.text());
      });
      page.on('pageerror', (error) => faults.push(error.message));
      return { page, faults };
    },
  };
}

/** Opens the console and signs in with the admin token; the overview is there then. */
export async function signIn(
  page: Page,
  { admin }: Pick<Gateway, 'admin'>,
  token = admin.token,
): Promise<void> {
  await page.goto(`http://127.0.0.1:${admin.port}/`);
  await page.getByLabel('Admin token').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
}

/**
 * Opens a page by its link of the navigation. Resolves when the page is there: the page before may have
 * controls of the same names.
 */
export async function goTo(page: Page, name: string): Promise<void> {
  const pages = page.getByRole('navigation', { name: 'Pages' });
  await pages.getByRole('link', { name, exact: true }).click();
  await page.getByRole('heading', { name, exact: true, level: 1 }).waitFor();
}

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

interface Violation {
  readonly id: string;
  readonly impact: string | null;
  readonly nodes: readonly { readonly html: string; readonly failureSummary?: string }[];
}

/** Faults that axe-core calls serious or critical, each as a line. Takes a second. */
export async function seriousFaults(page: Page): Promise<string[]> {
  // Evaluated by the debugger, which the page's policy does not bind; once for each document.
  if (!(await page.evaluate<boolean>(`'axe' in window`))) await page.evaluate(AXE);
  const violations = await page.evaluate<readonly Violation[]>(
    `axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations)`,
  );
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .flatMap(({ id, nodes }) =>
      nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary ?? ''}`),
    );
}

/** Ignored by git; for whoever wants to look. */
const SHOTS = join(process.cwd(), 'build/screenshots');

export async function shoot(page: Page, name: string): Promise<void> {
  mkdirSync(SHOTS, { recursive: true });
  await page.screenshot({ path: join(SHOTS, `${name}.png`) });
}
